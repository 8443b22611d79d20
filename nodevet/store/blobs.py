"""Blobs: compressed pieces of content, each stored once, with an earlier piece as dictionary."""

import hashlib
from collections.abc import Iterable

import zstandard
from sqlalchemy import Connection, insert, select

from nodevet.store import schema as t
from nodevet.store.errors import StoreError
from nodevet.store.rows import next_id

LEVEL = 3
DELTA_LEVEL = 1  # with a dictionary it compresses as well as level 5, and faster
LARGEST = 512 << 20  # bytes of one piece unpacked

_PLAIN = zstandard.ZstdCompressor(
    level=LEVEL, write_checksum=True, write_content_size=True, write_dict_id=False
)


def sha_of(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def pack(content: bytes, base: bytes | None = None) -> bytes:
    """Compressed content; with a similar base, little more than the differences."""
    if base is None:
        return _PLAIN.compress(content)
    dictionary = zstandard.ZstdCompressionDict(base, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    parameters = zstandard.ZstdCompressionParameters.from_level(
        DELTA_LEVEL,
        source_size=len(content),
        dict_size=len(base),
        write_checksum=True,
        write_content_size=True,
        write_dict_id=False,
    )
    return zstandard.ZstdCompressor(dict_data=dictionary, compression_params=parameters).compress(
        content
    )


def unpack(data: bytes, size: int, base: bytes | None = None) -> bytes:
    """The content of a blob. Raises StoreError if it is damaged."""
    if size > LARGEST:
        raise StoreError(f"the store is damaged: it holds a piece of {size >> 20} MiB")
    dictionary = None
    if base is not None:
        dictionary = zstandard.ZstdCompressionDict(base, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    try:
        content = zstandard.ZstdDecompressor(dict_data=dictionary).decompress(
            data, max_output_size=max(size, 1)
        )
    except zstandard.ZstdError as error:
        raise StoreError(f"the store is damaged: a piece does not unpack: {error}") from error
    if len(content) != size:
        raise StoreError("the store is damaged: a piece has another length than recorded")
    return content


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
