"""Free memory is in pieces large enough for huge pages.

**Why it matters.** Transparent and explicit huge pages, and the large buffers of NICs and GPUs,
need 2 MiB in one piece. On a node that has been up for months, free memory may be split into small
pieces. Then a job that was fast after boot runs with small pages, or stalls while the kernel
compacts memory.

**Read from** `/proc/buddyinfo`: the share of each NUMA node's free memory in blocks of 2 MiB and
more. The NUMA node with the smallest share counts.

**Verdicts.** The check fails below the baseline's share. The kernel frees the page cache in small
pieces, so a node that has just read much data shows a smaller share than it can offer: use the
check on idle nodes.

**To fix it** `echo 1 > /proc/sys/vm/compact_memory` compacts memory, on an idle node within
seconds; a reboot always helps.
"""

from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.one_value import node_value, ok_if
from nodevet.evidence.kernel import Kernel
from nodevet.model import Area, CheckParams, Finding, unknown

ADVICE = (
    "on a drained node: `sync; echo 3 > /proc/sys/vm/drop_caches; echo 1 > "
    "/proc/sys/vm/compact_memory`; reboot it if that does not help"
)


class Params(CheckParams):
    """`memory_fragmentation: 20`"""

    bare: ClassVar[str] = "minimum_percent"

    minimum_percent: Annotated[float, Meta(gt=0, le=100)]
    """The least share of a NUMA node's free memory in blocks of 2 MiB and more."""


def judge(params: Params, share: float) -> Finding:
    if share > 100:
        return unknown(why=f"free_huge_percent: {share:g}")
    expected, actual = f"at least {params.minimum_percent:g} %", f"{share:g} %"
    right = share >= params.minimum_percent
    return ok_if(right, expected=expected, actual=actual, advice=ADVICE)


CHECK = node_value(
    Params,
    Kernel,
    "free_huge_percent",
    judge=judge,
    area=Area.MEMORY,
    unasked="a busy node may have any share: write memory_fragmentation: 20 for idle nodes",
)
