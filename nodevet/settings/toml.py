"""TOML as a tree in which every key knows its position, as nodevet.document has it of YAML.

tomllib reads it; where keys stand is found by a scan of the text, which is valid by then. What
stands inside a list or an inline table has the position of its key.
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
MOST_PARTS = 32  # of a dotted key: the time that tomllib takes grows with their square
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
    """What is no TOML."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(str(problem))


def tree(data: bytes, file: str) -> Mapping:
    """The document. Raises TomlError."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        raise _refused(file, "is not UTF-8", _place(before, len(before))) from error
    text = text.replace("\r\n", "\n")
    if long := _LONG_KEY.search(text):
        raise _refused(
            file, f"has a key of more than {MOST_PARTS} parts", _place(text, long.start())
        )
    try:
        return _tree(text)
    except tomllib.TOMLDecodeError as error:
        found = _AT.fullmatch(str(error))
        at = Place(int(found[2]), int(found[3])) if found and found[2] else _place(text, len(text))
        message = found[1] if found else str(error)
        raise _refused(
            file, f"is not valid TOML: {message[:1].lower()}{message[1:]}", at
        ) from error
    except RecursionError as error:
        raise _refused(file, "is nested too deeply", Place(1, 1)) from error
    except ValueError as error:  # Python converts no text of more digits
        raise _refused(file, "has a number with too many digits", Place(1, 1)) from error


def _tree(text: str) -> Mapping:
    """Raises TOMLDecodeError, RecursionError, ValueError."""
    document = tomllib.loads(text)
    return _mapping(document, (), Place(1, 1), _Scan(text).places)


def _refused(file: str, message: str, at: Place) -> TomlError:
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
    """Where the keys and tables of a valid document stand."""

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
                place = self._at(start)
                for number in range(1, len(words) + 1):
                    self.places.setdefault((*table, *words[:number]), place)
            offset = self._statement_end(offset)

    def _at(self, offset: int) -> Place:
        shift = len(self._text[offset:]) - len(self._text[offset:].lstrip(" \t"))
        return _place(self._text, offset + shift)

    def _words(self, offset: int) -> tuple[list[str], int]:
        words = []
        while found := _KEY.match(self._text, offset):
            raw, offset = found[1], found.end()
            words.append(tomllib.loads(f"k = {raw}")["k"] if raw[0] in "\"'" else raw)
            if not found[2]:
                break
        return words, offset

    def _table(self, words: list[str], offset: int, *, listed: bool) -> Path:
        place = self._at(offset)
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
        """After the line break that ends a statement: not one inside a text or a list."""
        depth = 0
        while found := _TOKEN.match(self._text, offset):
            offset = found.end()
            mark = found[0]
            if mark in "[{":
                depth += 1
            elif mark in "]}":
                depth -= 1
            elif mark == "\n" and depth <= 0:
                return offset
        return len(self._text)
