"""The first and the last visit of rows, with their runs, and moments."""

import re

from sqlalchemy import case, func, select

from nodevet.base import age
from nodevet.model import Status
from nodevet.store import schema as t
from nodevet.store.errors import StoreError
from nodevet.store.records.model import Moment

DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
FIRST = t.visit.alias("first_visit")
FIRST_RUN = t.run.alias("first_run")
LAST = t.visit.alias("last_visit")
LAST_RUN = t.run.alias("last_run")
FIRST_AND_LAST = (
    FIRST.c.at.label("first_at"),
    FIRST_RUN.c.name.label("first_run"),
    LAST.c.at.label("last_at"),
    LAST_RUN.c.name.label("last_run"),
)
_SEEN = t.visit.alias("seen_visit")
_JUDGED = (
    select(func.max(_SEEN.c.id))
    .where(_SEEN.c.host == t.finding_span.c.host, _SEEN.c.baseline == t.finding_span.c.baseline)
    .correlate(t.finding_span)
    .scalar_subquery()
)
_UNVETTED = (
    select(func.max(_SEEN.c.id))
    .where(
        _SEEN.c.host == t.finding_span.c.host,
        _SEEN.c.baseline.is_(None),
        _SEEN.c.status != Status.INTERRUPTED.value,
    )
    .correlate(t.finding_span)
    .scalar_subquery()
)
LAST_SEEN = case((t.finding_span.c.check != "", _JUDGED), else_=_UNVETTED)
"""The last visit that could see an open span."""


def moment(at: float, run: str) -> Moment:
    return Moment(at=age.instant(at), run=run)


def instant(text: str) -> float:
    """Seconds since 1970 of an ISO 8601 instant, or of a day in UTC. Raises StoreError."""
    if DAY.fullmatch(text):
        text = f"{text}T00:00:00+00:00"
    seconds = age.seconds_of(text)
    if seconds is None:
        raise StoreError(f"invalid time {text!r} (examples: 2026-11-20, 2026-11-20T04:00:00+00:00)")
    return seconds
