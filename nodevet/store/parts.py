"""Queries for parts, their places, and their counters."""

from typing import Any

from sqlalchemy import Connection, Select, func, select

from nodevet.base import typed
from nodevet.store import schema as t
from nodevet.store.moments import FIRST, FIRST_AND_LAST, FIRST_RUN, LAST, LAST_RUN, instant, moment
from nodevet.store.records.model import CounterPoint, Part, PartKind, PartPlace
from nodevet.store.rows import OF_ANY_KIND, plain

LAST_CHARACTER = "\U0010ffff"
_PLACES = select(
    t.place,
    t.part.c.kind,
    t.part.c.name,
    t.part.c.model,
    t.part.c.names,
    t.host.c.name.label("host_name"),
    *FIRST_AND_LAST,
).select_from(
    t.place.join(t.part, t.part.c.id == t.place.c.part)
    .join(t.host, t.host.c.id == t.place.c.host)
    .join(FIRST, FIRST.c.id == t.place.c.first)
    .join(FIRST_RUN, FIRST_RUN.c.id == FIRST.c.run)
    .join(LAST, LAST.c.id == func.coalesce(t.place.c.last, t.host.c.vetted))
    .join(LAST_RUN, LAST_RUN.c.id == LAST.c.run)
)
_POINTS = select(
    t.counter,
    t.host.c.name.label("host_name"),
    t.part.c.name.label("part_name"),
    t.visit.c.at,
    t.run.c.name.label("run_name"),
    t.boot.c.boot_id,
).select_from(
    t.counter.join(t.host, t.host.c.id == t.counter.c.host)
    .join(t.visit, t.visit.c.id == t.counter.c.visit)
    .join(t.run, t.run.c.id == t.visit.c.run)
    .outerjoin(t.part, t.part.c.id == t.counter.c.part)
    .outerjoin(t.boot, t.boot.c.id == t.visit.c.boot)
)


def find_parts(connection: Connection, text: str) -> list[Part]:
    """See Store.parts."""
    name = plain(text).lower()
    if not name:
        return _parts(connection, select(t.part))
    return _parts(connection, parts_named(name)) or _parts(connection, parts_starting_with(name))


def parts_named(name: str) -> Select[Any]:
    """The parts with this name, which is in lower case."""
    return select(t.part).where(
        t.part.c.id.in_(select(t.part_name.c.part).where(t.part_name.c.name == name))
    )


def parts_starting_with(start: str) -> Select[Any]:
    """The parts whose id begins so; `start` is in lower case."""
    n = t.part_name.c
    ids = select(n.part).where(n.name >= start, n.name < start + LAST_CHARACTER, n.is_id.is_(True))
    return select(t.part).where(t.part.c.id.in_(ids))


def ids_of(part: str) -> Select[Any]:
    """The numbers of the parts with this id."""
    return select(t.part.c.id).where(OF_ANY_KIND, t.part.c.name == plain(part))


def _parts(connection: Connection, query: Select[Any]) -> list[Part]:
    return [part_of(row) for row in connection.execute(query.order_by(t.part.c.id))]


def places(connection: Connection, *, part: str | None, host: str | None) -> list[PartPlace]:
    """See Store.places."""
    query = _PLACES.order_by(t.place.c.first, t.place.c.id)
    if part is not None:
        query = query.where(t.place.c.part.in_(ids_of(part)))
    if host is not None:
        query = query.where(t.host.c.name == plain(host))
    return [place_of(row) for row in connection.execute(query)]


def points(
    *,
    host: str | None = None,
    part: str | None = None,
    after: str | None = None,
) -> Select[Any]:
    """See Store.points."""
    query = _POINTS
    if host is not None:
        query = query.where(t.host.c.name == plain(host))
    if part is not None:
        query = query.where(t.counter.c.part.in_(ids_of(part)))
    if after is not None:
        query = query.where(t.visit.c.at >= instant(after))
    return query


def part_of(row: Any) -> Part:
    return Part(
        kind=PartKind(row.kind),
        id=row.name,
        model=row.model,
        names=typed.decode(row.names, tuple[str, ...]),
    )


def place_of(row: Any) -> PartPlace:
    return PartPlace(
        part=part_of(row),
        host=row.host_name,
        slot=row.slot,
        first=moment(row.first_at, row.first_run),
        last=moment(row.last_at, row.last_run),
        open=row.ended is None,
    )


def point_of(row: Any) -> CounterPoint:
    return CounterPoint(
        host=row.host_name,
        part=row.part_name or "",
        name=row.name,
        subject=row.subject,
        value=row.value % (1 << 64),
        moment=moment(row.at, row.run_name),
        boot_id=row.boot_id,
    )
