"""The reports of a run over many hosts, compressed until they are read: ten thousand hosts take
tens of megabytes, not a gigabyte. Pure.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple, overload

import msgspec

from nodevet.base import typed
from nodevet.model import HostReport, HostSummary

FEW = 32  # hosts whose reports stay uncompressed: decoding them costs more than their memory
LEVEL = 1  # of zstd


class PackedReport(NamedTuple):
    """A packed report and its summary, as one process passes them to another."""

    summary: HostSummary
    data: HostReport | bytes


class PackedHosts(Sequence[HostReport]):
    """The reports of hosts by name, in the order of their arrival; of each host the latest.

    Every access decodes a report again: read `summaries` where they are enough.
    """

    def __init__(self, reports: Iterable[HostReport] = ()) -> None:
        self._packed: dict[str, HostReport | bytes] = {}
        self._summaries: dict[str, HostSummary] = {}
        self._lists_cache: tuple[list[HostReport | bytes], list[HostSummary]] | None = None
        for report in reports:
            self.put(report)

    def put(self, report: HostReport) -> None:
        """Add a report, in place of an earlier one of the host."""
        self._lists_cache = None
        self._summaries[report.host] = report.summary
        packs = len(self._packed) >= FEW
        self._packed[report.host] = self._packer.compress(report) if packs else report

    def keep(self, packed: PackedReport) -> None:
        """Add a packed report, in place of an earlier one of the host."""
        self._lists_cache = None
        self._summaries[packed.summary.host] = packed.summary
        self._packed[packed.summary.host] = packed.data

    def unpack(self, packed: PackedReport) -> HostReport:
        return self._unpack(packed.data)

    def get(self, host: str) -> HostReport | None:
        """The report of a host, or None."""
        packed = self._packed.get(host)
        return self._unpack(packed) if packed is not None else None

    @property
    def names(self) -> Iterable[str]:
        return self._packed.keys()

    @property
    def summaries(self) -> Sequence[HostSummary]:
        """The summary of every report."""
        return self._lists[1]

    def ordered(self, names: Iterable[str]) -> Sequence[HostReport]:
        """The reports of these hosts in this order; a tuple if they are few."""
        subset = PackedHosts()
        for name in names:
            if name in self._packed:
                subset._packed[name] = self._packed[name]
                subset._summaries[name] = self._summaries[name]
        if len(self) > FEW:
            subset._packer = self._packer
        return tuple(subset) if len(subset) <= FEW else subset

    @property
    def _lists(self) -> tuple[list[HostReport | bytes], list[HostSummary]]:
        if self._lists_cache is None:
            self._lists_cache = [*self._packed.values()], [*self._summaries.values()]
        return self._lists_cache

    @cached_property
    def _packer(self) -> "Packer":
        return Packer()

    def _unpack(self, packed: HostReport | bytes) -> HostReport:
        return packed if isinstance(packed, HostReport) else self._packer.unpack(packed)

    def __len__(self) -> int:
        return len(self._packed)

    def __iter__(self) -> Iterator[HostReport]:
        return map(self._unpack, self._packed.values())

    @overload
    def __getitem__(self, place: int) -> HostReport: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[HostReport, ...]: ...
    def __getitem__(self, place: int | slice) -> HostReport | tuple[HostReport, ...]:
        packed = self._lists[0][place]
        if isinstance(packed, list):
            return tuple(map(self._unpack, packed))
        return self._unpack(packed)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or len(self) != len(other):
            return NotImplemented
        return all(first == second for first, second in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]


class Packer:
    """Packs reports as compressed MessagePack, and unpacks them."""

    def __init__(self) -> None:
        from nodevet.base import zstd  # a check of one host does not pay for it

        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = typed.unpacker(HostReport)
        self._zstd = zstd
        self._first: zstd.ZstdDict | None = None

    def pack(self, report: HostReport) -> PackedReport:
        """A report to pass to another process."""
        return PackedReport(report.summary, self._compress(report, alone=True))

    def compress(self, report: HostReport) -> HostReport | bytes:
        """The report as only this packer can unpack it: all resemble the first one, which halves
        the time and leaves a fifth of the bytes."""
        return self._compress(report, alone=False)

    def _compress(self, report: HostReport, *, alone: bool) -> HostReport | bytes:
        """The report itself if no encoding can hold it, such as half a surrogate pair."""
        try:
            data = self._encoder.encode(report)
            if alone:
                return self._zstd.compress(data, LEVEL)
            self._first = self._first or self._zstd.ZstdDict(data, is_raw=True)
            return self._zstd.compress(data, LEVEL, zstd_dict=self._first.as_digested_dict)
        except (UnicodeEncodeError, OverflowError, TypeError, ValueError, RecursionError):
            return report

    def unpack(self, packed: bytes) -> HostReport:
        report: HostReport = self._decoder.decode(self._zstd.decompress(packed, self._first))
        return report
