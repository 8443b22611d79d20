"""Reset every GPU that still responds and for which the driver asks for a reset; else reboot.

**Now** nodevet resets the GPU and starts what stopped for it, as in
[row_remapping](row_remapping.md#the-fix). This is for the recovery actions GPU_RESET and
DRAIN_AND_RESET and for NVML_ERROR_RESET_REQUIRED.

If a GPU of the node is lost or off the bus, or the driver asks for a reboot, no reset helps: the
step is a reboot of the node, which resets the other GPUs too. It is also a reboot if you plan with
`--reboot` or `--power-cycle`. Only these options reboot the node; without them the step is
`pending` until someone does.

**At every boot** nothing.

**Risk** drain for a reset: no job may run on the node. A reboot has the risk reboot.

**Rollback** cannot undo it: nothing is left to restore. The approval says so.

**What it cannot do.** The ladder has four rungs: reset, reboot, power cycle, a person. nodevet
never climbs it by itself. If a GPU is still bad after its reset, the step fails; plan again with
`--reboot`. If a reboot does not help, plan again with `--power-cycle`
([what it does](../bmc.md#power-cycle)). After that the report asks for a person: reseat or replace
the GPU. A reset or a reboot deletes what explains the fault: run nvidia-bug-report.sh first if you
need it. If the driver asks for the end of jobs on NVLink peers (DRAIN_P2P), or for an action that
nodevet does not know, the fix plans nothing.
"""

from collections.abc import Iterator, Sequence

from nodevet.checking.recovery import Remedy
from nodevet.checks.gpu_lost import REMEDIES, Params
from nodevet.evidence.document import Evidence
from nodevet.fixing import gpu_reset
from nodevet.fixing import reboot as node_reboot
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.model import Finding

REBOOTS = (Remedy.RESET, Remedy.REBOOT, Remedy.POWER)
BOOTED, ERROR = ("off the bus",), "NVML_ERROR_"


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
    other = [
        f"{finding.subject.label}: {sign}"
        for finding in failed
        for sign in signs_of(finding)
        if not (sign in BOOTED or sign.startswith(ERROR) or REMEDIES.get(sign) in REBOOTS)
    ]
    if other:
        raise FixError(f"neither a reset nor a reboot is what the driver asks for: {other[0]}")
    return node_reboot.change(evidence, failed)


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
