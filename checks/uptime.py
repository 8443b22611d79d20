"""The node has been up as long as expected: not too long, and not too short.

**Why it matters.** A node that was up for a year runs an old kernel and has not shown that it still
boots; a node that was up for minutes without a planned reboot crashed or lost power.

**Read from** /proc/uptime.

**Verdicts.** `minimum_s` and `maximum_days` count from boot. The check does not see how often a
node rebooted.

**To fix it** drain the node and reboot it. If a node rebooted by itself, `last -x reboot`,
`journalctl -b -1 -e` and the BMC's event log show when and why.
"""

from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.expected import is_within, span
from nodevet.checking.one_value import node_value, ok_if
from nodevet.evidence.host import HostInfo
from nodevet.model import Area, CheckParams, Finding, NeededAction

DAY = 86400
REBOOT = "drain the node and reboot it"
REBOOTED = "`last -x reboot`, `journalctl -b -1 -e` and the BMC's event log show when and why"


class Params(CheckParams):
    """`uptime: 180` or `uptime: {maximum_days: 180, minimum_s: 600}`"""

    bare: ClassVar[str] = "maximum_days"

    maximum_days: Annotated[float, Meta(gt=0)] | None = None
    minimum_s: Annotated[float, Meta(ge=0)] | None = None


def judge(params: Params, seconds: float) -> Finding:
    longest = None if params.maximum_days is None else params.maximum_days * DAY
    shortest = None if params.minimum_s is None else duration_text(params.minimum_s)
    return ok_if(
        is_within(seconds, params.minimum_s, longest),
        expected=span(shortest, None if longest is None else duration_text(longest)),
        actual=duration_text(seconds),
        advice=REBOOT if longest is not None and seconds > longest else REBOOTED,
    )


def duration_text(seconds: float) -> str:
    """
    >>> duration_text(90), duration_text(180 * 86400) ('90 s', '180.0 days')
    """
    return f"{seconds:.0f} s" if seconds < DAY else f"{seconds / DAY:.1f} days"


CHECK = node_value(
    Params,
    HostInfo,
    "uptime_s",
    judge=judge,
    learn=lambda _: None,  # it grows by itself
    nothing="the baseline sets neither minimum_s nor maximum_days",
    area=Area.KERNEL,
    unasked="only the site knows when its nodes reboot",
    actions={REBOOT: NeededAction.REBOOT},
)
