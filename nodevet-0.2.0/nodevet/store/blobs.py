"""Blobs: compressed pieces of content, each stored once, with an earlier piece as dictionary."""

import hashlib
from collections.abc import Iterable

from sqlalchemy import Connection, insert, select

from nodevet.base import zstd
from nodevet.store import schema as t
from nodevet.store.errors import StoreError
from nodevet.store.rows import next_id

LEVEL = 3
DELTA_LEVEL = 1  # with a dictionary it compresses as well as level 5, and faster
LARGEST = 512 << 20  # bytes of one piece unpacked

SHORTEST = 8  # bytes of a dictionary: zstd ignores a shorter one


def sha_of(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def pack(content: bytes, base: bytes | None = None) -> bytes:
    """Compressed content; with a similar base, little more than the differences."""
    options: dict[int, int] = {
        zstd.CompressionParameter.compression_level: LEVEL if base is None else DELTA_LEVEL,
        zstd.CompressionParameter.checksum_flag: 1,
        zstd.CompressionParameter.dict_id_flag: 0,
    }
    return zstd.compress(content, options=options, zstd_dict=_prefix(base))


def unpack(data: bytes, size: int, base: bytes | None = None) -> bytes:
    """The content of a blob. Raises StoreError if it is damaged."""
    if size > LARGEST:
        raise StoreError(f"the store is damaged: it holds a piece of {size >> 20} MiB")
    try:
        unpacker = zstd.ZstdDecompressor(zstd_dict=_prefix(base))
        content: bytes = unpacker.decompress(data, max_length=max(size, 0) + 1)
    except zstd.ZstdError as error:
        raise StoreError(f"the store is damaged: a piece does not unpack: {error}") from error
    if len(content) != size or not unpacker.eof:
        raise StoreError("the store is damaged: a piece has another length than recorded")
    return content


def _prefix(base: bytes | None) -> tuple[zstd.ZstdDict, int] | None:
    if base is None or len(base) < SHORTEST:
        return None
    prefix: tuple[zstd.ZstdDict, int] = zstd.ZstdDict(base, is_raw=True).as_prefix
    return prefix


def contents(connection: Connection, ids: Iterable[int]) -> dict[int, bytes]:
    """The contents of some blobs, by id."""
    rows = {row.id: row for row in connection.execute(select(t.blob).where(t.blob.c.id.in_(ids)))}
    bases = {row.base for row in rows.values() if row.base is not None}
    base_contents = {
        row.id: unpack(row.data, row.size)
        for row in connection.execute(select(t.blob).where(t.blob.c.id.in_(bases)))
    }
    return {
        number: unpack(row.data, row.size, base_contents.get(row.base))
        for number, row in rows.items()
    }


def content(connection: Connection, number: int) -> bytes:
    """The content of one blob."""
    return contents(connection, [number])[number]


def keep(connection: Connection, content: bytes) -> int:
    """The id of a blob of this content."""
    sha = sha_of(content)
    blob = connection.execute(select(t.blob.c.id).where(t.blob.c.sha256 == sha)).scalar()
    if blob is None:
        blob = next_id(connection, t.blob)
        values = {"sha256": sha, "size": len(content), "data": pack(content)}
        connection.execute(insert(t.blob).values(id=blob, **values))
    return int(blob)
