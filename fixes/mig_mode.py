"""Switch MIG on or off on every GPU, as expected, now and at every boot.

**Now** `nvidia-smi -i UUID -mig 1` (or `-mig 0`) for each GPU that fails. Hopper and later
change at once. Ampere changes with a reset of the GPU, which the driver does by itself if it
can; else the mode is pending until a reset or reboot, and the plan says `reset`.

**At every boot** Ampere keeps the mode on the board. Later GPUs forget it: the unit
`nodevet-mig-mode.service` sets it on every one of them, after nvidia-persistenced and the fabric
manager, and before the other GPU settings, slurmd and the kubelet.

**Risk** drain: nothing may use the GPU, not even a monitor such as DCGM, or the driver refuses.

**Rollback** restores the earlier modes, and removes the unit or restores the earlier one. The
MIG instances of a GPU that was in MIG mode are not restored.

**What it cannot do.** It neither creates nor keeps MIG instances: use NVIDIA's mig-parted for
the layout. The change makes the GPU forget its other settings; later fixes of the same plan
set them again, else vet again. A node with a GPU that does not respond, or does not
tell its mode, is refused as a whole, since the unit sets every GPU.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from nodevet.checks.mig_mode import Params
from nodevet.evidence.document import Evidence
from nodevet.fixing import gpus
from nodevet.fixing.boot_unit import BootUnit, switch
from nodevet.fixing.gpus import NamedGpu
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk, join_notes
from nodevet.model import Finding

ON = "no slices are made: jobs find none before the layout is applied"
OFF = "the slices of these GPUs are lost, and no undo brings them back"

BOOT = BootUnit("mig_mode", after=("persistence_mode",))


def plan(
    evidence: Evidence, findings: Sequence[Finding], params: Params
) -> Iterator[PlannedChange]:
    """A change of the GPUs that keep their mode over a boot, and one of the others."""
    every_gpu, failed = gpus.all_and_failed(evidence, findings)
    if not failed:
        return
    failed, obstacle_note = gpus.fixable(
        failed, gpus.obstacle_without("mig_current", "it cannot do MIG")
    )
    note = join_notes(obstacle_note, ON if params.enabled else OFF)
    failed = gpus.as_modes(failed, params.enabled)
    lasting = tuple(gpu for gpu in failed if keeps_mode(gpu.named))
    forgetful = tuple(gpu for gpu in failed if not keeps_mode(gpu.named))
    change = partial(
        gpus.change,
        options=lambda _: [switch("-mig", params.enabled)],
        fields=lambda _: ["mig_pending"],
        risk=Risk.DRAIN,
        note=note,
    )
    if lasting:
        yield change(lasting, effective="reset")
    if forgetful:
        boot = [
            (gpu.uuid, switch("-mig", params.enabled))
            for gpu in gpus.having_setting(every_gpu, "mig_current")
            if not keeps_mode(gpu)
        ]
        yield change(forgetful, owner=BOOT, boot=boot)


def keeps_mode(gpu: NamedGpu) -> bool:
    """Whether the board keeps the mode over a boot. Raises FixError if that is not known."""
    if gpu.gpu.gpu_architecture is None:
        raise FixError(f"{gpu.label}: gpu_architecture: {gpu.gpu.why('gpu_architecture')}")
    return gpu.gpu.gpu_architecture == "AMPERE"


FIX = Fix(plan=plan, risk=Risk.DRAIN, after=BOOT.after)
"""Before the other settings: it resets the GPU, and what was set on it is gone."""
