"""The node did not reboot unexpectedly, or more often than the baseline allows.

**Why it matters.** A node that crashes and comes back looks healthy in the morning: its counters
are 0, its log is short, and its job is gone. Only the number of boots shows it.

**Read from** /var/log/wtmp and the previous file that logrotate kept, as `last -x` reads them:
every boot, and whether there was a shutdown before it.

**Verdicts.** A boot without a shutdown before it is unexpected: a panic, a power cut, a reset by
the BMC, but also `reboot -f`. The check fails if there were more unexpected boots in the last
`days` than the baseline allows, or more boots of any kind than its maximum. If wtmp does not cover
these days, or does not have the current boot, the check is unknown, as on distributions that no
longer keep wtmp; it is also unknown if the node's clock was so wrong at a boot that this boot may
be one of these days. A container is not applicable.

**To fix it** `last -x reboot shutdown` lists the boots. The BMC's event log shows power and
watchdog events, /var/lib/systemd/pstore and /var/crash show panics; see `kernel_faults`.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Meta

from nodevet.checking.named import reads_of, unread_section
from nodevet.checking.one_value import first_unread
from nodevet.evidence.boots import Boot, Boots
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo, at_uptime
from nodevet.model import NODE, Area, Check, CheckParams, Finding, fail, not_applicable, ok, unknown

DAY = 86400.0
NEAR = 3600.0  # seconds by which wtmp's boot may differ from uptime if the clock was set since
ADVICE = (
    "`last -x reboot shutdown` lists the boots; look for the cause in the BMC's event log "
    "(power, watchdog), in /var/lib/systemd/pstore and in /var/crash"
)


class Params(CheckParams):
    """`reboots: {}` or `reboots: {days: 30, unexpected: 1, maximum: 10}`"""

    days: Annotated[int, Meta(ge=1, le=366)] = 7
    unexpected: Annotated[int, Meta(ge=0)] = 0
    """The most boots without a shutdown before them."""
    maximum: Annotated[int, Meta(ge=0)] | None = None
    """The most boots of any kind; if not set, not judged."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section, host = evidence[Boots], evidence[HostInfo]
    if host.data is None:
        yield unknown(why=f"host: {host.why}")
    elif host.data.virtualization == "container":
        yield not_applicable(why="a container is not booted")
    elif section.data is None:
        yield unread_section(section, "boots")
    else:
        yield from judge_boots(section.data, host.data, params)


def judge_boots(boots: Boots, host: HostInfo, params: Params) -> Iterator[Finding]:
    if boots.boots is None:
        yield unread(NODE, boots, "boots")
        return
    if finding := first_unread(NODE, host, "virtualization", "clock_s", "uptime_s"):
        yield finding
        return
    now = host.clock_s or 0.0
    start = now - params.days * DAY
    recent = [boot for boot in boots.boots if start <= (boot.at_s or 0) <= now + DAY]
    crashes = [boot for boot in recent if boot.clean is False]
    above = []
    if len(crashes) > params.unexpected:
        allowed = f"at most {params.unexpected} unexpected"
        above.append(too_many(crashes, allowed, "unexpected", params))
    if params.maximum is not None and len(recent) > params.maximum:
        above.append(too_many(recent, f"at most {params.maximum}", "", params))
    doubt = why_unsure(boots, now, now - (host.uptime_s or 0.0), start)
    yield from above
    if doubt:
        yield unknown(why=doubt)
    elif not above:
        count = f"{len(crashes)} unexpected of {len(recent)}" if recent else "none"
        allowed = f"at most {params.unexpected} unexpected in {params.days} days"
        yield ok(expected=allowed, actual=f"{count} in {params.days} days")


def too_many(boots: list[Boot], allowed: str, kind: str, params: Params) -> Finding:
    return fail(
        expected=f"{allowed} in {params.days} days",
        actual=f"{len(boots)} {kind}".strip() + f" in {params.days} days",
        last=at_uptime(0.0, max(boot.at_s or 0 for boot in boots)),
        advice=ADVICE,
    )


def why_unsure(boots: Boots, now: float, booted: float, start: float) -> str:
    """Why wtmp may lack boots; empty if it lacks none."""
    if not boots.boots:
        return "wtmp has no boot"
    for boot in boots.boots:
        if boot.at_s is None:
            return f"at_s: {boot.why('at_s')}"
    first = boots.boots[0]
    unclear = [boot for boot in boots.boots if boot.clean is None and boot is not first]
    if unclear:
        return f"clean: {unclear[0].why('clean')}"
    if abs((boots.boots[-1].at_s or 0) - booted) > NEAR:
        return "wtmp does not have the node's current boot"
    if boots.whole is None:
        return f"whole: {boots.why('whole')}"
    if not boots.whole and boots.since_s is None:
        return f"since_s: {boots.why('since_s')}"
    if not boots.whole and (boots.since_s or 0) > start:
        return f"wtmp begins {at_uptime(0.0, boots.since_s or 0)}"
    if first.clean is None and not boots.whole and (first.at_s or 0) >= start:
        return f"unknown whether it was shut down before {at_uptime(0.0, first.at_s or 0)}"
    return times_in_doubt([boot.at_s or 0 for boot in boots.boots], start, now)


def times_in_doubt(times: Sequence[int], start: float, now: float) -> str:
    """Why one of these boots, in their order, may be as late as `start` though its time is not; a
    node without a working clock boots in 1970, or in years to come."""
    before = sum(time < start for time in times)
    if any(time >= start for time in times[:before]) or max(times) > now + DAY:
        return "the times of the boots are not in order: the node's clock was wrong at one of them"
    return ""


CHECK = Check(
    params=Params,
    area=Area.KERNEL,
    reads=(
        *reads_of("boots.boots[]", "at_s", "clean"),
        *reads_of("boots", "since_s", "whole"),
        *reads_of("host", "clock_s", "uptime_s", "virtualization"),
    ),
    judge=judge,
    unasked="maintenance reboots nodes: write how many are too many",
    asks=lambda params: {"boots": ("wtmp",)},
)
