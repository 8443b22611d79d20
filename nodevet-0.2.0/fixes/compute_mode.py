"""Set every GPU's compute mode to the expected one, now and at every boot.

**Now** `nvidia-smi -i UUID -c MODE` for each GPU that fails.

**At every boot** the unit `nodevet-compute-mode.service` sets the mode of every GPU of the node,
after nvidia-persistenced and before slurmd and the kubelet. The unit is the only manager of the
setting. If one GPU fails, the unit still sets the others, and then fails.

**Risk** idle: processes that use the GPU go on, but the GPU may refuse new processes that they
start.

**Rollback** restores the earlier modes, and removes the unit or restores the earlier one.

**What it cannot do.** nodevet refuses EXCLUSIVE_THREAD: drivers dropped it years ago. With
persistence mode off the driver forgets the mode when the GPU's last client leaves; the plan says
so, and `persistence_mode` comes first. nodevet refuses the whole node if a GPU does not respond or
does not report its mode, because the unit sets every GPU.
"""

from collections.abc import Iterator, Sequence

from nodevet.checks.compute_mode import Params
from nodevet.evidence.document import Evidence
from nodevet.fixing import gpus
from nodevet.fixing.boot_unit import BootUnit
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk, join_notes
from nodevet.model import Finding

BOOT = BootUnit("compute_mode")


def plan(
    evidence: Evidence, findings: Sequence[Finding], params: Params
) -> Iterator[PlannedChange]:
    """One change for all GPUs that fail; see `FIX`."""
    every_gpu, failed = gpus.all_and_failed(evidence, findings)
    if params.mode == "EXCLUSIVE_THREAD":
        raise FixError("no driver has EXCLUSIVE_THREAD any more; use EXCLUSIVE_PROCESS")
    failed, note = gpus.fixable(
        failed, gpus.obstacle_without("compute_mode", "it has no compute modes")
    )
    yield gpus.change(
        failed,
        options=lambda _: [words(params.mode)],
        fields=lambda _: ["compute_mode"],
        risk=Risk.IDLE,
        owner=BOOT,
        boot=[
            (gpu.uuid, words(params.mode)) for gpu in gpus.having_setting(every_gpu, "compute_mode")
        ],
        note=join_notes(note, gpus.forgetting_note(failed, "compute mode")),
    )


def words(mode: str) -> tuple[str, ...]:
    return ("-c", mode)


FIX = Fix(plan=plan, risk=Risk.IDLE, after=(*BOOT.after, "ecc_mode"))
