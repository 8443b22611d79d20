"""One baseline file: read, parsed and checked by itself, before `extends` is followed."""

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from nodevet.base.problems import Place, Problem, did_you_mean, quoted
from nodevet.baseline.format import VERSION, FilePart
from nodevet.checking.catalog import Catalog
from nodevet.document.text import Source, UnreadableError, read
from nodevet.document.tree import (
    Broken,
    Entry,
    Mapping,
    Node,
    Scalar,
    Sequence,
    Tree,
    dotted,
    follow,
    join,
)
from nodevet.document.typed import typed_or_problems

Parse = Callable[[Source], Tree]


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A YAML file of this format. `part` is None if one of its keys is unusable."""

    source: Source
    root: Mapping
    part: FilePart | None

    def place(self, *path: str | int) -> Place:
        """The place of the key at `path`, or of the nearest one above it."""
        return follow(self.root, path).key

    def origin(self, place: Place) -> str:
        """`file:line`"""
        return f"{self.source.shown}:{place.line}"

    def problem(
        self, place: Place, path: str, message: str, advice: str = "", *, warning: bool = False
    ) -> Problem:
        return Problem(place.within(self.source.shown), path, message, advice, warning)

    def entries(self, key: str) -> tuple[Entry, ...]:
        """The entries of a top-level mapping; none if it is missing or not a mapping."""
        value = self._value(key)
        return value.entries if isinstance(value, Mapping) else ()

    def items(self, key: str) -> tuple[Node, ...]:
        """The items of a top-level list; none if it is missing or not a list."""
        value = self._value(key)
        return value.items if isinstance(value, Sequence) else ()

    def extends(self) -> Iterator[tuple[str, Place]]:
        """The names of the baselines that it extends, each with its position."""
        value = self._value("extends")
        for node in value.items if isinstance(value, Sequence) else (value,):
            if isinstance(node, Scalar) and isinstance(node.value, str) and node.value.strip():
                yield node.value, node.place

    def _value(self, key: str) -> Node | None:
        entry = self.root.get(key)
        return entry.value if entry else None


def parse(source: Source) -> Tree:
    """The tree of a text."""
    from nodevet.document.parse import parse as parse_now  # kept trees need no PyYAML

    return parse_now(source)


def open_file(
    path: Path, catalog: Catalog, parse: Parse = parse
) -> tuple[File | None, tuple[Problem, ...]]:
    """The file, or None if nothing in it can be used; and its problems."""
    try:
        source = read(path)
    except UnreadableError as error:
        return None, (error.problem,)
    tree = parse(source)
    if tree.root is None:
        return None, tree.problems
    file = File(source=source, root=tree.root, part=None)
    version = tuple(_version(file))
    if version:
        return None, (*tree.problems, *version)
    part, problems = typed_or_problems(tree.root, FilePart, source.shown)
    file = msgspec.structs.replace(file, part=part)
    problems = (*tree.problems, *problems, *_unknown_checks(file, catalog))
    return file, (*problems, *_unclear_waivers(file))


def _version(file: File) -> Iterator[Problem]:
    entry = file.root.get("nodevet")
    if entry is None:
        yield file.problem(
            Place(1, 1), "nodevet", "the version of the format is missing", "add: nodevet: 1"
        )
        return
    value = entry.value
    if isinstance(value, Broken) or (isinstance(value, Scalar) and value.value is VERSION):
        return
    version = quoted(value.value) if isinstance(value, Scalar) else "no version"
    yield file.problem(
        value.place,
        "nodevet",
        f"the version of the format is {version}; this nodevet reads {VERSION}",
        "write nodevet: 1, or upgrade nodevet",
    )


def _unclear_waivers(file: File) -> Iterator[Problem]:
    """Waivers that name no accepted value, or both a value and `any`."""
    for number, item in enumerate(file.items("waivers")):
        if not isinstance(item, Mapping):
            continue
        accepts, any_entry = item.get("accepts"), item.get("any")
        names_value = accepts is not None and not _is_null(accepts.value)
        covers_all = any_entry is not None and not (
            isinstance(any_entry.value, Scalar) and any_entry.value.value in (None, False)
        )
        path = dotted(("waivers", number))
        if names_value and covers_all and any_entry is not None:
            message = "`any` covers every value, and `accepts` only one"
            yield file.problem(any_entry.place, join(path, "any"), message, "keep one of the two")
        elif not names_value and not covers_all:
            message = "names no accepted value, so it would also cover a worse one"
            advice = (
                "add accepts: with the value as the report shows it (accepts: x8), or any: true"
            )
            yield file.problem(item.place, path, message, advice)


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is None


def _unknown_checks(file: File, catalog: Catalog) -> Iterator[Problem]:
    known = frozenset(catalog.ids)
    for check, path, place in _named_checks(file):
        if check not in known:
            advice = did_you_mean(check, known, "`nodevet list checks` names them")
            yield file.problem(place, path, "no check has this name", advice)


def _named_checks(file: File) -> Iterator[tuple[str, str, Place]]:
    """Every check id in the file, with its path and position."""
    for key in ("expect", "severity", "fix"):
        for entry in file.entries(key):
            yield entry.key, join(key, entry.key), entry.place
    for key in ("fix", "waivers"):
        for number, item in enumerate(file.items(key)):
            path: tuple[str | int, ...] = (key, number)
            if isinstance(item, Mapping) and key == "waivers" and item.get("check"):
                path = (key, number, "check")
            node = follow(file.root, path).node
            if isinstance(node, Scalar) and isinstance(node.value, str):
                yield node.value, dotted(path), node.place
