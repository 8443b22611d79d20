"""Ids of rows: whoever writes holds the writers' lock, so the next one is free."""

from sqlalchemy import Connection, Table, func, insert, select

from nodevet.store import schema as t
from nodevet.store.text import plain


def next_id(connection: Connection, table: Table) -> int:
    return int(connection.execute(select(func.max(table.c.id))).scalar() or 0) + 1


def host_id(connection: Connection, name: str) -> int:
    """The id of a host; of one that was never visited, a new one."""
    asked = select(t.host.c.id).where(t.host.c.name == plain(name))
    found = connection.execute(asked).scalar()
    if found is None:
        found = next_id(connection, t.host)
        connection.execute(insert(t.host).values(id=found, name=plain(name)))
    return int(found)
