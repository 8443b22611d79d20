"""Parse TOML to a tree with the position of every key, as nodevet.document does for YAML.

tomllib parses the text; then a scan of the valid text finds the positions of keys. Values inside a
list or an inline table have the position of its key.
"""

import re
import sys
from collections.abc import Mapping as MappingOf
from datetime import date, datetime, time
from typing import Any

from nodevet.base.problems import Place, Problem
from nodevet.document.tree import Entry, Mapping, Node, Scalar, Sequence

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Path = tuple[str | int, ...]

_KEY = re.compile(r"""[ \t]*("(?:\\.|[^"\\])*"|'[^']*'|[A-Za-z0-9_-]+)[ \t]*(\.?)""")
MOST_PARTS = 32  # of a dotted key; the time of tomllib grows with their square
_LONG_KEY = re.compile(
    rf"""(?<![\w"'-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){{{MOST_PARTS}}}"""
)
_TOKEN = re.compile(
    r'"{3}(?:\\.|[^\\])*?"{3,5}|\'{3}.*?\'{3,5}|"(?:\\.|[^"\\])*"|\'[^\']*\'|#[^\n]*'
    r"|[\[{]|[\]}]|\n|[^\"'#\[\]{}\n]+",
    re.DOTALL,
)
_AT = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)


class TomlError(Exception):
    """A text that is not valid TOML."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(str(problem))


def tree(data: bytes, file: str) -> Mapping:
    """The document. Raises TomlError."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        raise _error(file, "is not UTF-8", _place(before, len(before))) from error
    text = text.replace("\r\n", "\n")
    if match_long := _LONG_KEY.search(text):
        raise _error(
            file, f"has a key of more than {MOST_PARTS} parts", _place(text, match_long.start())
        )
    try:
        return _tree(text)
    except tomllib.TOMLDecodeError as error:
        match = _AT.fullmatch(str(error))
        at = Place(int(match[2]), int(match[3])) if match and match[2] else _place(text, len(text))
        message = match[1] if match else str(error)
        raise _error(file, f"is not valid TOML: {message[:1].lower()}{message[1:]}", at) from error
    except RecursionError as error:
        raise _error(file, "is nested too deeply", Place(1, 1)) from error
    except ValueError as error:  # Python limits the digits of a number
        raise _error(file, "has a number with too many digits", Place(1, 1)) from error


def _tree(text: str) -> Mapping:
    """Raises TOMLDecodeError, RecursionError, ValueError."""
    document = tomllib.loads(text)
    return _mapping(document, (), Place(1, 1), _Scan(text).places)


def _error(file: str, message: str, at: Place) -> TomlError:
    return TomlError(Problem(at.within(file), "", message, "correct the file there"))


def _place(text: str, offset: int) -> Place:
    return Place(text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset))


def _mapping(
    value: MappingOf[str, Any], path: Path, at: Place, places: MappingOf[Path, Place]
) -> Mapping:
    entries = []
    for key, item in value.items():
        inner = (*path, key)
        place = places.get(inner, at)
        entries.append(Entry(key=key, place=place, value=_node(item, inner, place, places)))
    return Mapping(place=at, entries=tuple(entries))


def _node(value: Any, path: Path, at: Place, places: MappingOf[Path, Place]) -> Node:
    if isinstance(value, dict):
        return _mapping(value, path, at, places)
    if isinstance(value, list):
        items = (
            _node(item, (*path, number), places.get((*path, number), at), places)
            for number, item in enumerate(value)
        )
        return Sequence(place=at, items=tuple(items))
    if isinstance(value, (datetime, date, time)):
        return Scalar(place=at, value=value.isoformat(), text=value.isoformat())
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return Scalar(place=at, value=value, text=text)


class _Scan:
    """The positions of the keys and tables of a valid document."""

    def __init__(self, text: str) -> None:
        self.places: dict[Path, Place] = {}
        self._text = text
        self._counts: dict[Path, int] = {}
        table: Path = ()
        offset = 0
        while offset < len(text):
            start = offset
            head = re.compile(r"[ \t]*(\[\[?)").match(text, offset)
            if head:
                words, offset = self._words(head.end())
                table = self._table(words, start + head[0].index("["), listed=len(head[1]) == 2)
            elif _KEY.match(text, offset):
                words, offset = self._words(start)
                place = self._place_at(start)
                for number in range(1, len(words) + 1):
                    self.places.setdefault((*table, *words[:number]), place)
            offset = self._statement_end(offset)

    def _place_at(self, offset: int) -> Place:
        shift = len(self._text[offset:]) - len(self._text[offset:].lstrip(" \t"))
        return _place(self._text, offset + shift)

    def _words(self, offset: int) -> tuple[list[str], int]:
        words = []
        while match := _KEY.match(self._text, offset):
            raw, offset = match[1], match.end()
            words.append(tomllib.loads(f"k = {raw}")["k"] if raw[0] in "\"'" else raw)
            if not match[2]:
                break
        return words, offset

    def _table(self, words: list[str], offset: int, *, listed: bool) -> Path:
        place = self._place_at(offset)
        path: Path = ()
        for number, word in enumerate(words, 1):
            path = (*path, word)
            self.places.setdefault(path, place)
            if listed and number == len(words):
                self._counts[path] = self._counts.get(path, -1) + 1
            if path in self._counts:
                path = (*path, self._counts[path])
                self.places.setdefault(path, place)
        if not listed:
            self.places[path] = place
        return path

    def _statement_end(self, offset: int) -> int:
        """The offset after the line break that ends a statement, not after one in a string or a
        list."""
        depth = 0
        while match := _TOKEN.match(self._text, offset):
            offset = match.end()
            mark = match[0]
            if mark in "[{":
                depth += 1
            elif mark in "]}":
                depth -= 1
            elif mark == "\n" and depth <= 0:
                return offset
        return len(self._text)
