"""Compact memory once, so that free memory is in larger pieces.

**Now** nodevet writes 1 to `/proc/sys/vm/compact_memory`, and the kernel moves pages together on
every NUMA node. On a large node this may take minutes; nodevet waits for at most 15.

**At every boot** nothing: memory is not fragmented after a boot.

**Risk** live: jobs continue, but one CPU is busy, and a process waits while the kernel moves its
page.

**Rollback** cannot undo it, and there is nothing to restore. The plan says `cannot be undone`.

**What it cannot do.** It does not drop the page cache, which jobs may need: no evidence says how
much memory the cache holds. On a drained node, you can free more memory: run `echo 3 >
/proc/sys/vm/drop_caches` before the fix. The kernel cannot move its own pages and those of drivers.
If the check still fails, the step fails: reboot the node.
"""

from collections.abc import Iterator, Sequence

from nodevet.checks.memory_fragmentation import Params
from nodevet.evidence.document import Evidence
from nodevet.evidence.kernel import Kernel
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.model import Finding
from nodevet.resource.kernel import COMPACT, WriteKernel


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change for the node; see `FIX`."""
    kernel = evidence[Kernel].data
    if kernel is None or kernel.free_huge_percent is None:
        raise FixError("the finding does not come from this evidence")
    write = WriteKernel(path=COMPACT, value="1")
    yield PlannedChange(
        expected=failed[0].expected,
        actual=failed[0].actual,
        actions=(write,),
        resources=(write.resource,),
        risk=Risk.LIVE,
    )


FIX = Fix(plan=plan, risk=Risk.LIVE, after=("swap",))
"""After swap, whose pages return to memory."""
