"""What the parts of a node have in common, for what a check learns from it."""

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TypeVar

Value = TypeVar("Value", bound=Hashable)


def usual(values: Iterable[Value | None]) -> Value | None:
    """The value that most of them have; None if none was read, or if two are as frequent.

    >>> usual(["performance", "performance", None, "powersave"])
    'performance'
    """
    most = Counter(value for value in values if value is not None).most_common(2)
    if not most or (len(most) == 2 and most[0][1] == most[1][1]):
        return None
    return most[0][0]
