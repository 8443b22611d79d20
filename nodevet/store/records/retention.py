"""Which evidence is kept for how long. Pure."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timezone

import msgspec

DAY = 86400.0


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """What findings, places and counters are made of is thinned out; they themselves stay."""

    daily: int = 90
    """Days for which the evidence of every visit is kept."""
    weekly: int = 52
    """Weeks for which, after that, one visit of each host and week is kept."""
    monthly: int = 60
    """Months for which, after that, one visit of each host and month is kept."""


class Pruned(msgspec.Struct, frozen=True, kw_only=True):
    """What was let go."""

    thinned: int  # visits without their evidence now
    blobs: int
    freed_b: int  # of the file; of PostgreSQL: what can be used again


def thinned(visits: Iterable[tuple[int, float]], policy: Retention, now: float) -> Iterator[int]:
    """The visits of one host, as id and time, that lose their evidence: of each week or month the
    first stays. The last of all always stays."""
    listed = sorted(visits, key=lambda visit: (visit[1], visit[0]))
    kept: set[tuple[str, int, int]] = set()
    for place, (number, at) in enumerate(listed):
        age_days = (now - at) / DAY
        if age_days < policy.daily or place == len(listed) - 1:
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
        if period in kept:
            yield number
        kept.add(period)
