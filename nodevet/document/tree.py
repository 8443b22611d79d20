"""A tree in which every key and value knows its position."""

from collections.abc import Iterable

import msgspec

from nodevet.base.printable import brief
from nodevet.base.problems import Place
from nodevet.document.scalars import Plain


class Scalar(msgspec.Struct, frozen=True, kw_only=True):
    """A value; `text` is how the file spells it."""

    place: Place
    value: Plain
    text: str


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """A value that has a problem of its own, told already."""

    place: Place


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One key of a mapping. Keys are always text, spelt as in the file."""

    key: str
    place: Place
    value: "Node"


class Mapping(msgspec.Struct, frozen=True, kw_only=True):
    place: Place
    entries: tuple[Entry, ...]

    def get(self, key: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.key == key), None)


class Sequence(msgspec.Struct, frozen=True, kw_only=True):
    place: Place
    items: tuple["Node", ...]


Node = Scalar | Broken | Mapping | Sequence


def plain(node: Node) -> object:
    """The tree as plain data; null in place of what is broken."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Mapping):
        return {entry.key: plain(entry.value) for entry in node.entries}
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    return None


class Spot(msgspec.Struct, frozen=True, kw_only=True):
    """Where a path leads: the steps that exist, the node, and the key in front of it."""

    path: tuple[str | int, ...]
    node: Node
    key: Place


def follow(root: Node, path: Iterable[str | int]) -> Spot:
    """Go down from `root`; steps that lead nowhere are left out."""
    spot = Spot(path=(), node=root, key=root.place)
    for step in path:
        node = spot.node
        entry = node.get(str(step)) if isinstance(node, Mapping) else None
        if entry is not None:
            spot = Spot(path=(*spot.path, entry.key), node=entry.value, key=entry.place)
        elif isinstance(node, Sequence) and isinstance(step, int) and step < len(node.items):
            item = node.items[step]
            spot = Spot(path=(*spot.path, step), node=item, key=item.place)
    return spot


def dotted(path: Iterable[str | int]) -> str:
    """`("waivers", 0, "until")` → `waivers[0].until`."""
    text = ""
    for step in path:
        text = f"{text}[{step}]" if isinstance(step, int) else join(text, step)
    return text


def join(path: str, key: str) -> str:
    """`expect` and `gpu_count` → `expect.gpu_count`."""
    return f"{path}.{brief(key)}" if path else brief(key)
