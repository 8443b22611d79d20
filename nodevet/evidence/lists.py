"""Lists of CPUs and nodes, as the kernel writes them: `0-3,8`."""

from collections.abc import Iterable
from functools import lru_cache

from nodevet.base import bounds


@lru_cache(maxsize=1024)
def numbers(text: str | None) -> frozenset[int] | None:
    """The numbers in a kernel list such as a cpulist; None if it is none.

    >>> sorted(numbers("0-2,8"))
    [0, 1, 2, 8]
    """
    if text is None:
        return None
    found: set[int] = set()
    told = 0
    for part in text.split(",") if text else ():
        first, dash, last = part.partition("-")
        ends = (first, last) if dash else (first, first)
        if not all(end.isascii() and end.isdigit() and len(end) < 6 for end in ends):
            return None
        low, high = map(int, ends)
        told += high - low + 1
        if not low <= high <= bounds.HIGHEST_CPU or told > bounds.HIGHEST_CPU + 1:
            return None
        found.update(range(low, high + 1))
    return frozenset(found)


def spans(numbers: Iterable[int]) -> str:
    """Numbers as a kernel list, as `numbers` reads it.

    >>> spans([8, 0, 1, 2])
    '0-2,8'
    """
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in found)
