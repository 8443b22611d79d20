"""Lay out differences for a terminal of some width or for a pipe. Pure.

A row is one line if it fits: label, name, what differs, hosts and parts, and remarks. What does not
fit continues below its row; nothing is cut, except since when an old difference exists. Advice is
printed once for each kind of difference.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from nodevet.base.printable import cells
from nodevet.sheet.model import DifferenceBlock, DifferenceRow
from nodevet.sheet.text import DIM, GAP, TONES, WIDEST, column, nodeset, pad, sgr, wrap

NARROWEST = 24  # columns for hosts beside a difference; with fewer they go below it
MOST = 3  # lines of hosts beside a difference; if there are more, they go below it
INDENT = 2  # columns of lines below a row, from its name on


class _Columns(NamedTuple):
    """The widths of the columns that rows are aligned to; `terminal` is its width, or None."""

    label: int
    name: int
    text: int
    hosts: int  # digits of the largest number of hosts; 0 if every row has one host
    where: int
    terminal: int | None

    def fits(self, line: str) -> bool:
        return self.terminal is None or cells(line.rstrip()) <= self.terminal

    def lines_below(self, text: str) -> list[str]:
        """A text below its row, on as many lines as it needs."""
        margin = " " * (self.label + len(GAP) + INDENT)
        if not text or self.terminal is None:
            return [margin + text] if text else []
        return [margin + line for line in wrap(text, max(NARROWEST, self.terminal - len(margin)))]


def grid(block: DifferenceBlock, *, colour: bool, width: int | None) -> list[str]:
    """The lines of a table; `width` in columns."""
    columns = _columns(block.rows, width)
    advised: set[object] = set()
    lines_out: list[str] = []
    for row in block.rows:
        first, *more = _row(row, columns)
        if colour:
            first = sgr(row.label, TONES[row.tone]) + first[len(row.label) :]
        lines_out += [first, *more]
        kind = row.name, row.needs, row.advice
        if (row.needs or row.advice) and kind not in advised:
            advised.add(kind)
            lines = _advice(row, columns) if block.whole else _short(row, columns)
            lines_out += [sgr(line, DIM) if colour else line for line in lines]
    return [line.rstrip() for line in lines_out]


def _columns(rows: Sequence[DifferenceRow], width: int | None) -> _Columns:
    label = max((cells(row.label) for row in rows), default=0)
    name = max((cells(row.name) for row in rows), default=0)
    taken = label + name + 3 * len(GAP)
    limit = WIDEST if width is None else min(WIDEST, width - taken - NARROWEST)
    text = column((row.text for row in rows if row.name), limit)
    hosts = max((len(row.hosts) for row in rows), default=0)
    digits = len(f"{hosts:,}") if hosts > 1 else 0
    where = column(_place_text(row, digits) for row in rows)
    return _Columns(label, name, text, digits, where, width)


def _place_text(row: DifferenceRow, digits: int) -> str:
    """The hosts and the parts: `gpu004 GPU 0-7`, `20 hosts  gpu[001-020]  40 GPUs`."""
    between = " " if row.named else GAP
    where = nodeset(row.hosts) + (between + row.parts if row.parts else "")
    noun = "host " if len(row.hosts) == 1 else "hosts"
    return f"{len(row.hosts):>{digits},} {noun}{GAP}{where}" if digits else where


def _join(*parts: str) -> str:
    return GAP.join(part for part in parts if part)


def _row(row: DifferenceRow, columns: _Columns) -> list[str]:
    lead = pad(row.label, columns.label) + GAP
    middle = columns.text
    if row.name:
        lead += pad(row.name, columns.name) + GAP
    else:
        middle += columns.name + len(GAP)
    text, where = pad(row.text, middle), _place_text(row, columns.hosts)
    marks, remark = _join(row.new, row.level), "; ".join(filter(None, (row.since, row.note)))
    below_row = remark if row.new or row.note else ""  # since when an old one exists has no line
    rest, beside = _join(marks, below_row), _join(marks, remark)
    for hosts, right, below in (
        (pad(where, columns.where), beside, ""),
        (where, beside, ""),
        (pad(where, columns.where), marks, below_row),
        (where, marks, below_row),
        (where, "", rest),
    ):
        line = lead + _join(text, hosts, right)
        if columns.fits(line):
            return [line, *columns.lines_below(below)]
    indent = cells(lead + text + GAP)
    wrapped = wrap(where.lstrip(), max(NARROWEST, (columns.terminal or 0) - indent))
    if len(wrapped) <= MOST and columns.fits(" " * indent + max(wrapped, key=cells)):
        first, *more = wrapped
        first = f"{lead}{text}{GAP}{first}"
        return [first, *(" " * indent + line for line in more), *columns.lines_below(rest)]
    indent = cells(lead)
    first, *more = wrap(row.text, max(NARROWEST, (columns.terminal or 0) - indent))
    hanging = [" " * indent + line for line in more]
    return [
        lead + first,
        *hanging,
        *columns.lines_below(where.lstrip()),
        *columns.lines_below(rest),
    ]


def _advice(row: DifferenceRow, columns: _Columns) -> list[str]:
    if not row.advice:
        return columns.lines_below(row.needs)
    head = row.needs or "advice"
    return [line for text in row.advice for line in columns.lines_below(f"{head}: {text}")]


def _short(row: DifferenceRow, columns: _Columns) -> list[str]:
    """What it needs, the first advice and the command that shows the rest, as much as fits on one
    line."""
    hint, head = f"`{row.command}`", row.needs or "advice"
    if not row.advice:
        line = columns.lines_below(f"{head}: {hint}")
        return line if len(line) == 1 else columns.lines_below(head)
    first = re.split(r"; |\. ", row.advice[0])[0]
    shorter = first.split(": ")[0]
    shortest = shorter.split(", ")[0]
    for text in (f"{first}: {hint}", f"{shorter}: {hint}", first, shorter, shortest, hint):
        line = columns.lines_below(f"{head}: {text}")
        if len(line) == 1 and columns.fits(line[0]):
            return line
    return []
