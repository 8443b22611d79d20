"""Compact memory once, and first drop caches if the baseline limits them.

**Now** nodevet takes up to two steps:

1. If the baseline sets `maximum_cache_percent` and the caches hold more, nodevet runs `sync` and
   writes 3 to `/proc/sys/vm/drop_caches`: the kernel frees the clean page cache, dentries and
   inodes. `sync` comes first because the kernel keeps dirty pages. The step is proven by the
   finding `memory caches`.
2. nodevet writes 1 to `/proc/sys/vm/compact_memory`, and the kernel moves pages together on every
   NUMA node. If dropping caches was enough, nodevet skips this step.

On a large node each may take minutes; nodevet waits for at most 15 each.

**At every boot** nothing: memory is not fragmented after a boot.

**Risk** live: jobs continue. While caches are dropped or memory is compacted, one CPU is busy, and
processes may wait. Files that were cached are then read from disk or file server again, so drop
caches between jobs.

**Rollback** cannot undo it, and there is nothing to restore. The plan says `cannot be undone` at
each step.

**What it cannot do.** The kernel keeps the cached pages of files that a process has mapped or
locked, tmpfs, and dentries in use: if the caches then still hold more than the baseline allows, the
step fails. Without `maximum_cache_percent` nodevet drops no caches, because jobs may need them. The
kernel cannot move its own pages and those of drivers. If the check still fails, the step fails:
reboot the node.
"""

from collections.abc import Iterator, Sequence

from nodevet.checks.memory_fragmentation import CACHES, Params
from nodevet.evidence.document import Evidence
from nodevet.evidence.kernel import Kernel
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.model import Finding
from nodevet.resource import Actions, RunCommand
from nodevet.resource.kernel import COMPACT, DROP, WriteKernel

SYNC_SECONDS = 900  # much dirty memory of a slow file server
DROPS = (RunCommand(words=("sync",), seconds=SYNC_SECONDS), WriteKernel(path=DROP, value="3"))
COMPACTS = (WriteKernel(path=COMPACT, value="1"),)


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """A change that drops caches if they fail, and one that compacts memory; see `FIX`."""
    kernel = evidence[Kernel].data
    if kernel is None or kernel.free_huge_percent is None:
        raise FixError("the finding does not come from this evidence")
    for is_of_caches, actions in ((True, DROPS), (False, COMPACTS)):
        for finding in failed:
            if (finding.subject == CACHES) is is_of_caches:
                yield change(finding, actions)


def change(finding: Finding, actions: Actions) -> PlannedChange:
    label = finding.subject.label
    return PlannedChange(
        expected=finding.expected,
        actual=finding.actual,
        subjects=(label,) if label else (),
        actions=actions,
        resources=tuple(action.resource for action in actions if action.resource),
        risk=Risk.LIVE,
    )


FIX = Fix(plan=plan, risk=Risk.LIVE, after=("swap",))
"""After swap, whose pages return to memory."""
