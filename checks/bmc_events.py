"""The BMC has logged no critical event recently.

**Why it matters.** The event log of the management controller (SEL) records what the operating
system never sees: a power supply that lost its input, a fan that stopped, an uncorrectable error
that reset the node.

**Read from** the BMC that the inventory names for the host. The machine that runs nodevet asks the
BMC by Redfish or IPMI; it does not ask the node. Reading the log does not clear it.

**Verdicts.** A critical event fails for `hours` hours, by the BMC's own clock. Over Redfish, the
BMC grades its events. Over IPMI, an event is critical if it crosses a critical threshold, or if
`ipmitool` names a failure. An event that was resolved or deasserted later does not count. A
critical event is unknown if it has no time, or if its time contradicts the order of the log or
today's clocks, until a later event is older than `hours` hours: set the BMC's clock. If the
inventory names no BMC for a host, the check is not applicable there. The check is unknown if a BMC
does not answer or does not show its whole log, or if the log takes no new entries because it is
full or switched off. It is
also unknown if the log has more than 256 entries (over Redfish, more than 256 critical ones), and
the newest 256 are all younger than `hours` hours.

**To fix it** repair the part that the event names. If a power supply is unplugged on purpose, name
it in `ignore`.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Annotated

from msgspec import Meta

from nodevet.checking.bmc import bmc_with
from nodevet.checking.named import reads_of
from nodevet.evidence.bmc import BmcEvent, BmcInfo
from nodevet.evidence.document import Evidence
from nodevet.model import Area, Check, CheckParams, Finding, Subject, fail, ok, unknown

HOUR = 3600
NO_TIME = "critical, but without a time: the BMC's clock is not set"
WRONG_TIME = "critical, but its time is wrong: the BMC's clock was wrong, so it may be new"
ADVICE = "repair the part that it names; `nodevet bmc show` prints the BMC's other readings"


class Params(CheckParams):
    """`bmc_events: {}` or `bmc_events: {hours: 168, ignore: ["*PSU2*"]}`"""

    hours: Annotated[float, Meta(gt=0, le=8784)] = 24.0
    ignore: tuple[Annotated[str, Meta(min_length=1, title="a part or a text")], ...] = ()
    """Events that do not count: patterns for their part or their text."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    bmc = bmc_with(evidence, "events", "entries of the log")
    if isinstance(bmc, Finding):
        yield bmc
        return
    events = bmc.events or ()
    findings = [*_judged(events, params), *_unread(bmc, events, params)]
    yield from findings or [ok()]


def _judged(events: tuple[BmcEvent, ...], params: Params) -> Iterator[Finding]:
    critical: dict[str, list[BmcEvent]] = {}
    for event in events:
        if event.severity is None:
            yield unknown(_subject(_words(event)), why=f"severity: {event.why('severity')}")
        elif event.severity == "critical" and not event.ended and not _is_ignored(event, params):
            critical.setdefault(_words(event), []).append(event)
    limit = params.hours * HOUR
    for words, same in critical.items():
        subject = _subject(words)
        young = [event for event in same if (_youngest(event) or 0) < limit]
        if any(event.age_s is not None and event.age_s < limit for event in young):
            yield fail(subject, expected="no critical event", actual=words, advice=ADVICE)
        elif young:
            yield unknown(subject, why=NO_TIME if young[0].age_s is None else WRONG_TIME)


def _unread(bmc: BmcInfo, events: tuple[BmcEvent, ...], params: Params) -> Iterator[Finding]:
    """Unknown if an older entry, which was not read, may be young enough to fail."""
    if bmc.events_total is None:
        yield unknown(why=f"events_total: {bmc.why('events_total')}")
    elif bmc.events_total > len(events):
        reach = _youngest(events[-1]) if events else None
        if reach is None or reach < params.hours * HOUR:
            why = f"the newest {len(events)} of {bmc.events_total} entries of the log were read"
            since = "" if reach is None else f", and they reach back {reach / HOUR:.1f} h"
            yield unknown(why=why + since, advice="repair what fills the log, then clear the log")


def _youngest(event: BmcEvent) -> int | None:
    """How young it may be, in seconds; None if nothing says that."""
    return event.age_s if event.least_s is None else event.least_s


def _subject(words: str) -> Subject:
    return Subject(kind="bmc_event", id=words)


def _words(event: BmcEvent) -> str:
    return ": ".join(filter(None, (event.part, event.text))) or f"entry {event.id}"


def _is_ignored(event: BmcEvent, params: Params) -> bool:
    texts = (event.part or "", event.text or "")
    return any(fnmatchcase(text, pattern) for text in texts for pattern in params.ignore)


CHECK = Check(
    params=Params,
    area=Area.CHASSIS,
    reads=(
        *reads_of("bmc.events[]", "age_s", "ended", "id", "least_s", "part", "severity", "text"),
        "bmc.events_found",
        "bmc.events_total",
    ),
    judge=judge,
    unasked="only for nodes whose BMC the inventory names: write bmc_events: {}",
)
