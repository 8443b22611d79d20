"""Reset every GPU that still responds and for which the driver asks for a reset.

**Now** nodevet resets the GPU, and starts again what it stopped for that: see `nodevet explain
row_remapping`. This is for the recovery actions GPU_RESET and
DRAIN_AND_RESET and for NVML_ERROR_RESET_REQUIRED.

**At every boot** nothing: a boot resets the GPU too.

**Risk** drain: no job may run on the node.

**Rollback** cannot undo it: nothing is left to restore. The approval says so.

**What it cannot do.** No reset reaches a GPU that is lost or off the bus, and a reset is not enough
if the driver asks for a reboot. If one GPU of the node is in such a state, the fix plans nothing
there: a reboot does the other GPUs' reset too. If a GPU is still bad after its reset, the step
fails: reboot the node, then power it off and on. A reset deletes what explains the fault: run
nvidia-bug-report.sh first if you need it.
"""

from collections.abc import Iterator, Sequence

from nodevet.checking.recovery import Remedy
from nodevet.checks.gpu_lost import REMEDIES, Params
from nodevet.evidence.document import Evidence
from nodevet.fixing import gpu_reset
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.model import Finding


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change that resets all GPUs that need it; see `FIX`."""
    if beyond := [finding for finding in failed if not is_resettable(finding)]:
        yield from beyond_reset(evidence, beyond)
    else:
        yield from gpu_reset.changes(evidence, failed, lambda finding: "")


def is_resettable(finding: Finding) -> bool:
    """Whether a reset is the remedy of everything that the check found about a GPU."""
    signs = str(finding.actual).split(", ")
    return finding.subject.kind == "gpu" and all(
        REMEDIES.get(sign) is Remedy.RESET for sign in signs
    )


def beyond_reset(evidence: Evidence, beyond: Sequence[Finding]) -> Iterator[PlannedChange]:
    """The changes of a node with GPUs that no reset repairs. Raises FixError."""
    reasons = (f"{finding.subject.label}: {finding.actual}" for finding in beyond)
    raise FixError(f"a reset is not enough: {'; '.join(reasons)}")


FIX = Fix(plan=plan, risk=Risk.DRAIN, after=("leftover_processes",), asks=gpu_reset.asks)
"""Before the fixes of settings, which a reset GPU forgets."""
