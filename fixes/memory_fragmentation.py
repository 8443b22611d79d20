"""Compact memory once, so that free memory is in larger pieces.

**Now** one write of 1 to `/proc/sys/vm/compact_memory`: the kernel moves pages together on every
NUMA node. This may take minutes on a large node.

**At every boot** nothing: memory is not fragmented then.

**Risk** live: jobs continue, but one CPU is busy, and a process waits while its page moves.

**Rollback** cannot undo it, and there is nothing to restore. The approval says so.

**What it cannot do.** It does not drop the page cache, which other jobs may need. On a drained
node, `echo 3 > /proc/sys/vm/drop_caches` before it frees more. Pages that the kernel cannot move
(its own, those of drivers) stay where they are. If the check still fails, nodevet reports the step
as failed: then reboot.
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
