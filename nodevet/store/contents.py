"""What blobs hold."""

from collections.abc import Iterable

from sqlalchemy import Connection, insert, select

from nodevet.store import blobs
from nodevet.store import schema as t
from nodevet.store.ids import next_id


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


def content(connection: Connection, number: int) -> bytes:
    """The content of one blob."""
    return contents(connection, [number])[number]


def keep(connection: Connection, content: bytes) -> int:
    """The id of a blob of this content."""
    sha = blobs.sha_of(content)
    found = connection.execute(select(t.blob.c.id).where(t.blob.c.sha256 == sha)).scalar()
    if found is None:
        found = next_id(connection, t.blob)
        values = {"sha256": sha, "size": len(content), "data": blobs.packed(content)}
        connection.execute(insert(t.blob).values(id=found, **values))
    return int(found)
