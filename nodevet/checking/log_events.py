"""Texts about lines of the kernel log: how many, about what, and when the last one was logged."""

from collections import Counter
from collections.abc import Iterable, Sequence

from nodevet.evidence.host import at_uptime
from nodevet.evidence.kernel_log import KernelEvent, line_of
from nodevet.model import NODE, Subject

MOST_NAMED = 5
OTHERS = "others"  # the probe's name for events beyond 64 of a kind: nodevet.remote.probe


def total(events: Iterable[KernelEvent]) -> int | None:
    """The number of lines; None if a count was not read."""
    counts = [event.count for event in events]
    return sum(count or 0 for count in counts) if None not in counts else None


def names_text(events: Iterable[KernelEvent], most: int | None = MOST_NAMED) -> str:
    """The processes, devices or units that the events name, the most frequent first. `most`: how
    many of them; None: all.

    >>> names_text([KernelEvent(kind="oom", detail="python", count=2)])
    'python ×2'
    """
    counts: Counter[str] = Counter()
    for event in events:
        if event.detail:
            counts[event.detail] += event.count or 1
    listed = [f"{name} ×{count}" for name, count in counts.most_common(most)]
    more = len(counts) - len(listed)
    return ", ".join([*listed, *([f"and {more} more"] if more else [])])


def in_brackets(events: Iterable[KernelEvent]) -> str:
    """Everything that the events name, as ` (python ×2)`; empty if they name nothing. This text is
    part of the value, so that a waiver covers these names and no others."""
    parts = names_text(events, most=None)
    return f" ({parts})" if parts else ""


def by_address(events: Iterable[KernelEvent]) -> dict[str, list[KernelEvent]]:
    """The events of each PCI address; events without an address under an empty one."""
    by_bus_id: dict[str, list[KernelEvent]] = {}
    for event in events:
        by_bus_id.setdefault(event.bus_id or "", []).append(event)
    return by_bus_id


def latest(events: Iterable[KernelEvent]) -> float | None:
    """When the last event was logged, in seconds after boot; None if that is not known."""
    moments = [event.last_s for event in events if event.last_s is not None]
    return max((moment for moment in moments if 0 <= moment < 1e10), default=None)


def last_of(events: Iterable[KernelEvent], booted: float | None) -> str:
    """When the last event was logged, in ISO 8601; empty if that is not known."""
    seconds = latest(events)
    return "" if seconds is None else at_uptime(booted, seconds)


def line_detail(events: Sequence[KernelEvent]) -> dict[str, str]:
    """The first line, as a detail of a finding."""
    line = line_of(events)
    return {"kernel log": line} if line else {}


def server_subject(name: str) -> Subject:
    return Subject(kind="server", id=name) if name else NODE


def silent_servers(events: Iterable[KernelEvent]) -> dict[str, KernelEvent]:
    """The NFS servers that have not answered since the kernel logged that they do not respond. If
    servers share one event, it is not known which of them answered."""
    silent = {event.detail or "": event for event in events if event.kind == "nfs_silent"}
    answered = {
        event.detail: event.last_s
        for event in events
        if event.kind == "nfs_answers" and event.last_s is not None and event.detail != OTHERS
    }
    return {
        server: event
        for server, event in sorted(silent.items())
        if event.last_s is None or answered.get(server, -1.0) <= event.last_s
    }
