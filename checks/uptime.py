"""The node has been up as long as expected: not too long, and not since a moment ago.

**Why it matters.** A node that was up for a year runs an old kernel and has never proved that it
boots; one that was up for minutes without a planned reboot crashed or lost power.

**Read from** /proc/uptime.

**Verdicts.** `minimum_s` and `maximum_days` count from boot. How often a node was rebooted is not
seen in it.

**To fix it** drain the node and reboot it. Of one that rebooted by itself `last -x reboot`,
`journalctl -b -1 -e` and the BMC's event log tell when and why.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.expected import span, within
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.model import (
    NODE,
    Area,
    Check,
    CheckParams,
    Finding,
    Severity,
    Value,
    fail,
    ok,
    unknown,
)

DAY = 86400
REBOOT = "drain the node and reboot it"
REBOOTED = "`last -x reboot`, `journalctl -b -1 -e` and the BMC's event log tell when and why"


class Params(CheckParams):
    """`uptime: 180` or `uptime: {maximum_days: 180, minimum_s: 600}`"""

    bare: ClassVar[str] = "maximum_days"

    maximum_days: Annotated[float, Meta(gt=0)] | None = None
    minimum_s: Annotated[float, Meta(ge=0)] | None = None


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[HostInfo]
    if params.maximum_days is None and params.minimum_s is None:
        yield unknown(why="the baseline says neither minimum_s nor maximum_days")
    elif section.data is None:
        yield unknown(why=f"host: {section.why}")
    elif section.data.uptime_s is None:
        yield unread(NODE, section.data, "uptime_s")
    elif section.data.uptime_s < 0:
        yield unknown(why=f"uptime_s: {section.data.uptime_s:g}")
    else:
        seconds = section.data.uptime_s
        longest = None if params.maximum_days is None else params.maximum_days * DAY
        say = ok if within(seconds, params.minimum_s, longest) else fail
        shortest = None if params.minimum_s is None else shown(params.minimum_s)
        most = None if longest is None else shown(longest)
        old = longest is not None and seconds > longest
        advice = "" if say is ok else REBOOT if old else REBOOTED
        yield say(expected=span(shortest, most), actual=shown(seconds), advice=advice)


def shown(seconds: float) -> str:
    """
    >>> shown(90), shown(180 * 86400)
    ('90 s', '180.0 days')
    """
    return f"{seconds:.0f} s" if seconds < DAY else f"{seconds / DAY:.1f} days"


def learn(evidence: Evidence) -> Value:
    return None  # it grows by itself


CHECK = Check(
    params=Params,
    area=Area.KERNEL,
    reads=("host.uptime_s",),
    judge=judge,
    unasked="only a site knows when its nodes are rebooted",
    learn=learn,
    severity=Severity.WARNING,
)
