"""Parts that moved, came or went between two runs. Pure.

A part is followed by its id, unless several places have that id at once. A part is gone only if the
later run read all parts of its kind on its host, and new only if the earlier run did.
"""

from collections import Counter
from collections.abc import Collection, Iterator

import msgspec

from nodevet.store.records.model import PartKind
from nodevet.store.records.parts import Held

Place = tuple[str, str]  # host, slot
Key = tuple[PartKind, str]


class PartMove(msgspec.Struct, frozen=True, kw_only=True):
    """A part that changed its place. Without `host_before`, the part is new; without `host_after`,
    it is gone."""

    kind: PartKind
    id: str
    host_before: str = ""
    slot_before: str = ""
    host_after: str = ""
    slot_after: str = ""


class Places:
    """Where every part was in one run."""

    def __init__(self) -> None:
        self._at: dict[Key, Place] = {}
        self._times: Counter[Key] = Counter()
        self._told: dict[str, frozenset[PartKind]] = {}

    def add(self, host: str, held: Collection[Held], kinds: frozenset[PartKind]) -> None:
        """Add the parts of one host. `kinds`: those of which all parts were read."""
        self._told[host] = self._told.get(host, frozenset()) | kinds
        for part, slot in held:
            self._at[part.kind, part.id] = host, slot
            self._times[part.kind, part.id] += 1

    def place_of(self, key: Key) -> Place | None:
        """The place of a part."""
        return self._at.get(key)

    def knows(self, host: str, kind: PartKind) -> bool:
        """Whether all parts of a kind were read on a host."""
        return kind in self._told.get(host, ())

    @property
    def keys(self) -> Collection[Key]:
        return self._at.keys()

    def is_followed(self, key: Key) -> bool:
        """Whether at most one place has this part."""
        return self._times[key] < 2


def part_moves(before: Places, after: Places) -> tuple[PartMove, ...]:
    """First the parts that moved, then the new, then the gone; each by host and slot."""
    return tuple(sorted(_moves(before, after), key=_order))


def _order(move: PartMove) -> tuple[object, ...]:
    rank = 0 if move.host_before and move.host_after else 1 if move.host_after else 2
    place = (
        (move.host_before, move.slot_before) if rank != 1 else (move.host_after, move.slot_after)
    )
    return rank, *place, move.kind.value, move.id


def _moves(before: Places, after: Places) -> Iterator[PartMove]:
    for key in {*before.keys, *after.keys}:
        kind, name = key
        old, new = before.place_of(key), after.place_of(key)
        if old == new or not (before.is_followed(key) and after.is_followed(key)):
            continue
        if old and not new and not after.knows(old[0], kind):
            continue
        if new and not old and not before.knows(new[0], kind):
            continue
        yield PartMove(
            kind=kind,
            id=name,
            host_before=old[0] if old else "",
            slot_before=old[1] if old else "",
            host_after=new[0] if new else "",
            slot_after=new[1] if new else "",
        )
