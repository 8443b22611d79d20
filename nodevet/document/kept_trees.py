"""Parsed YAML files, kept for the next check of this machine: PyYAML takes longer to import than an
empty Python to start.

A tree depends only on the text of its file and on what parses it. Both are in the name under which
it is kept, so an edited file has another name. A kept tree is believed if only this user can have
written it, as a kept pass is (nodevet.base.last_verdict); in any doubt the file is parsed.
"""

import os
import sys
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from nodevet import __version__
from nodevet.base.files import write_whole
from nodevet.base.last_verdict import (
    ABSENT,
    check_above,
    check_folder,
    identity_of,
    read_own,
    state_of_user,
)
from nodevet.base.problems import Place
from nodevet.document.text import Source
from nodevet.document.tree import Entry, Mapping, Node, Scalar, Sequence, Tree
from nodevet.remote.digest import sha256

FOLDER = "parsed"
MOST = 256  # files in the folder; the shipped baselines are 30
PARSERS = ("kept_trees.py", "parse.py", "scalars.py", "tree.py")
DIGEST = 32  # bytes of a SHA-256
SCALAR, SEQUENCE, MAPPING = range(3)


class KeptTrees:
    """The trees that this user's checks kept. Only trees without problems are kept."""

    def __init__(self) -> None:
        self._folder, self._believed = "", False
        with suppress(OSError, LookupError, ValueError):  # then nothing is kept
            self._parsers = _parsers()
            self._folder = f"{state_of_user()}/{FOLDER}"
            check_folder(self._folder)
            self._believed = True

    def parse(self, source: Source) -> Tree:
        """The tree of a text: a kept one, or parsed now and kept."""
        if not self._folder:
            return _parsed(source)
        name = sha256(self._parsers + source.sha256.encode()).hexdigest()
        root = _recall(self._folder, name) if self._believed else None
        if root is not None:
            return Tree(root, ())
        tree = _parsed(source)
        if tree.root is not None and not tree.problems:
            self._keep(name, tree.root)
        return tree

    def _keep(self, name: str, root: Mapping) -> None:
        """Keep a tree if possible: a check does not fail because /var is read-only."""
        with suppress(OSError, OverflowError):  # msgpack has no integers of more than 64 bits
            data = msgspec.msgpack.encode(_plain(root))
            check_above(_first_missing(self._folder))  # create nothing in another user's folder
            os.makedirs(self._folder, mode=0o700, exist_ok=True)  # noqa: PTH103
            check_folder(self._folder)
            self._limit()
            record = _digest(name, data) + data
            write_whole(Path(self._folder, name), record, durable=False, mode=0o600)

    def _limit(self) -> None:
        """Keep files that are edited again and again from filling the folder."""
        names = os.listdir(self._folder)  # noqa: PTH208
        if len(names) >= MOST:
            for name in names:
                with suppress(FileNotFoundError):
                    os.unlink(f"{self._folder}/{name}")  # noqa: PTH108


def _first_missing(path: str) -> str:
    """The first folder of a path that does not exist; the whole path if all do."""
    while not os.path.isdir(above := os.path.dirname(path)):  # noqa: PTH112, PTH120
        path = above
    return path


def _recall(folder: str, name: str) -> Mapping | None:
    """The tree that is kept under this name; None in any doubt."""
    try:
        record = read_own(f"{folder}/{name}")
        data = record[DIGEST:]
        if _digest(name, data) != record[:DIGEST]:
            return None
        root = _node(msgspec.msgpack.decode(data))
    except Exception:  # any error is a doubt
        return None
    return root if isinstance(root, Mapping) else None


def _digest(name: str, data: bytes) -> bytes:
    return bytes(sha256(name.encode() + data).digest())


def _parsers() -> bytes:
    """What parses: nodevet's modules, PyYAML and Python. Raises OSError, LookupError and
    ValueError if that is not known."""
    yaml = find_spec("yaml")
    if yaml is None or yaml.origin is None:
        raise LookupError("yaml")
    here = os.path.dirname(__file__)  # noqa: PTH120 (pathlib takes longer)
    files = [f"{here}/{name}" for name in PARSERS] + [os.path.dirname(yaml.origin)]  # noqa: PTH120
    identities = [identity_of(path)[0] for path in files]
    if ABSENT in identities:  # as in a zip file
        raise LookupError(here)
    return b"\0".join((__version__.encode(), sys.version.encode(), *identities, b""))


def _parsed(source: Source) -> Tree:
    from nodevet.document.parse import parse

    return parse(source)


def _plain(node: Node) -> list[Any]:
    """A node as lists. Raises TypeError for a broken one."""
    line, column = node.place.line, node.place.column
    if isinstance(node, Scalar):
        return [SCALAR, line, column, node.value, node.text]
    if isinstance(node, Sequence):
        return [SEQUENCE, line, column, [_plain(item) for item in node.items]]
    if isinstance(node, Mapping):
        entries = [
            [entry.key, entry.place.line, entry.place.column, _plain(entry.value)]
            for entry in node.entries
        ]
        return [MAPPING, line, column, entries]
    raise TypeError("a broken value")


def _node(plain: list[Any]) -> Node:
    kind, line, column, *rest = plain
    place = Place(line, column)
    if kind == SCALAR:
        value, text = rest
        return Scalar(place=place, value=value, text=text)
    (items,) = rest
    if kind == SEQUENCE:
        return Sequence(place=place, items=tuple(map(_node, items)))
    entries = tuple(
        Entry(key=key, place=Place(key_line, key_column), value=_node(value))
        for key, key_line, key_column, value in items
    )
    return Mapping(place=place, entries=entries)
