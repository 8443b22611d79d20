"""Amounts with units, as people write them: `500 kB`, `2 GB/s`, `5.86 ms`. Decimal and binary
prefixes differ (kB is 1,000 bytes, KiB 1,024), and so do bytes and bits (GB/s, Gbit/s)."""

import re
from collections.abc import Iterable, Mapping

from nodevet.base.printable import brief
from nodevet.base.problems import did_you_mean
from nodevet.evidence.pci import WIDTHS

_AMOUNT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?) ?(\S.{0,40})?")
_DECIMAL = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50}

SIZES: Mapping[str, float] = {
    "B": 1.0,
    **{f"{prefix}B": factor for prefix, factor in (_DECIMAL | _BINARY).items()},
}
"""In bytes."""
RATES: Mapping[str, float] = {
    **{f"{unit}/s": factor for unit, factor in SIZES.items()},
    **{
        f"{prefix}{bit}": factor / 8
        for prefix, factor in _DECIMAL.items()
        for bit in ("bit/s", "b/s", "bps")
    },
}
"""In bytes per second."""
TIMES: Mapping[str, float] = {
    **{"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6},
    **{"ms": 1e-3, "s": 1.0, "min": 60.0},
}
"""In seconds."""
PER_SECOND: Mapping[str, float] = {
    **dict.fromkeys(("/s", "samples/s", "images/s", "tokens/s", "per second"), 1.0),
    **{f"{prefix} samples/s": factor for prefix, factor in _DECIMAL.items()},
}
SHARES: Mapping[str, float] = {"%": 0.01}

_PER_LANE = {1: 2.5 * 0.8, 2: 5 * 0.8, 3: 8 * 128 / 130, 4: 16 * 128 / 130, 5: 32 * 128 / 130,
             6: 64 * 236 / 256}  # fmt: skip
"""The Gbit/s of a lane by generation, without the overhead of the encoding: 8b/10b, 128b/130b, and
for Gen6 the bytes of a 256-byte flit that carry no packets. PCI Express Base Specification 6.0."""
LINK = re.compile(r"(?:PCIe )?Gen ?([1-6]) ?x([0-9]{1,2})", re.IGNORECASE)
AT_LEAST = 0.75
"""The least share of the encoded rate that a link moves: packets of 128 bytes have headers of 20 to
24 bytes, and pinned copies reach 0.76 to 0.87 on Gen3 to Gen5."""


def size(text: str) -> float:
    """The bytes of `500 kB`. Raises ValueError, like all functions here."""
    return _amount(text, SIZES, "a size such as 500 kB or 64 KiB")


def rate(text: str) -> float:
    """Bytes per second of `2 GB/s`, `100 Gbit/s`."""
    return _amount(text, RATES, "a rate such as 2 GB/s or 100 Gbit/s")


def seconds(text: str) -> float:
    """Seconds of `5.86 ms`, `26.3 us`."""
    return _amount(text, TIMES, "a time such as 5.86 ms or 26 us")


def per_second(text: str) -> float:
    """Samples per second of `2500 samples/s`."""
    return _amount(text, PER_SECOND, "a throughput such as 2500 samples/s")


def share(text: str) -> float:
    """0 to 1 of `40 %`."""
    value = _amount(text, SHARES, "a share such as 40 %", zero=True)
    if value > 1:
        raise ValueError(f"must be at most 100 %, not {brief(text)}")
    return value


def samples(text: str, sample_b: float) -> float:
    """Samples per second of `250 MB/s`, of `500 samples/s`, or of `2 ms` for each sample."""
    expected = "a rate such as 250 MB/s or 500 samples/s, or a time for each sample such as 2 ms"
    unit = _split(text, expected, ())[1]
    if unit in TIMES:
        return 1 / seconds(text)
    if unit in PER_SECOND:
        return per_second(text)
    return _amount(text, {**RATES, **PER_SECOND, **TIMES}, expected) / sample_b


def link(text: str) -> tuple[int, int] | None:
    """The generation and lanes of `Gen4 x16`; None for another text."""
    match = LINK.fullmatch(text.strip())
    if not match:
        return None
    if int(match[2]) not in WIDTHS:
        raise ValueError(f"no PCIe link has {match[2]} lanes; {_listed(WIDTHS)} are known")
    return int(match[1]), int(match[2])


def link_rate(generation: int, lanes: int) -> float:
    """The bytes per second that the encoding of a PCIe link leaves in one direction.

    >>> round(link_rate(4, 16) / 1e9, 1), round(link_rate(3, 16) / 1e9, 2)
    (31.5, 15.75)
    """
    return _PER_LANE[generation] * lanes * 1e9 / 8


def amount_text(amount: float, unit: str) -> str:
    """An amount of bytes (`B`) or bytes per second (`B/s`) with a decimal prefix, as people type
    it.

    >>> amount_text(500e3, "B"), amount_text(10.9e9, "B/s"), amount_text(0, "B") ('500 kB', '10.9
    GB/s', '0 B')
    """
    prefix, factor = "", 1.0
    for name, size in _DECIMAL.items():
        if amount >= size * 0.9995:
            prefix, factor = name, size
    return f"{amount / factor:.3g} {prefix}{unit}" if amount / factor < 999.5 else (
        f"{amount / factor:.0f} {prefix}{unit}")  # fmt: skip


def _amount(text: str, units: Mapping[str, float], expected: str, *, zero: bool = False) -> float:
    number, unit = _split(text, expected, units)
    if unit not in units:
        raise ValueError(_unknown(unit, units, expected))
    if not number and not zero:
        raise ValueError(f"must be more than 0, not {brief(text)}")
    return number * units[unit]


def _split(text: str, expected: str, units: Iterable[str]) -> tuple[float, str]:
    match = _AMOUNT.fullmatch(text.strip())
    if not match:
        raise ValueError(f"must be {expected}, not {brief(text)}")
    if not match[2]:
        raise ValueError(f"{match[1]} has no unit; write {expected}")
    return float(match[1]), match[2].strip()


def _unknown(unit: str, units: Mapping[str, float], expected: str) -> str:
    """Why a unit is refused. K is refused because some readers take it for 1,000 and others for
    1,024."""
    if unit in ("KB", "KB/s", "K", "Kbit/s", "Kb/s"):
        rest = unit[1:] or "B"
        return (
            f"{brief(unit)} is 1,000 to some and 1,024 to others; write k{rest} or Ki{rest}"
            if rest.startswith("B")
            else f"{brief(unit)} is not a unit; write k{rest}"
        )
    near = f"write {unit}/s" if f"{unit}/s" in units else did_you_mean(unit, units)
    return f"{brief(unit)} is not a known unit; {near or f'write {expected}'}"


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(f"x{number}" for number in numbers)
