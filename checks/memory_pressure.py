"""The node has memory to spare: enough is available, and little waits to be written.

**Why it matters.** What a finished job, a leaking daemon or a RAM disk still holds is missing from
the next job, which is then killed halfway. Much dirty memory means that a disk or a file server
cannot keep up: the next fsync, or the next checkpoint, waits for all of it.

**Read from** /proc/meminfo: MemTotal, MemAvailable, Dirty, SwapTotal and SwapFree.

**Verdicts.** MemAvailable is what new processes can get without swapping: the page cache counts as
available, huge pages that are reserved do not. It is judged as it is at this moment, so that a job
that uses the node well may fail it: set the limits for an idle node and check idle nodes, or set
them low. With `maximum_swap_used_percent` swap that is in use is judged too; whether there is any
at all is the check swap.

**To fix it** `ps aux --sort=-rss | head` names who holds memory, `df -h -t tmpfs` RAM disks, `ipcs
-m` shared memory that was left behind; `grep -i huge /proc/meminfo` tells whether it is reserved as
huge pages. Of dirty memory `cat /proc/pressure/io` and `iostat -x 1` tell which disk is behind.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.aspects import doubted, judged, met
from nodevet.evidence.document import Evidence
from nodevet.evidence.memory import Memory
from nodevet.model import NODE, Area, Check, CheckParams, Finding, Severity, unknown

Percent = Annotated[float, Meta(ge=0, le=100)]
HELD = (
    "`ps aux --sort=-rss | head` names who holds memory; see RAM disks (`df -h -t tmpfs`) and "
    "shared memory that was left behind (`ipcs -m`)"
)
BEHIND = "`iostat -x 1` and /proc/pressure/io tell which disk is behind"


class Params(CheckParams):
    """`memory_pressure: 10` or
    `memory_pressure: {minimum_available_percent: 90, maximum_dirty_percent: 5}`"""

    bare: ClassVar[str] = "minimum_available_percent"

    minimum_available_percent: Percent = 10
    """Of all memory."""
    maximum_dirty_percent: Percent | None = None
    """Of all memory."""
    maximum_swap_used_percent: Percent | None = None
    """Of the swap that is active."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Memory]
    if section.data is None:
        yield unknown(why=f"memory: {section.why}")
        return
    memory = section.data
    aspects = []
    for name, limit, parts in (
        ("available", params.minimum_available_percent, ("available_kb", "total_kb")),
        ("dirty", params.maximum_dirty_percent, ("dirty_kb", "total_kb")),
        ("swap used", params.maximum_swap_used_percent, ("swap_free_kb", "swap_total_kb")),
    ):
        if limit is None:
            continue
        found = portion(memory, name, *parts)
        if isinstance(found, str):
            aspects.append(doubted(name, found))
            continue
        least = name == "available"
        expected = f"at {'least' if least else 'most'} {limit:g}%"
        right = found >= limit if least else found <= limit
        aspects.append(met(name, right, expected=expected, actual=f"{found:.1f}%"))
    yield from judged(NODE, aspects, advice=lambda bad: BEHIND if bad == ["dirty"] else HELD)


def portion(memory: Memory, name: str, part: str, whole: str) -> float | str:
    """A part of memory or swap in percent; or why it is not known."""
    some: int | None = getattr(memory, part)
    all_of_it: int | None = getattr(memory, whole)
    if some is None or all_of_it is None:
        field = part if some is None else whole
        return f"{field}: {memory.why(field)}"
    if name == "swap used" and some == all_of_it == 0:
        return 0.0
    if not 0 <= some <= all_of_it or not all_of_it:
        return f"{part}: {some} of {all_of_it}"
    return 100 * (all_of_it - some if name == "swap used" else some) / all_of_it


CHECK = Check(
    params=Params,
    area=Area.MEMORY,
    reads=(
        "memory.available_kb",
        "memory.dirty_kb",
        "memory.swap_free_kb",
        "memory.swap_total_kb",
        "memory.total_kb",
    ),
    judge=judge,
    unasked="jobs may fill the memory: say memory_pressure: {} of idle nodes",
    severity=Severity.WARNING,
)
