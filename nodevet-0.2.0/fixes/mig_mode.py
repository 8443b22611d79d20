"""Switch MIG on or off on every GPU, as expected, now and at every boot.

**Now** `nvidia-smi -i UUID -mig 1` (or `-mig 0`) for each GPU that fails. Hopper and later change
at once. Ampere changes with a reset of the GPU. The driver resets it by itself if it can; if not,
the mode is pending until a reset or reboot, and the plan says `reset`.

**At every boot** Ampere boards store the mode themselves. Later GPUs lose it: the unit
`nodevet-mig-mode.service` sets it on each of them, after nvidia-persistenced and the fabric
manager, and before the other GPU settings, slurmd and the kubelet.

**Risk** drain: no process may use the GPU, not even a monitor such as DCGM, or the driver refuses.

**Rollback** restores the earlier modes, and removes the unit or restores the earlier one. It does
not restore the MIG instances of a GPU that was in MIG mode.

**What it cannot do.** It neither creates nor keeps MIG instances: use NVIDIA's mig-parted for the
layout. The change makes the GPU lose its other settings. Later fixes of the same plan set them
again; without such fixes, vet the node again. If a GPU of the node does not respond or does not
report its mode, nodevet refuses the whole node, because the unit sets every GPU.
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

ON = "it creates no slices: jobs find none until the layout is applied"
OFF = "the slices of these GPUs are lost, and a rollback does not restore them"

BOOT = BootUnit("mig_mode", after=("persistence_mode",))


def plan(
    evidence: Evidence, findings: Sequence[Finding], params: Params
) -> Iterator[PlannedChange]:
    """One change for GPUs that keep their mode over a boot, and one for the others."""
    every_gpu, failed = gpus.all_and_failed(evidence, findings)
    failed, obstacle_note = gpus.fixable(
        failed, gpus.obstacle_without("mig_current", "it does not support MIG")
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
    """Whether the board keeps the mode over a boot. Raises FixError if this is unknown."""
    if gpu.gpu.gpu_architecture is None:
        raise FixError(f"{gpu.label}: gpu_architecture: {gpu.gpu.why('gpu_architecture')}")
    return gpu.gpu.gpu_architecture == "AMPERE"


FIX = Fix(plan=plan, risk=Risk.DRAIN, after=BOOT.after)
"""Before the other settings: it resets the GPU, which loses its settings."""
