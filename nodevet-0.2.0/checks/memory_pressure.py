"""The node has enough available memory, and little dirty memory.

**Why it matters.** The next job cannot use memory that a finished job, a leaking daemon or a RAM
disk still holds, and is killed midway. Much dirty memory means that a disk or a file server cannot
keep up: the next fsync or checkpoint waits until all of it is written.

**Read from** /proc/meminfo: MemTotal, MemAvailable, Dirty, SwapTotal and SwapFree.

**Verdicts.** New processes can get MemAvailable without swapping: it includes the page cache, but
not reserved huge pages. The check judges the memory of this moment, so a job that uses the node
well may fail it: set the limits for an idle node and check idle nodes, or set low limits. With
`maximum_swap_used_percent` the check also judges the swap in use; the check `swap` judges whether
the node has swap at all.

**To fix it** `ps aux --sort=-rss | head` lists the processes that hold memory, `df -h -t tmpfs`
lists RAM disks, `ipcs -m` lists leftover shared memory; `grep -i huge /proc/meminfo` shows memory
reserved as huge pages. For dirty memory, `cat /proc/pressure/io` and `iostat -x 1` show which disk
is slow.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.aspects import aspect_findings, aspect_if, unknown_aspect
from nodevet.checking.named import of_section, reads_of
from nodevet.evidence.document import Evidence
from nodevet.evidence.memory import Memory
from nodevet.model import NODE, Area, Check, CheckParams, Finding, Severity

Percent = Annotated[float, Meta(ge=0, le=100)]
HELD = (
    "`ps aux --sort=-rss | head` names the processes that hold memory; see also RAM disks (`df "
    "-h -t tmpfs`) and leftover shared memory (`ipcs -m`)"
)
BEHIND = "`iostat -x 1` and /proc/pressure/io show which disk is slow"


class Params(CheckParams):
    """`memory_pressure: 10` or
    `memory_pressure: {minimum_available_percent: 90, maximum_dirty_percent: 5}`"""

    bare: ClassVar[str] = "minimum_available_percent"

    minimum_available_percent: Percent = 10
    """The least available share of all memory."""
    maximum_dirty_percent: Percent | None = None
    """The largest dirty share of all memory."""
    maximum_swap_used_percent: Percent | None = None
    """The largest used share of the active swap."""


@of_section(Memory, "memory")
def judge(memory: Memory, evidence: Evidence, params: Params) -> Iterator[Finding]:
    aspects = []
    for name, limit, parts in (
        ("available", params.minimum_available_percent, ("available_kb", "total_kb")),
        ("dirty", params.maximum_dirty_percent, ("dirty_kb", "total_kb")),
        ("swap used", params.maximum_swap_used_percent, ("swap_free_kb", "swap_total_kb")),
    ):
        if limit is None:
            continue
        percent = portion(memory, name, *parts)
        if isinstance(percent, str):
            aspects.append(unknown_aspect(name, percent))
            continue
        least = name == "available"
        expected = f"at {'least' if least else 'most'} {limit:g}%"
        right = percent >= limit if least else percent <= limit
        aspects.append(aspect_if(name, right, expected=expected, actual=f"{percent:.1f}%"))
    yield from aspect_findings(
        NODE, aspects, advice=lambda bad: BEHIND if bad == ["dirty"] else HELD
    )


def portion(memory: Memory, name: str, part: str, whole: str) -> float | str:
    """The part of memory or swap in percent; or why it is unknown."""
    amount: int | None = getattr(memory, part)
    total: int | None = getattr(memory, whole)
    if amount is None or total is None:
        field = part if amount is None else whole
        return f"{field}: {memory.why(field)}"
    if name == "swap used" and amount == total == 0:
        return 0.0
    if not 0 <= amount <= total or not total:
        return f"{part}: {amount} of {total}"
    return 100 * (total - amount if name == "swap used" else amount) / total


CHECK = Check(
    params=Params,
    area=Area.MEMORY,
    reads=(
        *reads_of("memory", "available_kb", "dirty_kb", "swap_free_kb", "swap_total_kb"),
        "memory.total_kb",
    ),
    judge=judge,
    unasked="jobs may fill the memory: write memory_pressure: {} for idle nodes",
    severity=Severity.WARNING,
)
