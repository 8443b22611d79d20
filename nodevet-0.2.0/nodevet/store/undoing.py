"""Undo the records of a host that a run visits a second time."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import Connection, delete, select, update

from nodevet.base import typed
from nodevet.store import schema as t
from nodevet.store.rows import plain


def undo_visit(connection: Connection, run: int, name: str) -> Any:
    """Undo what this run recorded of a host, and return the old row of the visit, or None."""
    query = select(t.host.c.id, t.host.c.visit).where(t.host.c.name == plain(name))
    host = connection.execute(query).one_or_none()
    if host is None:
        return None
    visit = connection.execute(
        select(t.visit).where(
            t.visit.c.run == run,
            t.visit.c.host == host.id,
            t.visit.c.superseded.is_(False),
        )
    ).one_or_none()
    if visit is None:
        return None
    count_outcomes(connection, run, {visit.outcome: -1})
    if host.visit != visit.id:  # later visits depend on it
        connection.execute(update(t.visit).where(t.visit.c.id == visit.id).values(superseded=True))
        return visit
    for table in (t.finding_span, t.place):
        connection.execute(delete(table).where(table.c.host == host.id, table.c.first == visit.id))
        values = {"last": None, "ended": None}
        if table is t.finding_span:
            values["end"] = None
        connection.execute(
            update(table).where(table.c.host == host.id, table.c.ended == visit.id).values(**values)
        )
    connection.execute(
        delete(t.counter).where(t.counter.c.host == host.id, t.counter.c.visit == visit.id)
    )
    connection.execute(delete(t.visit).where(t.visit.c.id == visit.id))
    _settle(connection, host.id)
    return visit


def _settle(connection: Connection, host: int) -> None:
    """Update the row of a host from its visits, after one was deleted."""
    query = (
        select(t.visit.c.id, t.visit.c.boot, t.visit.c.machine_id, t.boot.c.machine_id.label("own"))
        .select_from(t.visit.outerjoin(t.boot, t.boot.c.id == t.visit.c.boot))
        .where(t.visit.c.host == host)
        .order_by(t.visit.c.id.desc())
    )
    last = connection.execute(query.limit(1)).one_or_none()
    vetted = connection.execute(query.where(t.visit.c.baseline.is_not(None)).limit(1)).one_or_none()
    machine, machine_from, boot = None, None, None
    for row in connection.execute(query.where(t.visit.c.baseline.is_not(None))):
        own = row.own or row.machine_id
        if own is None:
            continue
        if machine is not None and own != machine:
            break
        machine, machine_from, boot = own, row.id, boot or row.boot
    connection.execute(
        update(t.host)
        .where(t.host.c.id == host)
        .values(
            visit=last.id if last else None,
            vetted=vetted.id if vetted else None,
            machine=machine,
            machine_from=machine_from,
            boot=boot,
            steady=None,  # the next visit reads parts and counters again
            counted=None,
        )
    )


def count_outcomes(connection: Connection, run_id: int, more: Mapping[str, int]) -> None:
    """Update the outcomes of a run, in the transaction that changes them."""
    row = connection.execute(select(t.run.c.outcomes).where(t.run.c.id == run_id)).one()
    counts = Counter(typed.decode(row.outcomes, dict[str, int]))
    counts.update(more)
    connection.execute(
        update(t.run)
        .where(t.run.c.id == run_id)
        .values(
            outcomes=msgspec.json.encode({key: n for key, n in counts.items() if n}),
            visited=sum(counts.values()),
            touched=t.epoch(),
        )
    )
