"""Lists of CPUs and nodes, as the kernel writes them: `0-3,8`."""

from collections.abc import Iterable
from functools import lru_cache

from nodevet.base import bounds
from nodevet.base.ranges import ranges_text


@lru_cache(maxsize=1024)
def numbers(text: str | None) -> frozenset[int] | None:
    """The numbers in a kernel list such as a cpulist; None if it is not valid.

    >>> sorted(numbers("0-2,8"))
    [0, 1, 2, 8]
    """
    if text is None:
        return None
    ids: set[int] = set()
    count = 0
    for part in text.split(",") if text else ():
        first, dash, last = part.partition("-")
        ends = (first, last) if dash else (first, first)
        if not all(end.isascii() and end.isdigit() and len(end) < 6 for end in ends):
            return None
        low, high = map(int, ends)
        count += high - low + 1
        if not low <= high <= bounds.HIGHEST_CPU or count > bounds.HIGHEST_CPU + 1:
            return None
        ids.update(range(low, high + 1))
    return frozenset(ids)


def spans(numbers: Iterable[int]) -> str:
    """Numbers as a kernel list, as `numbers` reads it.

    >>> spans([8, 0, 1, 2])
    '0-2,8'
    """
    return ranges_text(sorted(set(numbers)))
