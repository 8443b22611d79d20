"""Reset every GPU for which the driver asks for a reset; if a reset cannot help, reboot the node.

**Now** if the driver asks for a reset (the recovery actions GPU_RESET and DRAIN_AND_RESET, or
NVML_ERROR_RESET_REQUIRED), nodevet stops what holds the GPU, resets the GPU, and starts what it
stopped. `nodevet explain row_remapping` has the details.

If any GPU of the node is lost or off the bus, or if the driver asks for a reboot, a reset cannot
help. The step is then a reboot of the node, which also resets the other GPUs. It is also a reboot
if you plan with `--reboot` or `--power-cycle`. Only these two options make nodevet reboot the node;
without them, the step is `pending` until someone reboots it.

**At every boot** nothing.

**Risk** drain for a reset: no job may run on the node. A reboot has the risk reboot.

**Rollback** cannot undo it, and there is nothing to restore. The plan says `cannot be undone`.

**What it cannot do.** nodevet never takes the next remedy by itself
([all remedies](../fixes.md#reset-reboot-power-cycle-a-person)). If a GPU still fails after its
reset, the step fails; plan again with `--reboot`. If a reboot does not help, plan again with
`--power-cycle`. After that the report asks for a person, who reseats or replaces the GPU. A reset
or a reboot deletes what explains the fault: if you need that, run nvidia-bug-report.sh first. The
fix plans nothing if the driver asks to end the jobs on NVLink peers (DRAIN_P2P), or asks for an
action that nodevet does not know. No test has reset a real GPU.
"""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from nodevet.checking.recovery import Remedy
from nodevet.checks.gpu_lost import REMEDIES, Params
from nodevet.evidence.document import Evidence
from nodevet.fixing import gpu_reset
from nodevet.fixing import reboot as node_reboot
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk, join_notes
from nodevet.model import Finding

REBOOTS = (Remedy.RESET, Remedy.REBOOT, Remedy.POWER)
BOOTED, ERROR = ("off the bus",), "NVML_ERROR_"
UNREACHABLE = "no reset reaches a GPU that is lost or off the bus"


def plan(
    evidence: Evidence, failed: Sequence[Finding], params: Params, *, reboot: bool = False
) -> Iterator[PlannedChange]:
    """One change that resets all GPUs that need it, or one reboot; see `FIX`. `reboot`: the plan
    reboots the node anyway."""
    if reboot or not all(map(is_resettable, failed)):
        yield reboot_change(evidence, failed)
    else:
        yield from gpu_reset.changes(evidence, failed, lambda finding: "")


def is_resettable(finding: Finding) -> bool:
    """Whether a reset is the remedy of everything that the check found about a GPU."""
    return finding.subject.kind == "gpu" and all(
        REMEDIES.get(sign) is Remedy.RESET for sign in signs_of(finding)
    )


def reboot_change(evidence: Evidence, failed: Sequence[Finding]) -> PlannedChange:
    """The reboot of a node on which it may help every GPU that fails. Raises FixError."""
    signs = [(finding, sign) for finding in failed for sign in signs_of(finding)]
    lost = [sign for _, sign in signs if is_out_of_reach(sign)]
    other = [
        f"{finding.subject.label}: {sign}"
        for finding, sign in signs
        if not (is_out_of_reach(sign) or REMEDIES.get(sign) in REBOOTS)
    ]
    if other:
        raise FixError(f"the driver asks for neither a reset nor a reboot: {other[0]}")
    change = node_reboot.change(evidence, failed)
    return replace(change, note=join_notes(UNREACHABLE if lost else "", change.note))


def is_out_of_reach(sign: str) -> bool:
    """Whether a sign says that the GPU does not answer, so that no reset reaches it."""
    return sign in BOOTED or (sign.startswith(ERROR) and sign not in REMEDIES)


def signs_of(finding: Finding) -> list[str]:
    """`off the bus`, an error of NVML, the name of a recovery action."""
    return str(finding.actual).split(", ")


FIX = Fix(
    plan=plan,
    risk=Risk.REBOOT,
    options=("reboot",),
    after=("leftover_processes",),
    asks=gpu_reset.asks,
)
"""Before the fixes of settings, which a reset GPU forgets."""
