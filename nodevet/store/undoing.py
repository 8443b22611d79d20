"""Taking back what a run recorded of a host that it visits a second time."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import Connection, delete, select, update

from nodevet.base import typed
from nodevet.store import schema as t
from nodevet.store.text import plain


def undone(connection: Connection, run: int, name: str) -> Any:
    """Take back what this run recorded of a host; what it was is given back."""
    asked = select(t.host.c.id, t.host.c.visit).where(t.host.c.name == plain(name))
    host = connection.execute(asked).one_or_none()
    if host is None:
        return None
    mine = connection.execute(
        select(t.visit).where(
            t.visit.c.run == run,
            t.visit.c.host == host.id,
            t.visit.c.superseded.is_(False),
        )
    ).one_or_none()
    if mine is None:
        return None
    count(connection, run, {mine.outcome: -1})
    if host.visit != mine.id:  # another run has built on it since
        connection.execute(update(t.visit).where(t.visit.c.id == mine.id).values(superseded=True))
        return mine
    for table in (t.finding_span, t.place):
        connection.execute(delete(table).where(table.c.host == host.id, table.c.first == mine.id))
        values = {"last": None, "ended": None}
        if table is t.finding_span:
            values["end"] = None
        connection.execute(
            update(table).where(table.c.host == host.id, table.c.ended == mine.id).values(**values)
        )
    connection.execute(
        delete(t.counter).where(t.counter.c.host == host.id, t.counter.c.visit == mine.id)
    )
    connection.execute(delete(t.visit).where(t.visit.c.id == mine.id))
    _settle(connection, host.id)
    return mine


def _settle(connection: Connection, host: int) -> None:
    """What a host's row says by its visits, after one of them went."""
    listed = (
        select(t.visit.c.id, t.visit.c.boot, t.visit.c.machine_id, t.boot.c.machine_id.label("own"))
        .select_from(t.visit.outerjoin(t.boot, t.boot.c.id == t.visit.c.boot))
        .where(t.visit.c.host == host)
        .order_by(t.visit.c.id.desc())
    )
    last = connection.execute(listed.limit(1)).one_or_none()
    vetted = connection.execute(
        listed.where(t.visit.c.baseline.is_not(None)).limit(1)
    ).one_or_none()
    machine, begun, boot = None, None, None
    for row in connection.execute(listed.where(t.visit.c.baseline.is_not(None))):
        own = row.own or row.machine_id
        if own is None:
            continue
        if machine is not None and own != machine:
            break
        machine, begun, boot = own, row.id, boot or row.boot
    connection.execute(
        update(t.host)
        .where(t.host.c.id == host)
        .values(
            visit=last.id if last else None,
            vetted=vetted.id if vetted else None,
            machine=machine,
            machine_from=begun,
            boot=boot,
            steady=None,  # so that what the next visit says of parts and counters is looked at
            counted=None,
        )
    )


def count(connection: Connection, run_id: int, more: Mapping[str, int]) -> None:
    """Keep the run's numbers, in the transaction that changes them."""
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
