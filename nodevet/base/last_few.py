"""What was made of the last few things of a kind, for the next that is the same. Pure."""

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

Made = TypeVar("Made")
FEW = 4  # of a kind that are known


class LastFew:
    """What hosts that are alike have in common is made once.

    What is made must depend on what it is made of alone, and be changed by nobody. What is known
    is compared, not hashed: of a long text that differs, the beginning tells that.
    """

    def __init__(self) -> None:
        self._known: dict[Hashable, list[tuple[object, Any]]] = {}

    def made(self, kind: Hashable, of: object, make: Callable[[], Made]) -> Made:
        """What `make` makes of something, or made of the same a little while ago."""
        known = self._known.setdefault(kind, [])
        for place, (seen, made) in enumerate(known):
            if seen == of:
                if place:
                    known.insert(0, known.pop(place))
                found: Made = made
                return found
        new = make()
        known.insert(0, (of, new))
        del known[FEW:]
        return new
