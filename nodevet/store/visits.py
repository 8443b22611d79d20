"""Queries for visits, by run and by host."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Select, func, select

from nodevet.base import age, typed
from nodevet.model import HostOutcome, Status
from nodevet.store import schema as t
from nodevet.store.moments import instant
from nodevet.store.records.model import RecordedVisit
from nodevet.store.rows import plain

CHUNK = 500  # hosts in one query

_VISITS = select(
    t.visit,
    t.run.c.name.label("run_name"),
    t.host.c.name.label("host_name"),
    t.baseline.c.name.label("baseline_name"),
    t.grouping.c.names.label("group_names"),
    t.boot.c.machine_id.label("boot_machine"),
    t.boot.c.boot_id,
).select_from(
    t.visit.join(t.run, t.run.c.id == t.visit.c.run)
    .join(t.host, t.host.c.id == t.visit.c.host)
    .outerjoin(t.baseline, t.baseline.c.id == t.visit.c.baseline)
    .outerjoin(t.grouping, t.grouping.c.id == t.visit.c.grouping)
    .outerjoin(t.boot, t.boot.c.id == t.visit.c.boot)
)


def select_visits(
    *,
    run: str | None = None,
    runs: Iterable[str] | None = None,
    host: str | None = None,
    hosts: Iterable[str] | None = None,
    after: str | None = None,
) -> Select[Any]:
    """The visits of a run (its id) or of several, of a host or of several; `after` is inclusive."""
    query = _VISITS.where(t.visit.c.superseded.is_(False))
    if run is not None:
        query = query.where(t.run.c.name == run)
    if runs is not None:
        query = query.where(t.run.c.name.in_(runs))
    if host is not None:
        query = query.where(t.host.c.name == plain(host))
    if hosts is not None:
        query = query.where(t.host.c.name.in_([plain(name) for name in hosts]))
    if after is not None:
        query = query.where(t.visit.c.at >= instant(after))
    return query


def newest_first(query: Select[Any], limit: int | None) -> Select[Any]:
    return query.order_by(t.visit.c.id.desc()).limit(limit)


def last_with_evidence(
    host: str, *, before_run: int | None, series: str | None, reported: bool
) -> Select[Any]:
    """See Store.last_evidence. The first try of a run counts if the second try read nothing."""
    query = _VISITS.where(t.host.c.name == plain(host), t.visit.c.volatile.is_not(None))
    if before_run is not None:
        query = query.where(t.run.c.id < before_run)
    if series is not None:
        query = query.where(t.run.c.series == plain(series))
    if reported:
        query = query.where(t.run.c.exit_code.is_not(None))
    return newest_first(query, 1)


def statuses(connection: Connection, run: int) -> dict[str, Status]:
    """The statuses of the recorded hosts of a run."""
    rows = connection.execute(
        select(t.host.c.name, t.visit.c.status)
        .join(t.visit, t.visit.c.host == t.host.c.id)
        .where(t.visit.c.run == run, t.visit.c.superseded.is_(False))
    )
    return {row.name: Status(row.status) for row in rows}


def visited_hosts(
    connection: Connection, runs: Iterable[str]
) -> dict[str, tuple[int, tuple[str, ...]]]:
    """See Store.visited_hosts."""
    v = t.visit.c
    query = (
        select(t.host.c.name, t.grouping.c.names, func.count(), func.max(v.id).label("last"))
        .select_from(
            t.visit.join(t.run, t.run.c.id == v.run)
            .join(t.host, t.host.c.id == v.host)
            .outerjoin(t.grouping, t.grouping.c.id == v.grouping)
        )
        .where(
            t.run.c.name.in_(runs),
            v.superseded.is_(False),
            v.status != Status.INTERRUPTED.value,
        )
        .group_by(t.host.c.name, t.grouping.c.names)
        .order_by("last")
    )
    hosts: dict[str, tuple[int, tuple[str, ...]]] = {}
    for name, groups, count, _ in connection.execute(query):
        earlier, _ = hosts.get(name, (0, ()))
        hosts[name] = (earlier + count, groups_of(groups))
    return hosts


def groups_of(names: str | None) -> tuple[str, ...]:
    return typed.decode(names, tuple[str, ...]) if names else ()


def reported_visits(
    connection: Connection, hosts: Iterable[str], series: str | None
) -> dict[str, int]:
    """See Store.reported_visits."""
    last = (
        select(func.max(t.visit.c.id).label("id"), t.host.c.name.label("host"))
        .select_from(
            t.visit.join(t.run, t.run.c.id == t.visit.c.run).join(
                t.host, t.host.c.id == t.visit.c.host
            )
        )
        .where(
            t.run.c.exit_code.is_not(None),
            t.visit.c.superseded.is_(False),
            t.visit.c.status != Status.INTERRUPTED.value,
        )
        .group_by(t.host.c.name)
    )
    if series is not None:
        last = last.where(t.run.c.series == plain(series))
    names = {plain(host): host for host in hosts}
    host_names = list(names)
    visits: dict[str, int] = {}
    for offset in range(0, len(host_names), CHUNK):
        query = last.where(t.host.c.name.in_(host_names[offset : offset + CHUNK]))
        visits |= {names[row.host]: row.id for row in connection.execute(query)}
    return visits


def visit_of(row: Any) -> RecordedVisit:
    return RecordedVisit(
        run=row.run_name,
        host=row.host_name,
        status=Status(row.status),
        why=row.why or "",
        outcome=HostOutcome(row.outcome),
        seconds=row.seconds,
        arrived=age.instant(row.at) if row.arrived else "",
        machine_id=row.boot_machine or row.machine_id,
        boot_id=row.boot_id,
        baseline=row.baseline_name or "",
        groups=groups_of(row.group_names),
        evidence=row.volatile is not None,
        thinned=row.thinned,
    )
