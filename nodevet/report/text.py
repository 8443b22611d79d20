"""Text from a node, made safe to print and kept readable. Pure.

A node may send anything: escape sequences that repaint the terminal, newlines
that forge a line of the report, bidi marks that swap what is read, surrogates
that no file can hold. `plain` shows each of them as a visible escape.
"""

import re
import unicodedata
from collections.abc import Iterable

from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from ClusterShell.RangeSet import RangeSet

ELLIPSIS = "…"

_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_FOLDABLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NUMBERS = re.compile(r"(\d+)")
_MANY = 200  # hosts; folding along every number takes time with the square of them


def plain(text: str) -> str:
    """One printable line: what cannot be seen, or changes what is seen, is escaped.

    >>> plain("H100\\x1b[2K\\n")
    'H100\\\\x1b[2K\\\\n'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _visible(c) for c in text)


def _visible(character: str) -> str:
    if character in _NAMED:
        return _NAMED[character]
    number = ord(character)
    if number < 0x100:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def name(host: str) -> str:
    """A host's name, printable. Two different hosts never print alike."""
    return plain(host.replace("\\", "\\\\"))


def cells(text: str) -> int:
    """How many terminal columns `text` takes; wide characters take two, accents none."""
    if text.isascii():
        return len(text)
    return sum(_cells(character) for character in text)


def _cells(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, limit: int) -> str:
    """At most `limit` columns of `text`; what was cut shows as …"""
    if cells(text) <= limit:
        return text
    kept, used = [], 1
    for character in text:
        used += _cells(character)
        if used > limit:
            break
        kept.append(character)
    return "".join(kept) + ELLIPSIS


def brief(text: str, limit: int) -> str:
    """`plain` and `cut` in one, at a cost that does not grow with a text of megabytes."""
    return cut(plain(text[: limit + 1]), limit)


def cut_pair(one: str, other: str, limit: int) -> tuple[str, str]:
    """Two unequal texts, each cut to `limit` such that their first difference stays in view."""
    shared = next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
    lead = max(0, shared - limit // 3)
    if lead == 0 or max(cells(one), cells(other)) <= limit:
        return cut(one, limit), cut(other, limit)
    return cut(ELLIPSIS + one[lead:], limit), cut(ELLIPSIS + other[lead:], limit)


def pad(text: str, width: int) -> str:
    """`text` followed by spaces up to `width` columns."""
    return text + " " * (width - cells(text))


def wrap(text: str, room: int) -> list[str]:
    """Lines of at most `room` columns, broken after spaces and commas; nothing is lost.

    A single word that is wider than `room` keeps its line to itself.
    """
    rows = [""]
    for piece in re.findall(r"[^ ,]*[ ,]+|[^ ,]+", text):
        if rows[-1] and cells(rows[-1] + piece.rstrip()) > room:
            rows.append("")
        rows[-1] += piece
    return [row.rstrip() for row in rows]


def nodeset(hosts: Iterable[str]) -> str:
    """Hosts folded as a nodeset: `gpu[001-004,007]`.

    A name that a nodeset cannot hold (spaces, brackets, hostile bytes) follows
    unfolded, printable and in quotes.
    """
    unique = list(dict.fromkeys(hosts))
    foldable = [host for host in unique if _FOLDABLE.fullmatch(host)]
    others = sorted(f'"{name(host)}"' for host in unique if not _FOLDABLE.fullmatch(host))
    if not foldable:
        return ", ".join(others)
    fold = _fold if len(foldable) <= _MANY else _fold_one_number
    return ", ".join([fold(foldable), *others])


def _fold(hosts: list[str]) -> str:
    return str(NodeSet.fromlist(hosts, resolver=RESOLVER_NOGROUP))


def _fold_one_number(hosts: list[str]) -> str:
    """Folds names along one of their numbers: the one that leaves the fewest parts."""
    split = [_NUMBERS.split(host) for host in hosts]
    axes = range(1, max(3, *map(len, split)), 2)
    folded = sorted((_folded_along(split, axis) for axis in axes), key=len)
    return ",".join(folded[0])


def _folded_along(split: list[list[str]], axis: int) -> list[str]:
    parts: dict[tuple[str, str], list[str]] = {}
    for pieces in (pieces for pieces in split if len(pieces) > axis):
        ends = "".join(pieces[:axis]), "".join(pieces[axis + 1 :])
        parts.setdefault(ends, []).append(pieces[axis])
    folded = [
        head + (f"[{RangeSet.fromlist(numbers)}]" if len(numbers) > 1 else numbers[0]) + tail
        for (head, tail), numbers in parts.items()
    ]
    return folded + ["".join(pieces) for pieces in split if len(pieces) <= axis]


def count(number: int, noun: str, plural: str = "") -> str:
    """`1 host`, `2,000 hosts`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def duration(seconds: float) -> str:
    """`4.1 s`, `12 min 5 s`, `2 h 3 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
