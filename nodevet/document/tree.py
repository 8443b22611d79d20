"""A tree in which every key and value knows its position."""

from collections.abc import Iterable

import msgspec

from nodevet.base.printable import brief
from nodevet.base.problems import Place, Problem

Plain = None | bool | int | float | str


class Scalar(msgspec.Struct, frozen=True, kw_only=True):
    """A value; `text` is its spelling in the file."""

    place: Place
    value: Plain
    text: str


class Broken(msgspec.Struct, frozen=True, kw_only=True):
    """A value whose problem has already been reported, or that has a tag."""

    place: Place
    tag: str = ""
    text: str = ""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One key of a mapping. Keys are always text, as spelt in the file."""

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


class Tree(msgspec.Struct, frozen=True):
    """The root, or None if the text is not one YAML mapping; and the problems so far."""

    root: Mapping | None
    problems: tuple[Problem, ...]


def plain(node: Node) -> object:
    """The tree as plain data, with None for broken values."""
    if isinstance(node, Scalar):
        return node.value
    if isinstance(node, Mapping):
        return {entry.key: plain(entry.value) for entry in node.entries}
    if isinstance(node, Sequence):
        return [plain(item) for item in node.items]
    return None


class Spot(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a path: its existing steps, the node, and the place of its key."""

    path: tuple[str | int, ...]
    node: Node
    key: Place


def follow(root: Node, path: Iterable[str | int]) -> Spot:
    """Follow a path from `root`, without steps that do not exist."""
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


class Complaint(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of a node of a document; its file is not known here."""

    path: tuple[str | int, ...]  # from the root
    place: Place
    message: str
    advice: str = ""
    missing: bool = False  # a field is missing here; another file may have it

    def problem(self, file: str) -> Problem:
        return Problem(self.place.within(file), dotted(self.path), self.message, self.advice)
