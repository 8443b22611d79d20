"""A module's source without the functions, classes, constants and imports that are not used.
Pure.

Compiling takes most of the time that importing pynvml takes on a node, and the probe asks for a
tenth of it.
"""

import ast
import re
from collections.abc import Iterable, Iterator

_WORD = re.compile(r"[A-Za-z_]\w*")
_DEFINED = re.compile(
    r"(?:def|class) (?P<made>\w+)|(?P<set>[A-Z]\w*) *=[^=]|(?:from [\w.]+ )?import (?P<taken>\w+)$"
)
_BEGINNING = re.compile(r"[A-Z]+_[A-Z]\w*")  # NVML_BRAND_, of which the code makes names


def slim(source: str, asked: Iterable[str]) -> str:
    """The source with what is asked for by name, what that refers to, and all that is no function,
    class, constant or import of the module. In doubt, a definition stays: so do all constants
    whose names begin as asked for, NVML_BRAND_ or NVML_FI_DEV_NVLINK_SPEED_MBPS_L."""
    parts = [(_name(part), part) for part in _parts(source)]
    defined: dict[str, list[str]] = {}
    for name, part in parts:
        defined.setdefault(name, []).append(part)
    left = [word for part in defined.pop("", ()) for word in _WORD.findall(part)]
    left += asked
    kept = {""}
    while left:
        word = left.pop()
        if word in kept:
            continue
        if word in defined:
            kept.add(word)
            left += [each for part in defined[word] for each in _WORD.findall(part)]
        elif _BEGINNING.fullmatch(word):
            left += [name for name in defined if name.startswith(word)]
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
    """Of the function, class, constant or import that it is; empty if it is none, or more."""
    lines = part.splitlines()
    heads = [line for line in lines if line and not line[0].isspace() and line[0] not in "#)]}@"]
    found = _DEFINED.match(heads[0]) if len(heads) == 1 else None
    return found[found.lastgroup or 0] if found else ""
