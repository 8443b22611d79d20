"""Free memory is in pieces large enough for huge pages.

**Why it matters.** Transparent and explicit huge pages, and the large buffers that NICs and GPUs
are given, need 2 MiB in one piece. On a node that has been up for months free memory may be left in
small pieces: then a job that was fast after boot runs with small pages, or stalls while the kernel
moves memory together.

**Read from** `/proc/buddyinfo`: how much of each NUMA node's free memory is in blocks of 2 MiB and
more. The NUMA node with the smallest share counts.

**Verdicts.** Fails below the baseline's share. The page cache is given back in small pieces, so a
node that has just read much data shows less than it can give: ask for it of idle nodes.

**To fix it** `echo 1 > /proc/sys/vm/compact_memory` moves memory together, on an idle node within
seconds; a reboot does it for certain.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.kernel import Kernel
from nodevet.model import (
    NODE,
    Area,
    Check,
    CheckParams,
    Finding,
    Severity,
    fail,
    ok,
    unknown,
)

ADVICE = (
    "on a drained node: `sync; echo 3 > /proc/sys/vm/drop_caches; echo 1 > "
    "/proc/sys/vm/compact_memory`; reboot it if that does not help"
)


class Params(CheckParams):
    """`memory_fragmentation: 20`"""

    bare: ClassVar[str] = "minimum_percent"

    minimum_percent: Annotated[float, Meta(gt=0, le=100)]
    """Of a NUMA node's free memory, in blocks of 2 MiB and more."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Kernel]
    if section.data is None:
        yield unknown(why=f"kernel: {section.why}")
        return
    share = section.data.free_huge_percent
    if share is None:
        yield unread(NODE, section.data, "free_huge_percent")
    elif not 0 <= share <= 100:
        yield unknown(why=f"free_huge_percent: {share:g}")
    else:
        expected, actual = f"at least {params.minimum_percent:g} %", f"{share:g} %"
        if share >= params.minimum_percent:
            yield ok(expected=expected, actual=actual)
        else:
            yield fail(expected=expected, actual=actual, advice=ADVICE)


CHECK = Check(
    params=Params,
    area=Area.MEMORY,
    reads=("kernel.free_huge_percent",),
    judge=judge,
    unasked="a node at work has any: say memory_fragmentation: 20 of idle nodes",
    severity=Severity.WARNING,
)
