"""Strip unused functions, classes, constants and imports from a module's source. Pure.

Most of the time to import pynvml on a node is compiling it, and the probe uses a tenth of it.
"""

import re
from bisect import bisect
from collections.abc import Iterable, Iterator
from functools import cache
from types import CodeType

_WORD = re.compile(r"[A-Za-z_]\w*")
_DEFINED = re.compile(
    r"(?:def|class) (?P<made>\w+)|(?P<set>[A-Z]\w*) *=[^=]|(?:from [\w.]+ )?import (?P<taken>\w+)$"
)
_BEGINNING = re.compile(r"[A-Z]+_[A-Z]\w*")  # NVML_BRAND_, from which the code builds names


def slim(source: str, wanted_names: Iterable[str]) -> str:
    """The source with only those definitions and imports that have these names, or that a kept part
    refers to; other statements stay. In doubt a definition stays, as do all constants that begin
    with one of the names: NVML_BRAND_ or NVML_FI_DEV_NVLINK_SPEED_MBPS_L."""
    parts = [(_name(part), part) for part in _parts(source)]
    defined: dict[str, list[str]] = {}
    for name, part in parts:
        defined.setdefault(name, []).append(part)
    queue = [word for part in defined.pop("", ()) for word in _WORD.findall(part)]
    queue += wanted_names
    names = sorted(defined)
    used = {""}
    while queue:
        word = queue.pop()
        if word in used:
            continue
        if word in defined:
            used.add(word)
            queue += [other for part in defined[word] for other in _WORD.findall(part)]
        elif _BEGINNING.fullmatch(word):
            queue += names[bisect(names, word) : bisect(names, f"{word}~")]
    slimmer = "".join(part for name, part in parts if name in used)
    return slimmer if compiled(slimmer) else source  # which has another layout


@cache
def compiled(source: str) -> CodeType | None:
    """The code of a module; None if Python cannot compile it."""
    try:
        return compile(source, "", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return None


def words(sources: Iterable[str]) -> set[str]:
    """Every name in these sources, also in their strings."""
    return {word for source in sources for word in _WORD.findall(source)}


def _parts(source: str) -> Iterator[str]:
    """Each line that begins at the margin, with the indented lines below it and its decorators."""
    part: list[str] = []
    decorated = False
    for line in source.splitlines(keepends=True):
        is_start = not line[0].isspace() and line[0] not in "#)]}"
        if is_start and not decorated and part:
            yield "".join(part)
            part = []
        if is_start:
            decorated = line[0] == "@"
        part.append(line)
    yield "".join(part)


def _name(part: str) -> str:
    """The name of a function, class, constant or import; "" for other parts."""
    lines = part.splitlines()
    heads = [line for line in lines if line and not line[0].isspace() and line[0] not in "#)]}@"]
    match = _DEFINED.match(heads[0]) if len(heads) == 1 else None
    return match[match.lastgroup or 0] if match else ""
