"""What is new since an earlier visit to a machine: `--since`. Pure.

Only evidence of the same boot shows what is new: a reboot resets every counter and the kernel log.
Machine id and boot id identify the machine; see nodevet.checking.identity. The time since the last
look is the difference of the uptimes, since someone may have set the wall clock.
"""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from nodevet.base.durations import elapsed
from nodevet.evidence.document import Evidence, Recorded, answer_once
from nodevet.evidence.host import HostInfo
from nodevet.evidence.kernel_log import (
    Crash,
    KernelEvent,
    KernelLog,
    NicLink,
    Outage,
    coverage,
)
from nodevet.evidence.rates import Growth

READING = 30.0  # seconds that reading the log and the journal may take
SEEN_LINES = (
    "earlier.kernel_log.covered_s",
    "earlier.kernel_log.since_s",
    *(
        f"{when}kernel_log.events[].{field}"
        for when in ("earlier.", "")
        for field in ("bus_id", "code", "detail", "kind", "last_s", "severity")
    ),
)
"""The fields that show which lines are new: part of `reads` of a check with `seen_lines`."""


def evidence_since(evidence: Evidence, earlier: Evidence) -> Evidence | str:
    """The evidence, judged by what is new since an earlier one; or why that is impossible."""
    now, previous = evidence[HostInfo].data, earlier[HostInfo].data
    if now is None or previous is None:
        return f"machine id and boot id were not read {'this time' if now is None else 'then'}"
    for field, label in (("machine_id", "machine id"), ("boot_id", "boot id")):
        if not getattr(now, field) or not getattr(previous, field):
            return f"the {label} was not read {'then' if getattr(now, field) else 'this time'}"
    if now.machine_id != previous.machine_id:
        return "it was another machine: the machine id differs"
    if now.boot_id != previous.boot_id:
        return "rebooted since"
    if now.uptime_s is None or previous.uptime_s is None:
        return "the uptime was not read"
    seconds = now.uptime_s - previous.uptime_s
    if not 0 < seconds < now.uptime_s:
        return "it is not older than the judged evidence"
    return replace(evidence, since=Recorded(sections=earlier.sections, seconds=seconds))


def differ(*pairs: tuple[object, object]) -> bool:
    """Whether any of these pairs differs; an unread value does not."""
    return any(None not in pair and pair[0] != pair[1] for pair in pairs)


class Seen(NamedTuple):
    """The kernel log at the last look."""

    last: Mapping[tuple[object, ...], float]  # seconds after boot of each event's last line
    counts: Mapping[tuple[object, ...], int | None]  # how many lines it had; None: not known
    crashes: frozenset[tuple[str, float | None]]
    seconds: float  # since then
    outages: Mapping[str, float] = {}  # by PCI address, when a link that was down came back last

    @property
    def age_text(self) -> str:
        """`24 h 3 min`."""
        return elapsed(float(round(self.seconds)))

    def has(self, *events: KernelEvent) -> bool:
        """Whether all lines of these events are old."""
        return all(
            event.last_s is not None
            and (last := self.last.get(_key(event))) is not None
            and event.last_s <= last
            for event in events
        )

    def latest(self, events: Iterable[KernelEvent]) -> float:
        """Seconds after boot of the last old line of these events; below 0 if there is none."""
        return max((self.last.get(_key(event), -1.0) for event in events), default=-1.0)

    def came(self, events: Iterable[KernelEvent]) -> Growth | None:
        """How many new lines these events have; None if unknown."""
        added = 0
        for event in events:
            earlier_count = self.counts.get(_key(event), 0)
            if (
                earlier_count is None
                or event.count is None
                or not 0 <= earlier_count <= event.count
            ):
                return None
            added += event.count - earlier_count
        return Growth(by=added, seconds=self.seconds, look=True)

    def has_crash(self, crash: Crash) -> bool:
        return (crash.path, crash.at_s) in self.crashes

    def has_outage(self, bus_id: str, outage: Outage) -> bool:
        return outage.up_s is not None and outage.up_s <= self.outages.get(bus_id, -1.0)

    def earlier_text(self, texts: Iterable[str]) -> str:
        """A finding's text about old events; "" without any."""
        joined = "; ".join(texts)
        return f"before the last look {self.age_text} ago: {joined}" if joined else ""


def _key(event: KernelEvent) -> tuple[object, ...]:
    return event.kind, event.code, event.bus_id, event.severity, event.detail


@answer_once
def seen_lines(evidence: Evidence) -> Seen | None:
    """The kernel log at the last look. None without one, or if the current log has a gap since:
    then the whole log is judged."""
    previous = evidence.since.sections[KernelLog].data if evidence.since else None
    if evidence.since is None or previous is None or gap(evidence):
        return None
    events = {_key(event): event for event in previous.events or ()}
    now = evidence[KernelLog].data
    is_complete = previous.complete is True and now is not None and now.complete is True
    return Seen(
        last={key: each.last_s for key, each in events.items() if each.last_s is not None},
        counts={key: each.count if is_complete else None for key, each in events.items()},
        crashes=frozenset((crash.path, crash.at_s) for crash in previous.crashes or ()),
        seconds=evidence.since.seconds,
    )


@answer_once
def seen_links(evidence: Evidence) -> Seen | None:
    """Like `seen_lines`, for links that were down."""
    previous = evidence.since.sections[KernelLog].data if evidence.since else None
    now = evidence[KernelLog].data
    if evidence.since is None or previous is None or previous.links is None or now is None:
        return None
    if _gap_between(now, previous):
        return None
    return Seen(
        last={},
        counts={},
        crashes=frozenset(),
        seconds=evidence.since.seconds,
        outages={link.bus_id: _last_return(link) for link in previous.links},
    )


def _last_return(link: NicLink) -> float:
    """When a link last came back, seconds after boot; below 0 if it never did."""
    return max(
        (outage.up_s for outage in link.outages or () if outage.up_s is not None), default=-1.0
    )


def gap(evidence: Evidence) -> str:
    """Why the kernel log lacks lines since the last look; "" if it has all, without a last look, or
    without a current log."""
    now = evidence[KernelLog].data
    if evidence.since is None or now is None or now.events is None:
        return ""
    previous = evidence.since.sections[KernelLog]
    if previous.data is None or previous.data.events is None:
        return "it was not read then"
    return _gap_between(now, previous.data)


def _gap_between(now: KernelLog, previous: KernelLog) -> str:
    """Why a log does not continue the earlier one; "" if it does."""
    if now.complete is True:
        return ""
    if now.since_s is None or now.covered_s is None:
        return "it has gaps"
    if previous.since_s is None or previous.covered_s is None:
        return "it had gaps then"
    read_until = previous.since_s + previous.covered_s
    if not now.since_s <= read_until - READING < math.inf:
        return "it no longer reaches back to the last look"
    return ""


def coverage_since_look(evidence: Evidence, log: KernelLog) -> tuple[str, str]:
    """Like `coverage`, since the last look if the log covers that."""
    last_look = seen_lines(evidence)
    return ("", f"since the last look {last_look.age_text} ago") if last_look else coverage(log)
