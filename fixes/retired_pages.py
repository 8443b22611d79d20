"""Reset every GPU before Ampere that has a pending page retirement.

**Now** nodevet resets the GPU, and starts again what it stopped for that: see `nodevet explain
row_remapping`.

**At every boot** nothing: a boot completes a pending retirement too.

**Risk** drain: no job may run on the node.

**Rollback** cannot undo it: nothing is left to restore. The approval says so.

**What it cannot do.** No reset restores retired pages: the fix refuses a GPU that has more of them
than the baseline allows, which needs to be replaced. A reload of the driver would complete the
retirement too; the fix does not do that. If the retirement is still pending afterwards, the step
fails: reboot the node, then power it off and on.
"""

from collections.abc import Iterator, Sequence

from nodevet.checks.retired_pages import Params
from nodevet.evidence.document import Evidence
from nodevet.fixing import gpu_reset
from nodevet.fixing.model import Fix, PlannedChange, Risk
from nodevet.model import Finding


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change that resets all GPUs with a pending retirement; see `FIX`."""
    yield from gpu_reset.changes(evidence, failed, obstacle)


def obstacle(finding: Finding) -> str:
    """Why a reset does not repair a finding; empty if it does."""
    if isinstance(finding.actual, dict) and list(finding.actual) == ["pending"]:
        return ""
    return "no reset restores retired pages: have the GPU replaced (RMA)"


FIX = Fix(plan=plan, risk=Risk.DRAIN, after=("leftover_processes",), asks=gpu_reset.asks)
"""Before the fixes of settings, which a reset GPU forgets."""
