"""Pieces of content: each different one once, compressed, the next with the last as dictionary."""

import hashlib

import zstandard

from nodevet.store.errors import StoreError

LEVEL = 3
DELTA_LEVEL = 1  # with a dictionary it finds as much as 5 does, sooner
LARGEST = 512 << 20  # bytes of one piece unpacked

_PLAIN = zstandard.ZstdCompressor(
    level=LEVEL, write_checksum=True, write_content_size=True, write_dict_id=False
)


def sha_of(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def packed(content: bytes, base: bytes | None = None) -> bytes:
    """Compressed; with a base much like it, to little more than what differs."""
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


def unpacked(data: bytes, size: int, base: bytes | None = None) -> bytes:
    """Raises StoreError for what is damaged."""
    if size > LARGEST:
        raise StoreError(f"the store holds a piece of {size >> 20} MiB; it is damaged")
    dictionary = None
    if base is not None:
        dictionary = zstandard.ZstdCompressionDict(base, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    try:
        content = zstandard.ZstdDecompressor(dict_data=dictionary).decompress(
            data, max_output_size=max(size, 1)
        )
    except zstandard.ZstdError as error:
        raise StoreError(f"the store holds a piece that does not unpack: {error}") from error
    if len(content) != size:
        raise StoreError("the store holds a piece of another length than was kept")
    return content
