"""Lines of a plan as a terminal shows them: in colour, and wrapped where it ends. Pure.

A line is what its beginning says: `# ` a heading, `## ` a remark, `+` and `-` what will be and what
is, `$ ` a command. Nothing is cut; the rest of a line that is too long begins with `MORE`, which
begins nothing else: text of a file cannot pass for a line of nodevet's.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from nodevet.base.printable import ELLIPSIS, cells, cut
from nodevet.fixing.model import Risk
from nodevet.sheet.text import GAP, column, count, nodeset, pad, wrap

MORE = "↪ "
INDENT = "      "
NARROWEST = 24  # columns that text keeps, however narrow the terminal

_RED, _GREEN, _YELLOW, _BOLD, _DIM = "31", "32", "33", "1", "2"
_RISKS = {Risk.REBOOT.value: _RED, Risk.DRAIN.value: _YELLOW}
_RISK = re.compile(r"\brisk +(reboot|drain)\b")


def screen(lines: Iterable[str], *, colour: bool = False, width: int | None = None) -> str:
    """Printable lines as text that ends in a newline. `width`: columns; None is a pipe."""
    rows = [row for line in lines for row in _rows(line, colour, width)]
    return "\n".join(rows).rstrip("\n") + "\n" if any(rows) else ""


class Row(NamedTuple):
    """One line of a table. Texts are printable, `hosts` are raw."""

    cells: Sequence[str]
    hosts: Sequence[str]
    subjects: str = ""  # `GPU 4`, `56 GPUs`
    note: str = ""


def table(rows: Sequence[Row], width: int | None = None, margin: str = "") -> Iterator[str]:
    """Rows with their columns under one another. If one is too wide its note is below it, whole,
    and its hosts are cut: why something is as it is counts for more than the last of many hosts."""
    widths = [column(each) for each in zip(*(row.cells for row in rows), strict=True)]
    wheres = [" ".join(filter(None, (nodeset(row.hosts), row.subjects))) for row in rows]
    widest = column(wheres)
    for row, where in zip(rows, wheres, strict=True):
        padded = [pad(cell, each) for cell, each in zip(row.cells, widths, strict=True) if each]
        lead = margin + GAP.join(padded)
        line = GAP.join([lead, pad(where, widest), row.note]).rstrip()
        if width is not None and cells(line) > width:
            line = GAP.join(filter(None, (lead.rstrip(), where, row.note)))
        if width is None or cells(line) <= width:
            yield line
            continue
        short = [*wrap(lead, width)] if cells(lead) + NARROWEST > width else [lead.rstrip()]
        yield from short[:-1]
        room = width - cells(short[-1]) - len(GAP)
        yield f"{short[-1]}{GAP}{fitted(row.hosts, row.subjects, room)}"
        yield from (
            INDENT + part for part in wrap(row.note, max(NARROWEST, width - len(INDENT))) if part
        )


def fitted(hosts: Sequence[str], subjects: str, room: int) -> str:
    """Hosts and subjects in so many columns: if need be the beginning of the hosts, and how many
    they are."""
    tail = f" {subjects}" if subjects else ""
    where = nodeset(hosts)
    if cells(where + tail) <= max(NARROWEST, room):
        return where + tail
    tail = f" ({count(len(set(hosts)), 'host')}){tail}"
    room = max(NARROWEST, room) - cells(tail)
    return cut(where, max(NARROWEST // 2, room)).removesuffix(ELLIPSIS) + ELLIPSIS + tail


def flowed(text: str, room: int) -> list[str]:
    """As `wrap`; what stands between two ` · ` stays on one line if it can."""
    rows: list[str] = []
    for piece in text.split(" · "):
        if rows and cells(f"{rows[-1]} · {piece}") <= room:
            rows[-1] += f" · {piece}"
        else:
            rows += wrap(piece if not rows else f"· {piece}", room)
    return rows


def labelled(rows: Iterable[tuple[str, str]], width: int | None = None) -> Iterator[str]:
    """`hosts      gpu[001-007]`, its text under itself where it goes on."""
    told = list(rows)
    margin = max((len(label) for label, _ in told), default=0) + len(GAP)
    for label, text in told:
        parts = [text] if width is None else flowed(text, max(NARROWEST, width - margin))
        for place, part in enumerate(parts):
            yield pad("" if place else label, margin) + part


def _rows(line: str, colour: bool, width: int | None) -> Iterator[str]:
    tint = _tint(line)
    for row in _wrapped(line, width):
        yield _painted(row, tint) if colour and row else row


def _wrapped(line: str, width: int | None) -> Iterator[str]:
    if width is None or cells(line) <= width:
        yield line
    elif line.startswith("#"):
        mark, _, text = line.partition(" ")
        for row in wrap(text, max(NARROWEST, width - len(mark) - 1)):
            yield f"{mark} {row}"
    elif line[:1] in ("+", "-", "$", "@", " ", "\\"):
        yield from _broken(line, max(NARROWEST, width))
    else:
        first, *rest = flowed(line, max(NARROWEST, width - len(INDENT)))
        yield from (first, *(INDENT + row for row in rest))


def _broken(line: str, width: int) -> Iterator[str]:
    """Rows that end after a space or a comma if there is one near, and in any case in time; all of
    the line is in them."""
    room, row, used = width, "", 0
    for character in line:
        wide = cells(character)
        if used + wide > room:
            end = 1 + max(row.rfind(" "), row.rfind(","))
            end = end if end > room // 2 else len(row)
            yield row[:end]
            row = MORE + row[end:]
            room, used = width, cells(row)
        row += character
        used += wide
    yield row


def _tint(line: str) -> str:
    if line.startswith(("# ", "--- ", "+++ ")):
        return _BOLD
    if line.startswith(("## ", "@@")):
        return _DIM
    if line.endswith(":") and line[:1] not in "+-$ ":
        return _BOLD
    return {"+": _GREEN, "-": _RED}.get(line[:1], "")


def _painted(row: str, tint: str) -> str:
    if not row.startswith(("+", "-", "$", MORE)) and (found := _RISK.search(row)):
        before, word, after = row[: found.start()], found[0], row[found.end() :]
        return _sgr(before, tint) + _sgr(word, _RISKS[found[1]]) + _sgr(after, tint)
    return _sgr(row, tint)


def _sgr(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if text and code else text
