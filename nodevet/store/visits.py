"""Visits: the hosts of a run, the runs of a host, and who was reported when."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Select, func, select

from nodevet.base import age, typed
from nodevet.model import HostOutcome, Status
from nodevet.store import schema as t
from nodevet.store.moments import instant
from nodevet.store.records.model import RecordedVisit
from nodevet.store.text import plain

CHUNK = 500  # hosts that are asked for together

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


def asked(
    *,
    run: str | None = None,
    host: str | None = None,
    hosts: Iterable[str] | None = None,
    after: str | None = None,
) -> Select[Any]:
    """The visits of a run, by its id; of a host, or of some; `after` is included."""
    found = _VISITS.where(t.visit.c.superseded.is_(False))
    if run is not None:
        found = found.where(t.run.c.name == run)
    if host is not None:
        found = found.where(t.host.c.name == plain(host))
    if hosts is not None:
        found = found.where(t.host.c.name.in_([plain(each) for each in hosts]))
    if after is not None:
        found = found.where(t.visit.c.at >= instant(after))
    return found


def newest_first(found: Select[Any], limit: int | None) -> Select[Any]:
    return found.order_by(t.visit.c.id.desc()).limit(limit)


def last_with_evidence(
    host: str, *, before_run: int | None, series: str | None, reported: bool
) -> Select[Any]:
    """See Store.last_evidence. What a first try of a run read counts if a second one read
    nothing."""
    found = _VISITS.where(t.host.c.name == plain(host), t.visit.c.volatile.is_not(None))
    if before_run is not None:
        found = found.where(t.run.c.id < before_run)
    if series is not None:
        found = found.where(t.run.c.series == plain(series))
    if reported:
        found = found.where(t.run.c.exit_code.is_not(None))
    return newest_first(found, 1)


def done(connection: Connection, run: int) -> dict[str, Status]:
    """How the hosts of a run came out that are recorded."""
    rows = connection.execute(
        select(t.host.c.name, t.visit.c.status)
        .join(t.visit, t.visit.c.host == t.host.c.id)
        .where(t.visit.c.run == run, t.visit.c.superseded.is_(False))
    )
    return {row.name: Status(row.status) for row in rows}


def reported(connection: Connection, hosts: Iterable[str], series: str | None) -> dict[str, int]:
    """See Store.reported."""
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
    listed = list(names)
    found: dict[str, int] = {}
    for begin in range(0, len(listed), CHUNK):
        some = last.where(t.host.c.name.in_(listed[begin : begin + CHUNK]))
        found |= {names[row.host]: row.id for row in connection.execute(some)}
    return found


def visit_of(row: Any) -> RecordedVisit:
    groups = typed.decode(row.group_names, tuple[str, ...]) if row.group_names else ()
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
        groups=groups,
        evidence=row.volatile is not None,
        thinned=row.thinned,
    )
