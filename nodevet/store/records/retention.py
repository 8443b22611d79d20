"""How long evidence is kept. Pure."""

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timezone

import msgspec

DAY = 86400.0


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long to keep evidence. Findings, places and counters are always kept."""

    daily: int = 90
    """Days for which the evidence of every visit is kept."""
    weekly: int = 52
    """Weeks for which, after that, one visit of each host and week is kept."""
    monthly: int = 60
    """Months for which, after that, one visit of each host and month is kept."""


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """What `prune` deleted."""

    thinned: int  # visits that lost their evidence
    blobs: int
    freed_b: int  # bytes of the file; in PostgreSQL bytes that can be used again


def visits_to_thin(
    visits: Iterable[tuple[int, float]], policy: Retention, now: float, kept: Collection[int] = ()
) -> Iterator[int]:
    """The ids of the visits that lose their evidence. `visits`: those of one host, as id and
    time. The first visit of each week or month stays, the last of all, and those in `kept`."""
    ordered = sorted(visits, key=lambda visit: (visit[1], visit[0]))
    periods: set[tuple[str, int, int]] = set()
    for index, (number, at) in enumerate(ordered):
        age_days = (now - at) / DAY
        if age_days < policy.daily or index == len(ordered) - 1 or number in kept:
            continue
        day = datetime.fromtimestamp(at, timezone.utc)
        year, week, _ = day.isocalendar()
        if age_days < policy.daily + 7 * policy.weekly:
            period = ("week", year, week)
        elif age_days < policy.daily + 7 * policy.weekly + 30 * policy.monthly:
            period = ("month", day.year, day.month)
        else:
            yield number
            continue
        if period in periods:
            yield number
        periods.add(period)
