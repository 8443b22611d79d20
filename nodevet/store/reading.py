"""What blobs hold."""

from collections.abc import Iterable

from sqlalchemy import Connection, select

from nodevet.store import blobs
from nodevet.store import schema as t


def contents(connection: Connection, ids: Iterable[int]) -> dict[int, bytes]:
    """The contents of some blobs, by id."""
    rows = {row.id: row for row in connection.execute(select(t.blob).where(t.blob.c.id.in_(ids)))}
    bases = {row.base for row in rows.values() if row.base is not None}
    under = {
        row.id: blobs.unpacked(row.data, row.size)
        for row in connection.execute(select(t.blob).where(t.blob.c.id.in_(bases)))
    }
    return {
        number: blobs.unpacked(row.data, row.size, under.get(row.base))
        for number, row in rows.items()
    }
