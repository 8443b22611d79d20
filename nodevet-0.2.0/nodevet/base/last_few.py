"""A small cache of the last few results of each kind. Pure."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

Value = TypeVar("Value")
FEW = 4  # values of each kind


class LastFew:
    """Values that similar hosts share, so that each is made once.

    A value must depend on its source alone, and nobody may change it. Sources are compared, not
    hashed: long texts that differ mostly differ at their beginning.
    """

    def __init__(self) -> None:
        self._entries: dict[Hashable, list[tuple[object, Any]]] = {}

    def get_or_make(self, kind: Hashable, source: object, make: Callable[[], Value]) -> Value:
        """The value that `make` made from an equal source before, or makes now."""
        entries = self._entries.setdefault(kind, [])
        for place, entry in enumerate(entries):
            if entry[0] == source:
                entries.insert(0, entries.pop(place))
                break
        else:
            entries.insert(0, (source, make()))
            del entries[FEW:]
        result: Value = entries[0][1]
        return result
