"""Folded lines under one another, for a terminal of so many columns or for a pipe. Pure.

A row is one line if it has room: verdict, check, what differs, hosts and parts, and what else is
said. What has no room goes on below its row, whole; nothing is cut. Advice is told once for each
kind of fault.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nodevet.base.printable import cells
from nodevet.model import Severity
from nodevet.sheet.colours import DIM, MAGENTA, RED, YELLOW, sgr
from nodevet.sheet.text import GAP, WIDEST, nodeset, pad, wrap
from nodevet.vet.findings.fold import Line

NARROWEST = 24  # columns for hosts beside a difference, or they stand below it
MOST = 3  # lines of hosts beside a difference, or they stand below it
INDENT = 2  # columns of what stands below a row, from its check on


class _Columns(NamedTuple):
    """The widths of the columns that rows are aligned to; `whole` is the terminal's, or None."""

    label: int
    check: int
    what: int
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


def grid(rows: Sequence[Line], *, colour: bool, width: int | None, advice: str) -> list[str]:
    """The lines of a table. `advice` is short, full or none; `width` in columns."""
    columns = _columns(rows, width)
    told: set[object] = set()
    out: list[str] = []
    for row in rows:
        first, *more = _row(row, columns)
        if colour:
            first = sgr(row.label, _tint(row)) + first[len(row.label) :]
        out += [first, *more]
        kind = row.check, row.advice
        if row.advice and advice != "none" and kind not in told:
            told.add(kind)
            lines = _advice(row, columns) if advice == "full" else _short(row, columns)
            out += [sgr(line, DIM) if colour else line for line in lines]
    return [line.rstrip() for line in out]


def _columns(rows: Iterable[Line], width: int | None) -> _Columns:
    rows = tuple(rows)
    label = max((cells(row.label) for row in rows), default=0)
    check = max((cells(row.check) for row in rows), default=0)
    left = label + check + 3 * len(GAP)
    most = WIDEST if width is None else min(WIDEST, width - left - NARROWEST)
    what = _widest((row.what for row in rows if row.check), most)
    return _Columns(label, check, what, _widest(map(_where, rows), WIDEST), width)


def _widest(texts: Iterable[str], most: int) -> int:
    """The width that texts are aligned to; a longer one moves its own line only."""
    return max((width for width in map(cells, texts) if width <= most), default=0)


def _where(row: Line) -> str:
    """The hosts and the parts: `gpu004 GPU 0-7`, `gpu[001-020]  40 GPUs`."""
    between = " " if row.named else GAP
    return nodeset(row.hosts) + (between + row.subjects if row.subjects else "")


def _marks(row: Line) -> str:
    """What must be seen at once: that it is new, and no more than a warning."""
    new = "NEW" if row.new == row.count else f"NEW: {row.new:,} of {row.count:,}"
    lesser = row.fails and row.severity is not Severity.CRITICAL
    return _joined(new if row.new else "", row.severity.value if lesser else "")


def _joined(*parts: str) -> str:
    return GAP.join(part for part in parts if part)


def _row(row: Line, columns: _Columns) -> list[str]:
    lead = pad(row.label, columns.label) + GAP
    middle = columns.what
    if row.check:
        lead += pad(row.check, columns.check) + GAP
    else:
        middle += columns.check + len(GAP)
    what, where, marks = pad(row.what, middle), _where(row), _marks(row)
    rest = _joined(marks, row.remark)
    for hosts, beside, under in (
        (pad(where, columns.where), rest, ""),
        (where, rest, ""),
        (pad(where, columns.where), marks, row.remark),
        (where, marks, row.remark),
        (where, "", rest),
    ):
        line = lead + _joined(what, hosts, beside)
        if columns.fits(line):
            return [line, *columns.below(under)]
    indent = cells(lead + what + GAP)
    wrapped = wrap(where, max(NARROWEST, (columns.whole or 0) - indent))
    if len(wrapped) <= MOST and columns.fits(" " * indent + max(wrapped, key=cells)):
        first, *more = wrapped
        first = f"{lead}{what}{GAP}{first}"
        return [first, *(" " * indent + line for line in more), *columns.below(rest)]
    indent = cells(lead)
    first, *more = wrap(row.what, max(NARROWEST, (columns.whole or 0) - indent))
    hanging = [" " * indent + line for line in more]
    return [lead + first, *hanging, *columns.below(where), *columns.below(rest)]


def _tint(row: Line) -> str:
    if row.label == "WAIVED" or not row.fails:
        return DIM
    if row.label == "FAIL":
        return RED if row.severity is Severity.CRITICAL else YELLOW
    return MAGENTA


def _advice(row: Line, columns: _Columns) -> list[str]:
    return [line for text in row.advice for line in columns.below(f"advice: {text}")]


def _short(row: Line, columns: _Columns) -> list[str]:
    """What to do first, and where the rest is said; on one line, so as much of it as has room."""
    more = f"`nodevet explain {row.check}`"
    first = re.split(r"; |\. ", row.advice[0])[0]
    briefer = first.split(": ")[0]
    least = briefer.split(", ")[0]
    for text in (f"{first}: {more}", f"{briefer}: {more}", first, briefer, least, more):
        line = columns.below(f"advice: {text}")
        if len(line) == 1 and columns.fits(line[0]):
            return line
    return []
