"""Reset every GPU that has a pending repair of a memory channel or a TPC.

**Now** nodevet resets the GPU, and starts again what it stopped for that: see `nodevet explain
row_remapping`.

**At every boot** nothing: a boot completes a pending repair too.

**Risk** drain: no job may run on the node.

**Rollback** cannot undo it: nothing is left to restore. The approval says so.

**What it cannot do.** No reset repairs *unrepairable memory*: the fix refuses such a GPU, which
needs to be replaced. If the repair is still pending afterwards, the step fails: reboot the node,
then power it off and on.
"""

from collections.abc import Iterator, Sequence

from nodevet.checks.gpu_repair import Params
from nodevet.evidence.document import Evidence
from nodevet.fixing import gpu_reset
from nodevet.fixing.model import Fix, PlannedChange, Risk
from nodevet.model import Finding


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change that resets all GPUs with a pending repair; see `FIX`."""
    yield from gpu_reset.changes(evidence, failed, obstacle)


def obstacle(finding: Finding) -> str:
    """Why a reset does not repair a finding; empty if it does."""
    signs = finding.actual if isinstance(finding.actual, dict) else {}
    if signs.keys() and signs.keys() <= {"channel_pending", "tpc_pending"}:
        return ""
    return "its memory is unrepairable: have the GPU replaced (RMA)"


FIX = Fix(plan=plan, risk=Risk.DRAIN, after=("leftover_processes",), asks=gpu_reset.asks)
"""Before the fixes of settings, which a reset GPU forgets."""
