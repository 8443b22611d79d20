"""Lay out printable text: pad, wrap, fold hosts as nodesets, count nouns. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence

from nodevet.base.printable import ELLIPSIS, cells, cut, plain

RED, YELLOW, MAGENTA, GREEN, DIM, BOLD = "31", "33", "35", "32", "2", "1"
TONES = {
    "fail": RED,
    "warning": YELLOW,
    "unknown": MAGENTA,
    "unreached": MAGENTA,
    "info": DIM,
    "alert": BOLD,
    "ok": GREEN,
    "waived": DIM,
    "quiet": DIM,
    "strong": BOLD,
}
"""The colour of each tone of a cell or a paragraph."""
_FOLDABLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NUMBERS = re.compile(r"(\d+)")
GAP = "  "
WIDEST = 60  # columns that a column aligns to; a longer cell pushes its own line only
MORE = "↪ "
"""The beginning of a continued line, with which no line of a file begins that nodevet shows."""
NARROWEST = 24  # columns of broken lines, even in a narrower terminal
_MANY = 200  # hosts; the time to fold along every number grows with their square


def name(host: str) -> str:
    """A host's printable name, which no other host shares."""
    return plain(host.replace("\\", "\\\\"))


def cut_pair(first: str, second: str, limit: int) -> tuple[str, str]:
    """Two unequal texts, each cut to `limit` such that their first difference stays in view."""
    shared = next(
        (place for place, (a, b) in enumerate(zip(first, second, strict=False)) if a != b),
        min(len(first), len(second)),
    )
    lead = max(0, shared - limit // 3)
    if lead == 0 or max(cells(first), cells(second)) <= limit:
        return cut(first, limit), cut(second, limit)
    return cut(ELLIPSIS + first[lead:], limit), cut(ELLIPSIS + second[lead:], limit)


def pad(text: str, width: int) -> str:
    """`text` followed by spaces up to `width` columns."""
    return text + " " * (width - cells(text))


def column(texts: Iterable[str], limit: int = WIDEST) -> int:
    """The width of a column of texts; one wider than `limit` moves its own line only."""
    return max((width for width in map(cells, texts) if width <= limit), default=0)


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows of printable cells in aligned columns; the last column is not padded."""
    widths = [column(texts) for texts in zip(*rows, strict=True)]
    padded = (
        [pad(cell, width) for cell, width in zip(row, widths, strict=True) if width or cell]
        for row in rows
    )
    return [GAP.join(row).rstrip() for row in padded]


def wrap(text: str, room: int) -> list[str]:
    """Lines of at most `room` columns, broken after spaces and commas; nothing is lost.

    A word wider than `room` has a line of its own.
    """
    rows = [""]
    for piece in re.findall(r"[^ ,]*[ ,]+|[^ ,]+", text):
        if rows[-1] and cells(rows[-1] + piece.rstrip()) > room:
            rows.append("")
        rows[-1] += piece
    return [row.rstrip() for row in rows]


def break_line(line: str, width: int | None) -> Iterator[str]:
    """Rows of at most `width` columns that hold all of the line. A row ends after a space or a
    comma if one is near; each but the first begins with MORE."""
    if width is None or cells(line) <= width:
        yield line
        return
    room = max(NARROWEST, width)
    row, used = "", 0
    for character in line:
        wide = cells(character)
        if used + wide > room:
            end = 1 + max(row.rfind(" "), row.rfind(","))
            end = end if end > room // 2 else len(row)
            yield row[:end]
            row = MORE + row[end:]
            used = cells(row)
        row += character
        used += wide
    yield row


def nodeset(hosts: Iterable[str]) -> str:
    """Hosts folded as a nodeset: `gpu[001-004,007]`.

    Names that a nodeset cannot hold (spaces, brackets, hostile bytes) follow unfolded, printable
    and in quotes.
    """
    unique = list(dict.fromkeys(hosts))
    foldable = [host for host in unique if _FOLDABLE.fullmatch(host)]
    others = sorted(f'"{name(host)}"' for host in unique if not _FOLDABLE.fullmatch(host))
    if not foldable:
        return ", ".join(others)
    if len(unique) == 1:
        return foldable[0]
    fold = _fold if len(foldable) <= _MANY else _fold_one_number
    return ", ".join([fold(foldable), *others])


def _fold(hosts: list[str]) -> str:
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet  # as long as the rest of a report

    return str(NodeSet.fromlist(hosts, resolver=RESOLVER_NOGROUP))


def _fold_one_number(hosts: list[str]) -> str:
    """Fold names along one of their numbers, the one that leaves the fewest parts."""
    split = [_NUMBERS.split(host) for host in hosts]
    axes = range(1, max(3, *map(len, split)), 2)
    folded = sorted((_folded_along(split, axis) for axis in axes), key=len)
    return ",".join(folded[0])


def _folded_along(split: list[list[str]], axis: int) -> list[str]:
    from ClusterShell.RangeSet import RangeSet

    parts: dict[tuple[str, str], list[str]] = {}
    for pieces in (pieces for pieces in split if len(pieces) > axis):
        ends = "".join(pieces[:axis]), "".join(pieces[axis + 1 :])
        parts.setdefault(ends, []).append(pieces[axis])
    folded = [
        head + (f"[{RangeSet.fromlist(numbers)}]" if len(numbers) > 1 else numbers[0]) + tail
        for (head, tail), numbers in parts.items()
    ]
    return folded + ["".join(pieces) for pieces in split if len(pieces) <= axis]


def count(number: int, noun: str, several: str = "") -> str:
    """`1 host`, `2,000 hosts`, `3 processes`."""
    return f"{number:,} {noun if number == 1 else several or plural(noun)}"


def plural(noun: str) -> str:
    """The regular plural of an English noun.

    >>> [plural(noun) for noun in ("nvlink", "process", "nvswitch", "policy", "GPU")]
    ['nvlinks', 'processes', 'nvswitches', 'policies', 'GPUs']
    """
    if noun.endswith("y") and noun[-2:-1] not in {*"aeiou"}:
        return f"{noun[:-1]}ies"
    return noun + ("es" if noun.endswith(("s", "x", "z", "ch", "sh")) else "s")


def after_label(label: str, why: str) -> str:
    """A reason for display under a label, without repeating the label.

    >>> after_label("timed out", "timed out after 10 s (connecting)")
    'after 10 s (connecting)'
    """
    rest = why[len(label) :]
    if why[: len(label)].lower() != label.lower() or not rest.startswith((" ", ": ")):
        return why
    return rest.removeprefix(":").strip() or why


def sgr(text: str, code: str) -> str:
    """Text in a colour, or a weight, of a terminal."""
    return f"\x1b[{code}m{text}\x1b[0m"
