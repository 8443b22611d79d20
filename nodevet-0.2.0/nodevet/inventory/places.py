"""Places in JSON and Python text. Slow and exact; used for messages about problems. Pure."""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from nodevet.base.problems import Place

SPACE = re.compile(r"[ \t\n\r]*")
TOKEN = re.compile(r'("(?:[^"\\]|\\.)*")[ \t\n\r]*(:?)|[{}\[\]]')
Steps = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class JsonPlace:
    """The position of a value or its key; computed only for a message."""

    text: str
    file: str
    steps: Steps

    def __str__(self) -> str:
        places = dict(walk(self.text, self.steps))
        steps = self.steps
        while steps not in places:
            steps = steps[:-1]
        return str(place(self.text, self.file, places[steps]))


def place(text: str, file: str, offset: int) -> Place:
    """The line and column of an offset."""
    line = text.count("\n", 0, offset) + 1
    return Place(line, offset - text.rfind("\n", 0, offset), file)


def first_duplicate(text: str) -> tuple[str, int]:
    """The first duplicate key in an object of this valid JSON, and its offset."""
    objects: list[set[str]] = []
    for token in TOKEN.finditer(text):
        if token[0] in ("{", "["):
            objects.append(set())
        elif token[0] in ("}", "]"):
            objects.pop()
        elif token[2]:
            key = json.loads(token[1])
            if key in objects[-1]:
                return key, token.start()
            objects[-1].add(key)
    raise LookupError("no key is given twice")


def walk(text: str, steps: Steps) -> Iterator[tuple[Steps, int]]:
    """The offset of each existing part of the path `steps`: a key, or a list's item."""
    decode = json.JSONDecoder().raw_decode
    at = _skip(text, 0)
    yield (), at
    for depth, step in enumerate(steps):
        if text[at] not in "{[":
            return
        keyed = text[at] == "{"
        at, index, place_found = _skip(text, at + 1), 0, None
        while text[at] not in "}]":
            start, name = at, index
            if keyed:
                name, at = decode(text, at)
                at = _skip(text, _skip(text, at) + 1)
            if name == step:
                place_found = (start, at)
            at = _skip(text, decode(text, at)[1])
            at = _skip(text, at + 1) if text[at] == "," else at
            index += 1
        if place_found is None:
            return
        yield steps[: depth + 1], place_found[0]
        at = place_found[1]


def _skip(text: str, at: int) -> int:
    space = SPACE.match(text, at)
    return space.end() if space else at


@dataclass(frozen=True, slots=True)
class PythonPlace:
    """The first of `words` that is a text constant or an assigned name in the file, else its
    start."""

    text: str
    file: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        places = _index(self.text)
        for word in self.words:
            if word in places:
                return str(Place(*places[word], self.file))
        return str(Place(1, 1, self.file))


def _index(text: str) -> dict[str, tuple[int, int]]:
    places: dict[str, tuple[int, int]] = {}
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return places
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            places.setdefault(node.value, (node.lineno, node.col_offset + 1))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            places.setdefault(node.id, (node.lineno, node.col_offset + 1))
    return places
