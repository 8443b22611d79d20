"""What came since the last look at a machine, by evidence of an earlier visit: `--since`. Pure.

Only evidence of the same boot says what is new: a reboot resets every counter and the kernel log.
Machine id and boot id together say that it is the same machine; see nodevet.checking.identity. How
long ago the last look was is the difference of the uptimes, since a wall clock may have been set
meanwhile.
"""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from nodevet.base.durations import elapsed
from nodevet.evidence.document import Evidence, Recorded, once
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

READING = 30.0  # seconds that the log may have been read for, and the journal's part of it
SEEN_LINES = (
    "earlier.kernel_log.covered_s",
    "earlier.kernel_log.since_s",
    *(
        f"{when}kernel_log.events[].{field}"
        for when in ("earlier.", "")
        for field in ("bus_id", "code", "detail", "kind", "last_s", "severity")
    ),
)
"""What says which lines are new: part of `reads` of whoever uses `seen_lines`."""


def compared(evidence: Evidence, before: Evidence) -> Evidence | str:
    """The evidence, to be judged by what came since `before`; or why it cannot be."""
    now, then = evidence[HostInfo].data, before[HostInfo].data
    if now is None or then is None:
        return f"machine id and boot id were not read {'this time' if now is None else 'then'}"
    for field, what in (("machine_id", "machine id"), ("boot_id", "boot id")):
        if not getattr(now, field) or not getattr(then, field):
            return f"the {what} was not read {'then' if getattr(now, field) else 'this time'}"
    if now.machine_id != then.machine_id:
        return "it was another machine: the machine id differs"
    if now.boot_id != then.boot_id:
        return "rebooted since"
    if now.uptime_s is None or then.uptime_s is None:
        return "the uptime was not read"
    seconds = now.uptime_s - then.uptime_s
    if not 0 < seconds < now.uptime_s:
        return "it is no older than the evidence that is judged"
    return replace(evidence, since=Recorded(sections=before.sections, seconds=seconds))


def differ(*pairs: tuple[object, object]) -> bool:
    """Whether any of these identities changed; one that was not read on either side did not."""
    return any(None not in pair and pair[0] != pair[1] for pair in pairs)


class Seen(NamedTuple):
    """What of the kernel log was there at the last look."""

    last: Mapping[tuple[object, ...], float]  # seconds after boot of each event's last line
    counts: Mapping[tuple[object, ...], int | None]  # how many lines it had; None: not known
    crashes: frozenset[tuple[str, float | None]]
    seconds: float  # since then
    outages: Mapping[str, float] = {}  # by PCI address, when a link that was down came back last

    @property
    def ago(self) -> str:
        """`24 h 3 min`."""
        return elapsed(float(round(self.seconds)))

    def has(self, *events: KernelEvent) -> bool:
        """Whether all lines of these events were there."""
        return all(
            event.last_s is not None
            and (last := self.last.get(_key(event))) is not None
            and event.last_s <= last
            for event in events
        )

    def latest(self, events: Iterable[KernelEvent]) -> float:
        """Seconds after boot of the last line of these that was there; below 0 if none was."""
        return max((self.last.get(_key(event), -1.0) for event in events), default=-1.0)

    def came(self, events: Iterable[KernelEvent]) -> Growth | None:
        """How many lines of these came since; None if that is not known."""
        grown = 0
        for event in events:
            then = self.counts.get(_key(event), 0)
            if then is None or event.count is None or not 0 <= then <= event.count:
                return None
            grown += event.count - then
        return Growth(by=grown, seconds=self.seconds, look=True)

    def has_crash(self, crash: Crash) -> bool:
        return (crash.path, crash.at_s) in self.crashes

    def has_outage(self, bus_id: str, outage: Outage) -> bool:
        return outage.up_s is not None and outage.up_s <= self.outages.get(bus_id, -1.0)

    def before(self, told: Iterable[str]) -> str:
        """What a finding says of events that were there; empty without any."""
        some = "; ".join(told)
        return f"before the last look {self.ago} ago: {some}" if some else ""


def _key(event: KernelEvent) -> tuple[object, ...]:
    return event.kind, event.code, event.bus_id, event.severity, event.detail


@once
def seen_lines(evidence: Evidence) -> Seen | None:
    """What the kernel log had at the last look; None if there was none, or if the log of now does
    not hold all that came since: then the whole log is judged."""
    then = evidence.since.sections[KernelLog].data if evidence.since else None
    if evidence.since is None or then is None or gap(evidence):
        return None
    events = {_key(event): event for event in then.events or ()}
    now = evidence[KernelLog].data
    whole = then.complete is True and now is not None and now.complete is True
    return Seen(
        last={key: each.last_s for key, each in events.items() if each.last_s is not None},
        counts={key: each.count if whole else None for key, each in events.items()},
        crashes=frozenset((crash.path, crash.at_s) for crash in then.crashes or ()),
        seconds=evidence.since.seconds,
    )


@once
def seen_links(evidence: Evidence) -> Seen | None:
    """As `seen_lines`, of links that were down."""
    then = evidence.since.sections[KernelLog].data if evidence.since else None
    now = evidence[KernelLog].data
    if evidence.since is None or then is None or then.links is None or now is None:
        return None
    if _hole(now, then):
        return None
    return Seen(
        last={},
        counts={},
        crashes=frozenset(),
        seconds=evidence.since.seconds,
        outages={link.bus_id: _came_back(link) for link in then.links},
    )


def _came_back(link: NicLink) -> float:
    """When a link that was down came back last, seconds after boot; below 0 if none was."""
    return max((each.up_s for each in link.outages or () if each.up_s is not None), default=-1.0)


def gap(evidence: Evidence) -> str:
    """Why the kernel log does not have all that came since the last look; empty if it does, without
    a last look, and without a log now."""
    now = evidence[KernelLog].data
    if evidence.since is None or now is None or now.events is None:
        return ""
    then = evidence.since.sections[KernelLog]
    if then.data is None or then.data.events is None:
        return "it was not read then"
    return _hole(now, then.data)


def _hole(now: KernelLog, then: KernelLog) -> str:
    """Why a log does not go on where the one of then ends; empty if it does."""
    if now.complete is True:
        return ""
    if now.since_s is None or now.covered_s is None:
        return "it has gaps"
    if then.since_s is None or then.covered_s is None:
        return "it had gaps then"
    read = then.since_s + then.covered_s
    if not now.since_s <= read - READING < math.inf:
        return "it no longer reaches back to the last look"
    return ""


def covered(evidence: Evidence, log: KernelLog) -> tuple[str, str]:
    """As `coverage`, of what came since the last look if the log holds all of that."""
    seen = seen_lines(evidence)
    return ("", f"since the last look {seen.ago} ago") if seen else coverage(log)
