"""Differences under one another, for a terminal of so many columns or for a pipe. Pure.

A row is one line if it has room: label, name, what differs, hosts and parts, and what else is
said. What has no room goes on below its row, whole; nothing is cut, but for since when an old
difference stands. Advice is told once for each kind of difference.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nodevet.base.printable import cells
from nodevet.sheet.colours import DIM, TONES, sgr
from nodevet.sheet.model import DifferenceBlock, DifferenceRow
from nodevet.sheet.text import GAP, WIDEST, nodeset, pad, wrap

NARROWEST = 24  # columns for hosts beside a difference, or they stand below it
MOST = 3  # lines of hosts beside a difference, or they stand below it
INDENT = 2  # columns of what stands below a row, from its name on


class _Columns(NamedTuple):
    """The widths of the columns that rows are aligned to; `whole` is the terminal's, or None."""

    label: int
    name: int
    text: int
    hosts: int  # digits of how many a row has; 0 if every row names one alone
    where: int
    whole: int | None

    def fits(self, line: str) -> bool:
        return self.whole is None or cells(line.rstrip()) <= self.whole

    def below(self, text: str) -> list[str]:
        """A text under its row, on as many lines as it needs."""
        margin = " " * (self.label + len(GAP) + INDENT)
        if not text or self.whole is None:
            return [margin + text] if text else []
        return [margin + line for line in wrap(text, max(NARROWEST, self.whole - len(margin)))]


def grid(block: DifferenceBlock, *, colour: bool, width: int | None) -> list[str]:
    """The lines of a table; `width` in columns."""
    columns = _columns(block.rows, width)
    told: set[object] = set()
    out: list[str] = []
    for row in block.rows:
        first, *more = _row(row, columns)
        if colour:
            first = sgr(row.label, TONES[row.tone]) + first[len(row.label) :]
        out += [first, *more]
        kind = row.name, row.advice
        if row.advice and kind not in told:
            told.add(kind)
            lines = _advice(row, columns) if block.whole else _short(row, columns)
            out += [sgr(line, DIM) if colour else line for line in lines]
    return [line.rstrip() for line in out]


def _columns(rows: Sequence[DifferenceRow], width: int | None) -> _Columns:
    label = max((cells(row.label) for row in rows), default=0)
    name = max((cells(row.name) for row in rows), default=0)
    left = label + name + 3 * len(GAP)
    most = WIDEST if width is None else min(WIDEST, width - left - NARROWEST)
    text = _widest((row.text for row in rows if row.name), most)
    hosts = max((len(row.hosts) for row in rows), default=0)
    digits = len(f"{hosts:,}") if hosts > 1 else 0
    where = _widest((_where(row, digits) for row in rows), WIDEST)
    return _Columns(label, name, text, digits, where, width)


def _widest(texts: Iterable[str], most: int) -> int:
    """The width that texts are aligned to; a longer one moves its own line only."""
    return max((width for width in map(cells, texts) if width <= most), default=0)


def _where(row: DifferenceRow, digits: int) -> str:
    """The hosts and the parts: `gpu004 GPU 0-7`, `20 hosts  gpu[001-020]  40 GPUs`."""
    between = " " if row.named else GAP
    where = nodeset(row.hosts) + (between + row.parts if row.parts else "")
    noun = "host " if len(row.hosts) == 1 else "hosts"
    return f"{len(row.hosts):>{digits},} {noun}{GAP}{where}" if digits else where


def _joined(*parts: str) -> str:
    return GAP.join(part for part in parts if part)


def _row(row: DifferenceRow, columns: _Columns) -> list[str]:
    lead = pad(row.label, columns.label) + GAP
    middle = columns.text
    if row.name:
        lead += pad(row.name, columns.name) + GAP
    else:
        middle += columns.name + len(GAP)
    text, where = pad(row.text, middle), _where(row, columns.hosts)
    marks, remark = _joined(row.new, row.level), "; ".join(filter(None, (row.since, row.note)))
    under = remark if row.new or row.note else ""  # since when an old one stands needs no line
    rest, beside = _joined(marks, under), _joined(marks, remark)
    for hosts, right, below in (
        (pad(where, columns.where), beside, ""),
        (where, beside, ""),
        (pad(where, columns.where), marks, under),
        (where, marks, under),
        (where, "", rest),
    ):
        line = lead + _joined(text, hosts, right)
        if columns.fits(line):
            return [line, *columns.below(below)]
    indent = cells(lead + text + GAP)
    wrapped = wrap(where.lstrip(), max(NARROWEST, (columns.whole or 0) - indent))
    if len(wrapped) <= MOST and columns.fits(" " * indent + max(wrapped, key=cells)):
        first, *more = wrapped
        first = f"{lead}{text}{GAP}{first}"
        return [first, *(" " * indent + line for line in more), *columns.below(rest)]
    indent = cells(lead)
    first, *more = wrap(row.text, max(NARROWEST, (columns.whole or 0) - indent))
    hanging = [" " * indent + line for line in more]
    return [lead + first, *hanging, *columns.below(where.lstrip()), *columns.below(rest)]


def _advice(row: DifferenceRow, columns: _Columns) -> list[str]:
    return [line for text in row.advice for line in columns.below(f"advice: {text}")]


def _short(row: DifferenceRow, columns: _Columns) -> list[str]:
    """What to do first, and where the rest is said; on one line, so as much of it as has room."""
    more = f"`{row.command}`"
    first = re.split(r"; |\. ", row.advice[0])[0]
    briefer = first.split(": ")[0]
    least = briefer.split(", ")[0]
    for text in (f"{first}: {more}", f"{briefer}: {more}", first, briefer, least, more):
        line = columns.below(f"advice: {text}")
        if len(line) == 1 and columns.fits(line[0]):
            return line
    return []
