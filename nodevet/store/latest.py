"""Queries for all hosts and parts as they are now: a row for each, and no history."""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import Column, Connection, Select, func, select

from nodevet.base import age
from nodevet.model import HostOutcome
from nodevet.store import schema as t
from nodevet.store.records.latest import HostNow, PartNow
from nodevet.store.visits import groups_of

CHUNK = 500  # parts in one query
_VETTED = t.visit.alias("vetted_visit")
_HOSTS = select(
    *t.host.c["id", "name", "machine", "boot", "steady"],
    *t.visit.c["outcome", "why", "at"],
    t.run.c.name.label("run_name"),
    t.grouping.c.names.label("group_names"),
    _VETTED.c.baseline,
).select_from(
    t.host.join(t.visit, t.visit.c.id == t.host.c.visit)
    .join(t.run, t.run.c.id == t.visit.c.run)
    .outerjoin(t.grouping, t.grouping.c.id == t.visit.c.grouping)
    .outerjoin(_VETTED, _VETTED.c.id == t.host.c.vetted)
)
_ELSEWHERE = t.place.alias("elsewhere")
_FIXED = t.fix_host.join(t.fix_run, t.fix_run.c.id == t.fix_host.c.run)


def _changes(host: "Column[Any]", *columns: "Column[Any]") -> "Select[Any]":
    """By host, the number of rows of a table, and sums that change if a row comes, goes or ends."""
    return select(host, func.count(), *map(func.sum, columns)).group_by(host)


_CHANGES = (
    _changes(t.finding_span.c.host, *t.finding_span.c["id", "first", "ended"]),
    _changes(t.place.c.host, *t.place.c["id", "first", "ended"]),
    _changes(t.fix_host.c.host, t.fix_host.c.id, t.fix_run.c.seconds).select_from(_FIXED),
    *(_changes(table.c.host, table.c.id) for table in (t.action, t.proof, t.planned, t.incident)),
    _changes(t.place.c.host, _ELSEWHERE.c.id, _ELSEWHERE.c.ended)  # where parts went that left
    .select_from(t.place.join(_ELSEWHERE, _ELSEWHERE.c.part == t.place.c.part))
    .where(t.place.c.ended.is_not(None)),
)


def hosts_now(connection: Connection) -> list[HostNow]:
    """See Store.hosts_now."""
    changes: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for number, query in enumerate(_CHANGES):
        for host, *values in connection.execute(query):
            changes[host].append((number, *map(str, values)))
    return [
        HostNow(
            host=row.name,
            run=row.run_name,
            outcome=HostOutcome(row.outcome),
            why=row.why or "",
            at=age.instant(row.at),
            groups=groups_of(row.group_names),
            mark=_mark(
                row.machine,
                row.boot,
                row.steady,
                row.outcome,
                row.why,
                row.baseline,
                row.group_names,
                changes[row.id],
            ),
        )
        for row in connection.execute(_HOSTS.order_by(t.host.c.name))
    ]


def _mark(*values: Any) -> str:
    return hashlib.sha256(repr(values).encode()).hexdigest()[:16]


def outcomes(
    connection: Connection, runs: Collection[str]
) -> Mapping[str, Mapping[str, HostOutcome]]:
    """See Store.outcomes."""
    query = (
        select(t.host.c.name, t.run.c.name.label("run"), t.visit.c.outcome)
        .select_from(
            t.visit.join(t.run, t.run.c.id == t.visit.c.run).join(
                t.host, t.host.c.id == t.visit.c.host
            )
        )
        .where(t.run.c.name.in_(runs), t.visit.c.superseded.is_(False))
    )
    by_host: dict[str, dict[str, HostOutcome]] = defaultdict(dict)
    for host, run, outcome in connection.execute(query):
        by_host[host][run] = HostOutcome(outcome)
    return by_host


def parts_now(connection: Connection) -> list[PartNow]:
    """See Store.parts_now."""
    place = t.place.c
    host_of = _pairs(connection, select(place.part, place.host).order_by(place.id))  # the last
    names = _pairs(connection, select(t.host.c.id, t.host.c.name))
    ids = _pairs(connection, select(t.part.c.id, t.part.c.name))
    rows = connection.execute(select(t.part_name.c.name, t.part_name.c.part))
    return sorted(
        PartNow(name=row.name, id=ids[row.part], host=names[host_of[row.part]])
        for row in rows
        if row.part in host_of
    )


def _pairs(connection: Connection, query: "Select[Any]") -> dict[Any, Any]:
    """The second column by the first one; of several rows the last."""
    return {row[0]: row[1] for row in connection.execute(query)}


def last_counter_changes(connection: Connection, parts: Collection[str]) -> dict[str, int]:
    """See Store.last_counter_changes."""
    ids = sorted(parts)
    last: dict[str, int] = {}
    for offset in range(0, len(ids), CHUNK):
        query = (
            select(t.part.c.name, func.max(t.counter.c.id).label("last"))
            .join(t.counter, t.counter.c.part == t.part.c.id)
            .where(t.part.c.name.in_(ids[offset : offset + CHUNK]))
            .group_by(t.part.c.name)
        )
        rows = connection.execute(query)
        last |= {row.name: row.last for row in rows}
    return last
