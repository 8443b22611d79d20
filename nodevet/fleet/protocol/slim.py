"""A module's source without the functions and classes that nobody asks for. Pure.

Compiling takes most of the time that importing pynvml takes on a node, and the probe asks for a
tenth of it.
"""

import ast
import re
from collections.abc import Iterable, Iterator

_WORD = re.compile(r"[A-Za-z_]\w*")
_DEFINED = re.compile(r"(?:def|class) (\w+)")


def slim(source: str, asked: Iterable[str]) -> str:
    """The source with what is asked for by name, what that refers to, and all that is neither a
    function nor a class of the module. In doubt, a definition stays."""
    parts = [(_name(part), part) for part in _parts(source)]
    defined: dict[str, list[str]] = {}
    for name, part in parts:
        defined.setdefault(name, []).append(part)
    left = [word for part in defined.pop("", ()) for word in _WORD.findall(part)]
    left += asked
    kept = {""}
    while left:
        word = left.pop()
        if word in defined and word not in kept:
            kept.add(word)
            left += [each for part in defined[word] for each in _WORD.findall(part)]
    slimmer = "".join(part for name, part in parts if name in kept)
    try:
        ast.parse(slimmer)
    except SyntaxError:  # it is laid out in another way: then all of it
        return source
    return slimmer


def words(sources: Iterable[str]) -> set[str]:
    """Every name that stands in these sources, in their texts too."""
    return {word for source in sources for word in _WORD.findall(source)}


def _parts(source: str) -> Iterator[str]:
    """A line that begins at the margin, with what is indented below it, or a decorator before."""
    part: list[str] = []
    decorated = False
    for line in source.splitlines(keepends=True):
        begins = not line[0].isspace() and line[0] not in "#)]}"
        if begins and not decorated and part:
            yield "".join(part)
            part = []
        if begins:
            decorated = line[0] == "@"
        part.append(line)
    yield "".join(part)


def _name(part: str) -> str:
    """Of the function or class that it is; empty if it is neither, or more than that."""
    lines = part.splitlines()
    heads = [line for line in lines if line and not line[0].isspace() and line[0] not in "#)]}@"]
    found = _DEFINED.match(heads[0]) if len(heads) == 1 else None
    return found[1] if found else ""
