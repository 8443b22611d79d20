"""Arithmetic on series and counters. An unknown value stays None."""

from collections.abc import Iterable, Sequence

from nodevet.evidence.activity import Counted


def known_values(values: Iterable[float | None] | None) -> list[float]:
    """The values that were read."""
    return [value for value in values or () if value is not None]


def mean(values: Iterable[float | None] | None) -> float | None:
    """Their mean; None if none was read.

    >>> mean([10, None, 20])
    15.0
    """
    read = known_values(values)
    return sum(read) / len(read) if read else None


def counter_growth(counted: Counted | None) -> int | None:
    """How much a counter grew."""
    return None if counted is None else counted[1] - counted[0]


def rate(counted: Counted | None, seconds: float | None) -> float | None:
    """How much a counter grew in a second."""
    by = counter_growth(counted)
    return by / seconds if by is not None and seconds else None


def span(values: Sequence[float | None] | None) -> float | None:
    """How much a counter grew that was read at each look: the last less the first."""
    read = known_values(values)
    return read[-1] - read[0] if len(read) > 1 and read[-1] >= read[0] else None


def total(values: Iterable[float | None]) -> float | None:
    """Their sum; None if one of them is not known, or there are none.

    >>> total([1, 2]), total([1, None])
    (3, None)
    """
    listed = list(values)
    if not listed or any(value is None for value in listed):
        return None
    return sum(known_values(listed))


def percent(part: float | None, whole: float | None) -> float | None:
    """A part as a percentage of the whole."""
    return None if part is None or not whole else 100.0 * part / whole
