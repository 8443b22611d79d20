"""Xids and SXids in a kernel log: their numbers, their times, and their texts in findings."""

from collections.abc import Iterable, Mapping, Sequence

from nodevet.checking.log_events import last_of, latest
from nodevet.checking.recovery import BY_NUMBER, Remedy
from nodevet.checking.xids import (
    NAMES,
    NVLINK5,
    OFF_BUS,
    RECOVERY,
    follows,
    follows_soon,
    link_error,
    remedy_of,
)
from nodevet.evidence.kernel_log import KernelEvent, line_of, span

CASCADE_S = 600.0  # the consequences of an Xid come within this time
EARLIER_S = 5.0  # lines of one fault are not always in order

Xids = Mapping[int, Sequence[KernelEvent]]
"""The events of each number."""


def code_of(event: KernelEvent) -> int | None:
    """The number of an Xid; None if it could not be read."""
    return OFF_BUS if event.kind == "off_bus" else event.code


def by_code(events: Iterable[KernelEvent]) -> dict[int, list[KernelEvent]]:
    by_number: dict[int, list[KernelEvent]] = {}
    for event in events:
        if (code := code_of(event)) is not None:
            by_number.setdefault(code, []).append(event)
    return by_number


# --- what the driver recommends in an Xid 154


def recommended_remedy(event: KernelEvent) -> Remedy | None:
    """The remedy that the driver recommends; None if it cannot be read."""
    digits = (event.detail or "").partition(" ")[0]
    try:
        number = int(digits, 16) if digits.startswith("0x") else None
    except ValueError:
        return None
    return None if number is None else BY_NUMBER.get(number, Remedy.SUPPORT)


def is_recovered(event: KernelEvent) -> bool:
    """Whether the driver says that no recovery is needed."""
    return code_of(event) == RECOVERY and recommended_remedy(event) is Remedy.NOTHING


def recovered_s(events: Iterable[KernelEvent]) -> float | None:
    """When the driver last said that no recovery is needed, in seconds after boot; None if it asked
    for one later."""
    own = [event for event in events if event.code == RECOVERY and event.kind == "xid"]
    recovered = latest_of(*(event.last_s for event in own if is_recovered(event)))
    unrecovered = [event for event in own if not is_recovered(event)]
    if recovered is None or any(
        event.last_s is None or event.last_s >= recovered for event in unrecovered
    ):
        return None
    return recovered


def latest_of(*moments: float | None) -> float | None:
    return max((moment for moment in moments if moment is not None), default=None)


# --- which Xid causes the others


def first_causes(xids: Xids, architecture: str) -> list[int]:
    """The Xids that no other one explains. An Xid explains another one if it came first and needs
    at least as strong a remedy."""
    known = [code for code in xids if code in NAMES]
    first = {code: first_s(xids[code]) for code in known}
    rank = {code: remedy_of(code, architecture).rank for code in known}

    def explains(root: int, code: int) -> bool:
        return (
            follows(code, root)
            and (rank[root] <= rank[code] or code == RECOVERY)
            and first[root] - EARLIER_S <= first[code]
            and (not follows_soon(code, root) or is_soon(first[code], xids[root]))
            and not (follows(root, code) and (first[code], code) < (first[root], root))
        )

    explained = {code for code in known if any(explains(root, code) for root in known)}
    return sorted(xids.keys() - explained) or sorted(xids)


def is_soon(moment: float, events: Iterable[KernelEvent]) -> bool:
    """Whether `moment` is within CASCADE_S after one of these events; true if their times are not
    known."""
    times = [at for event in events for at in (event.first_s, event.last_s)]
    known = [at for at in times if at is not None]
    return not known or any(at - EARLIER_S <= moment <= at + CASCADE_S for at in known)


def first_s(events: Iterable[KernelEvent]) -> float:
    return min((event.first_s for event in events if event.first_s is not None), default=0.0)


def advice(xids: Xids, architecture: str) -> str:
    """The advice for the worst of these; for an Xid 154, the driver's own recommendation counts."""
    remedies: list[Remedy] = []
    for code, events in xids.items():
        own = {recommended_remedy(event) for event in events} if code == RECOVERY else set()
        remedies += [choice for choice in own if choice] or [remedy_of(code, architecture)]
    return min(remedies, key=lambda remedy: remedy.rank).value


# --- in words


def describe(
    events: Sequence[KernelEvent], booted: float | None, names: Mapping[int, str] = NAMES
) -> str:
    """The events in words: `79 GPU_HAS_FALLEN_OFF_THE_BUS ×2; 13 ...`; with times after boot if
    `booted`, the time of the boot, is not known."""
    parts = []
    for code, same in sorted(by_code(filter(code_of, events)).items()):
        name = names.get(code, "unknown to nodevet" if names else "")
        words = times(same) + last_text(same, booted) + details_of(code, same)
        parts.append(f"{code} {name}".rstrip() + words)
    if unread := [event for event in events if not code_of(event)]:
        text = line_of(unread)
        words = times(unread) + last_text(unread, booted) + (f": {text}" if text else "")
        parts.append(f"a line whose number cannot be read{words}")
    return "; ".join(parts)


def details_of(code: int, same: Sequence[KernelEvent]) -> str:
    """More from the lines of an Xid: the units of a link, the driver's recommendation."""
    words: list[str] = []
    if code in NVLINK5:
        words = [link_error(event.severity, event.detail).words for event in same]
    elif code == RECOVERY:
        words = [(event.detail or "").partition(" ")[2] for event in same]
    text = ", ".join(dict.fromkeys(filter(None, words)))
    return f" ({text})" if text else ""


def times(same: Sequence[KernelEvent]) -> str:
    """How often, as ` ×2`. A lost GPU has an Xid and further lines, which do not count as further
    losses."""
    counted = [event for event in same if event.kind != "off_bus"]
    if not counted:
        return " ×1"
    counts = [event.count for event in counted if event.count is not None]
    return f" ×{sum(counts)}" if counts else ""


def last_text(same: Sequence[KernelEvent], booted: float | None) -> str:
    seconds = latest(same)
    return "" if seconds is None or booted is not None else f", last {span(seconds)} after boot"


def last_times(events: Sequence[KernelEvent], booted: float | None) -> dict[str, str]:
    """When each number was logged last, if there are several."""
    xids = by_code(events)
    last = {f"Xid {code}": last_of(xids[code], booted) for code in sorted(xids)}
    return {name: f"last {at}" for name, at in last.items() if at and len(xids) > 1}
