"""The expected number of huge pages is reserved and free.

**Why it matters.** Nothing else can use the memory of reserved huge pages: a forgotten setting
takes hundreds of gigabytes from jobs. If a job needs huge pages (DPDK, SPDK, virtual machines) and
the memory was already fragmented, the kernel reserves fewer than requested and reports nothing.

**Read from** /sys/kernel/mm/hugepages/hugepages-*kB/{nr,free}_hugepages and /proc/meminfo, Hugetlb.
The check `transparent_hugepage` judges transparent huge pages.

**Verdicts.** Sizes have the usual names: 2M, 1G, 64K, 32M, 512M, 16G. A size that the kernel does
not have fails; if no pages of it are expected, it is not applicable. `none` judges Hugetlb, the sum
of all sizes.

**To fix it** `vm.nr_hugepages` (sysctl.d) reserves pages of the default size; the kernel parameters
`hugepagesz=1G hugepages=16` reserve others at boot, when memory is not yet fragmented. If pages are
not free although no job runs: `lsof /dev/hugepages`, and look for files that were left in a
hugetlbfs mount.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from nodevet.checking.aspects import aspect_findings, aspect_if, unread_aspect
from nodevet.checking.named import reads_of
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.memory import HugePages, Memory
from nodevet.model import (
    NODE,
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    Severity,
    Subject,
    Value,
    fail,
    not_applicable,
    ok,
    unknown,
)

KIB = {"K": 1, "M": 1 << 10, "G": 1 << 20}
Size = Annotated[
    str, Meta(pattern=r"^[1-9][0-9]{0,5}[KMG]$", title="a size of pages such as 2M or 1G")
]
Number = Annotated[int, Meta(ge=0)]
FEWER = "set vm.nr_hugepages to 0, and remove hugepages= from the kernel's command line"
AT_BOOT = (
    "reserve them at boot, when memory is not yet fragmented: `hugepagesz=1G hugepages=16` on "
    "the kernel's command line"
)
HELD = (
    "`lsof /dev/hugepages` names the processes that hold them; also look for files left in a "
    "hugetlbfs mount"
)


class Params(CheckParams):
    """`hugepages: none` or `hugepages: {total: {1G: 16}, minimum_free: {1G: 16}}`"""

    bare: ClassVar[str] = "total"

    total: Literal["none"] | Mapping[Size, Number] = {}
    """The number of reserved pages of each size; or `none` for no pages of any size."""
    minimum_free: Mapping[Size, Number] = {}
    """The least number of free pages of each size."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Memory]
    total: Mapping[str, int] = {} if params.total == "none" else params.total
    if params.total != "none" and not total and not params.minimum_free:
        yield unknown(why="the baseline names nothing to check")
    elif section.data is None:
        yield unknown(why=f"memory: {section.why}")
    else:
        if params.total == "none":
            yield judge_none(section.data)
        for size in dict.fromkeys((*total, *params.minimum_free)):
            least = params.minimum_free.get(size)
            yield from judge_size(section.data, size, total.get(size), least)


def judge_none(memory: Memory) -> Finding:
    if memory.hugetlb_kb is None:
        return unread(NODE, memory, "hugetlb_kb")
    if memory.hugetlb_kb < 0:
        return unknown(why=f"hugetlb_kb: {memory.hugetlb_kb}")
    if memory.hugetlb_kb:
        return fail(expected="none", actual=f"{memory.hugetlb_kb / KIB['G']:.1f} GiB", advice=FEWER)
    return ok(expected="none", actual="none")


def judge_size(memory: Memory, size: str, total: int | None, free: int | None) -> Iterator[Finding]:
    subject = Subject(kind="hugepages", id=size)
    if memory.hugepages is None:
        yield unread(subject, memory, "hugepages")
        return
    size_pages = next(
        (size_pages for size_pages in memory.hugepages if size_pages.size_kb == kib(size)), None
    )
    if size_pages is not None:
        yield from judge_pages(subject, size_pages, total, free)
        return
    sizes_text = (
        ", ".join(size_text(size_pages.size_kb) for size_pages in memory.hugepages) or "no size"
    )
    if not total and not free:
        yield not_applicable(
            subject, why=f"the kernel does not have this size: it has {sizes_text}"
        )
    else:
        why, expected = f"the kernel has {sizes_text}", f"{total or free or 0} pages"
        yield fail(subject, expected=expected, actual="no such size", why=why, advice=AT_BOOT)


def judge_pages(
    subject: Subject, pages: HugePages, total: int | None, free: int | None
) -> Iterator[Finding]:
    aspects = []
    for name, required, actual in (("total", total, pages.total), ("free", free, pages.free)):
        if required is None:
            continue
        if actual is None:
            aspects.append(unread_aspect(pages, name))
        elif name == "total":
            aspects.append(
                aspect_if(name, actual == required, expected=f"{required}", actual=actual)
            )
        else:
            right = actual >= required
            aspects.append(aspect_if(name, right, expected=f"at least {required}", actual=actual))
    yield from aspect_findings(
        subject, aspects, advice=lambda bad: HELD if bad == ["free"] else AT_BOOT
    )


def kib(size: str) -> int:
    """
    >>> kib("2M"), kib("1G")
    (2048, 1048576)
    """
    return int(size[:-1]) * KIB[size[-1]]


def size_text(size_kb: int) -> str:
    unit = next((u for u in "GM" if size_kb and size_kb % KIB[u] == 0), "K")
    return f"{size_kb // KIB[unit]}{unit}"


def learn(evidence: Evidence) -> Value:
    data = evidence[Memory].data
    if data is None or data.hugetlb_kb is None:
        return None
    if not data.hugetlb_kb:
        return "none"
    return {"total": {size_text(pages.size_kb): pages.total for pages in data.hugepages or ()}}


CHECK = Check(
    params=Params,
    area=Area.MEMORY,
    reads=(*reads_of("memory.hugepages[]", "free", "size_kb", "total"), "memory.hugetlb_kb"),
    judge=judge,
    unasked="only a site knows how many its jobs need: say hugepages: none if they need none",
    learn=learn,
    severity=Severity.WARNING,
    actions={HELD: NeededAction.SITE},
)
