"""Free memory is in pieces large enough for huge pages.

**Why it matters.** Transparent and explicit huge pages, and the large buffers of NICs and GPUs,
need 2 MiB in one piece. On a node that has been up for months, free memory may be split into small
pieces. Then a job that was fast after boot runs with small pages, or stalls while the kernel
compacts memory.

**Read from** `/proc/buddyinfo`: the share of each NUMA node's free memory in blocks of 2 MiB and
more. The NUMA node with the smallest share counts. `/proc/meminfo`: Buffers, Cached without Shmem,
and SReclaimable (dentries, inodes) are the caches that the kernel can drop.

**Verdicts.** The check fails below the baseline's share. The kernel frees the page cache in small
pieces, so a node that has just read much data shows a smaller share than it can offer: use the
check on idle nodes. Full caches are no fault while free memory is in large pieces. But the kernel
cannot move dentries and inodes, and it can only join pages that are free: with
`maximum_cache_percent`, caches above this share of all memory fail too while memory is fragmented.
The check `memory_pressure` does not judge caches, because MemAvailable includes them.

**To fix it** `echo 1 > /proc/sys/vm/compact_memory` compacts memory, on an idle node within
seconds; a reboot always helps.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.named import reads_of
from nodevet.checking.one_value import first_unread, ok_if, values_at
from nodevet.evidence.document import Evidence
from nodevet.evidence.kernel import Kernel
from nodevet.evidence.memory import Memory
from nodevet.model import Area, Check, CheckParams, Finding, Severity, Subject, ok, unknown

ADVICE = (
    "on a drained node: `sync; echo 3 > /proc/sys/vm/drop_caches; echo 1 > "
    "/proc/sys/vm/compact_memory`; reboot it if that does not help"
)
HELD = (
    "on a drained node: `sync; echo 3 > /proc/sys/vm/drop_caches`. If they stay: `slabtop -s c` "
    "names the largest slab caches, and a file that a process has locked or mapped stays cached"
)
CACHES = Subject(kind="memory", id="caches")
PARTS = ("buffers_kb", "cached_kb", "shmem_kb", "slab_reclaimable_kb", "total_kb")

Percent = Annotated[float, Meta(gt=0, le=100)]


class Params(CheckParams):
    """`memory_fragmentation: 20` or
    `memory_fragmentation: {minimum_percent: 20, maximum_cache_percent: 10}`"""

    bare: ClassVar[str] = "minimum_percent"

    minimum_percent: Percent
    """The least share of a NUMA node's free memory in blocks of 2 MiB and more."""
    maximum_cache_percent: Percent | None = None
    """The largest share of all memory that caches may hold while memory is fragmented."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    values = values_at(evidence, (Kernel, "free_huge_percent"))
    if isinstance(values, Finding):
        yield values
        return
    (share,) = values
    if not 0 <= share <= 100:
        yield unknown(why=f"free_huge_percent: {share:.10g}")
        return
    is_right = share >= params.minimum_percent
    expected, actual = f"at least {params.minimum_percent:g} %", f"{share:g} %"
    yield ok_if(is_right, expected=expected, actual=actual, advice=ADVICE)
    if params.maximum_cache_percent is not None:
        yield judge_caches(evidence, params.maximum_cache_percent, is_fragmented=not is_right)


def judge_caches(evidence: Evidence, maximum: float, *, is_fragmented: bool) -> Finding:
    """Whether the caches hold so much that they keep free memory in pieces."""
    memory = evidence[Memory].data
    if memory is None:
        return unknown(CACHES, why=f"memory: {evidence[Memory].why}")
    if finding := first_unread(CACHES, memory, *PARTS):
        return finding
    buffers, cached, shmem, slab, total = (getattr(memory, field) for field in PARTS)
    held = buffers + cached - shmem + slab
    if not 0 <= held <= total or not total:
        return unknown(CACHES, why=f"the caches hold {held} of {total} kB")
    percent = 100 * held / total
    expected, actual = f"at most {maximum:g} %", f"{percent:.1f} %"
    if not is_fragmented:
        why = "free memory is in large pieces, so the caches may hold any share"
        return ok(CACHES, expected=expected, actual=actual, why=why)
    return ok_if(percent <= maximum, CACHES, expected=expected, actual=actual, advice=HELD)


CHECK = Check(
    params=Params,
    area=Area.MEMORY,
    reads=("kernel.free_huge_percent", *reads_of("memory", *PARTS)),
    judge=judge,
    unasked="a busy node may have any share: write memory_fragmentation: 20 for idle nodes",
    severity=Severity.WARNING,
)
