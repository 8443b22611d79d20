"""Text compressed until it is written: that of ten thousand hosts is long. Pure."""

from collections.abc import Iterator

LEVEL = 1  # of zstd
BLOCK = 1 << 18  # characters of text that are compressed at once


class PackedText:
    """A long text that arrives in pieces, and is written only after they are all known."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._open: list[str] = []
        self._size = 0

    def add(self, text: str) -> None:
        self._open.append(text)
        self._size += len(text)
        if self._size >= BLOCK:
            from nodevet.base import zstd  # a short text does not pay for it

            data = "".join(self._open).encode("utf-8", "surrogatepass")
            self._blocks.append(zstd.compress(data, LEVEL))
            self._open, self._size = [], 0

    def __iter__(self) -> Iterator[str]:
        if self._blocks:
            from nodevet.base import zstd

            yield from (
                zstd.decompress(block).decode("utf-8", "surrogatepass") for block in self._blocks
            )
        yield "".join(self._open)
