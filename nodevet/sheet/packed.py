"""What a run over many hosts holds, compressed until it is looked at: of ten thousand hosts tens of
megabytes, not a gigabyte of findings. Pure.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, overload

import msgspec

from nodevet.base import typed
from nodevet.model import HostReport, HostSummary

FEW = 32  # hosts whose reports are kept as they are: reading them again costs more than their room
LEVEL = 1  # of zstd
BLOCK = 1 << 18  # characters of text that are compressed at once


class PackedReport(NamedTuple):
    """A report as it is kept, and what it comes to: what another process hands over."""

    summary: HostSummary
    kept: HostReport | bytes


class PackedHosts(Sequence[HostReport]):
    """The reports of hosts by name, in the order in which they came; of one host the last.

    What is read twice is decoded twice: ask `summaries` for what they say.
    """

    def __init__(self, reports: Iterable[HostReport] = ()) -> None:
        self._kept: dict[str, HostReport | bytes] = {}
        self._summaries: dict[str, HostSummary] = {}
        self._listed: tuple[list[HostReport | bytes], list[HostSummary]] | None = None
        for report in reports:
            self.put(report)

    def put(self, report: HostReport) -> None:
        """Keep a report, in the place of an earlier one of the host."""
        self._listed = None
        self._summaries[report.host] = report.summary
        packs = len(self._kept) >= FEW
        self._kept[report.host] = self._packer.packed(report) if packs else report

    def keep(self, packed: PackedReport) -> None:
        """Keep what is packed, in the place of an earlier report of the host."""
        self._listed = None
        self._summaries[packed.summary.host] = packed.summary
        self._kept[packed.summary.host] = packed.kept

    def whole(self, packed: PackedReport) -> HostReport:
        """The report again."""
        return self._whole(packed.kept)

    def get(self, host: str) -> HostReport | None:
        """The report of a host, if there is one."""
        found = self._kept.get(host)
        return self._whole(found) if found is not None else None

    @property
    def names(self) -> Iterable[str]:
        return self._kept.keys()

    @property
    def summaries(self) -> Sequence[HostSummary]:
        """What every report comes to."""
        return self._lists[1]

    def ordered(self, names: Iterable[str]) -> Sequence[HostReport]:
        """The reports of these hosts in this order; of a few a tuple."""
        found = PackedHosts()
        for name in names:
            if name in self._kept:
                found._kept[name] = self._kept[name]
                found._summaries[name] = self._summaries[name]
        return tuple(found) if len(found) <= FEW else found

    @property
    def _lists(self) -> tuple[list[HostReport | bytes], list[HostSummary]]:
        if self._listed is None:
            self._listed = [*self._kept.values()], [*self._summaries.values()]
        return self._listed

    @cached_property
    def _packer(self) -> "Packer":
        return Packer()

    def _whole(self, kept: HostReport | bytes) -> HostReport:
        return kept if isinstance(kept, HostReport) else self._packer.whole(kept)

    def __len__(self) -> int:
        return len(self._kept)

    def __iter__(self) -> Iterator[HostReport]:
        return map(self._whole, self._kept.values())

    @overload
    def __getitem__(self, place: int) -> HostReport: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[HostReport, ...]: ...
    def __getitem__(self, place: int | slice) -> HostReport | tuple[HostReport, ...]:
        kept = self._lists[0][place]
        return tuple(map(self._whole, kept)) if isinstance(kept, list) else self._whole(kept)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return NotImplemented
        return all(one == another for one, another in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]


class Packer:
    """A report as compressed MessagePack, and back."""

    def __init__(self) -> None:
        import zstandard  # which a check of one host does not pay for

        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = typed.unpacker(HostReport)
        self._compressor = zstandard.ZstdCompressor(level=LEVEL)
        self._decompressor = zstandard.ZstdDecompressor()

    def pack(self, report: HostReport) -> PackedReport:
        """A report to hand over."""
        return PackedReport(report.summary, self.packed(report))

    def packed(self, report: HostReport) -> HostReport | bytes:
        """As it is if it holds what no encoding can, such as half a surrogate pair."""
        try:
            return _fitted(self._compressor.compress(self._encoder.encode(report)))
        except (UnicodeEncodeError, OverflowError, TypeError, ValueError, RecursionError):
            return report

    def whole(self, packed: bytes) -> HostReport:
        found: HostReport = self._decoder.decode(self._decompressor.decompress(packed))
        return found


def _fitted(compressed: bytes) -> bytes:
    """In as much room as it needs: zstandard leaves it in that of the worst case."""
    return bytes(memoryview(compressed))


class PackedText:
    """A long text that comes in pieces, of which something else must be written before it."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._open: list[str] = []
        self._size = 0

    def add(self, text: str) -> None:
        self._open.append(text)
        self._size += len(text)
        if self._size >= BLOCK:
            import zstandard  # which a short text does not pay for

            whole = "".join(self._open).encode("utf-8", "surrogatepass")
            self._blocks.append(_fitted(zstandard.ZstdCompressor(level=LEVEL).compress(whole)))
            self._open, self._size = [], 0

    def __iter__(self) -> Iterator[str]:
        if self._blocks:
            import zstandard

            unpack = zstandard.ZstdDecompressor().decompress
            yield from (unpack(block).decode("utf-8", "surrogatepass") for block in self._blocks)
        yield "".join(self._open)
