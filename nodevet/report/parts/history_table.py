"""A sheet of the history in a terminal. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence

from nodevet.printable import cells
from nodevet.report.parts.grid import BOLD, DIM, GREEN, MAGENTA, RED, YELLOW, sgr
from nodevet.report.parts.history_sheet import Cell, HistoryChart, HistoryLine, HistoryTable, Sheet
from nodevet.report.parts.text import GAP, wrap

TONES = {
    "fail": RED,
    "warning": YELLOW,
    "unknown": MAGENTA,
    "unreached": MAGENTA,
    "ok": GREEN,
    "waived": DIM,
    "quiet": DIM,
}
BARS = "▁▂▃▄▅▆▇█"
NARROWEST = 12  # columns that no column is narrower than if it has more to say


def table(sheet: Sheet, *, colour: bool = False, width: int | None = None) -> str:
    """The sheet, in at most `width` columns."""
    out = [_tinted(line, BOLD, colour) for line in _wrapped(sheet.title, width)]
    out += _wrapped(" · ".join(sheet.facts), width) if sheet.facts else []
    if sheet.about:
        out += ["", *_aligned([(Cell(k, "quiet"), Cell(v)) for k, v in sheet.about], colour, width)]
    for part in sheet.parts:
        title = [_tinted(part.title, BOLD, colour)] if part.title else []
        lines = bars(part) if isinstance(part, HistoryChart) else _table(part, colour, width)
        out += [*([""] if out else []), *title, *lines]
    out += ["", *_wrapped(sheet.end, width)] if sheet.end else []
    return "\n".join(line.rstrip() for line in out).strip("\n") + "\n"


def _wrapped(text: str, width: int | None) -> list[str]:
    return (wrap(text, width) if width else [text]) if text else []


def _tinted(text: str, code: str, colour: bool) -> str:
    return sgr(text, code) if colour and text else text


def _table(found: HistoryTable, colour: bool, width: int | None) -> list[str]:
    heads = [tuple(Cell(head.upper(), "quiet") for head in found.heads)] if found.heads else []
    lines = _aligned([*heads, *found.rows], colour, width)
    return [*lines, *_wrapped(found.note, width)]


def _aligned(rows: Sequence[Sequence[Cell]], colour: bool, width: int | None) -> list[str]:
    """Cells under one another; what is wider than its column goes on below in it."""
    if not rows:
        return []
    several = max(map(len, rows))
    filled = [[*row, *(Cell("") for _ in range(several - len(row)))] for row in rows]
    widths = [max(cells(row[place].text) for row in filled) for place in range(several)]
    kept = [place for place in range(several) if widths[place]]
    right = [any(row[place].right for row in filled) for place in range(several)]
    if width is not None:
        room = width - len(GAP) * (len(kept) - 1)
        least = [_longest_word(row[place].text for row in filled) for place in range(several)]
        _fit([place for place in kept if not right[place]], widths, least, room)
    out: list[str] = []
    for row in filled:
        out += _row([row[place] for place in kept], widths, kept, right, colour)
    return out


def _fit(columns: Sequence[int], widths: list[int], least: Sequence[int], room: int) -> None:
    """Make the widest of these columns narrower until all have room, breaking words last."""
    for floor in (least, [NARROWEST] * len(widths)):
        while sum(widths) > room:
            loose = [place for place in columns if widths[place] > floor[place]]
            if not loose:
                break
            widths[max(loose, key=lambda place: widths[place])] -= 1


def _longest_word(texts: Iterable[str]) -> int:
    return max((cells(word) for text in texts for word in re.split("[ ,]", text)), default=0) + 1


def _row(
    row: Sequence[Cell],
    widths: Sequence[int],
    kept: Sequence[int],
    right: Sequence[bool],
    colour: bool,
) -> Iterator[str]:
    pieces = [_broken(cell.text, widths[place]) for cell, place in zip(row, kept, strict=True)]
    for number in range(max(map(len, pieces))):
        shown = []
        for cell, place, lines in zip(row, kept, pieces, strict=True):
            text = lines[number] if number < len(lines) else ""
            blank = " " * (widths[place] - cells(text))
            code = TONES.get(cell.tone, "")
            tinted = _tinted(text, code, colour and bool(code))
            shown.append(blank + tinted if right[place] else tinted + blank)
        yield GAP.join(shown).rstrip()


def _broken(text: str, width: int) -> list[str]:
    """Lines of at most so many columns; a word that is longer is broken where it must be."""
    if cells(text) <= width:
        return [text]
    lines: list[str] = []
    for line in wrap(text, width):
        rest = line
        while cells(rest) > width:
            size = next(n for n in range(len(rest), 0, -1) if cells(rest[:n]) <= width or n == 1)
            lines.append(rest[:size])
            rest = rest[size:]
        lines.append(rest)
    return lines


def bars(found: HistoryChart) -> list[str]:
    """A bar for each run; the numbers stand in the table beside it."""
    known = [
        value
        for line in found.lines
        for point in line.points
        for value in (point.least, point.value, point.most)
        if value is not None
    ]
    low = 0.0 if found.whole else min(known, default=0.0)
    high = max(known, default=0.0)
    widest = max((cells(line.name) for line in found.lines), default=0)
    return [_drawn(line, low, high, widest) for line in found.lines]


def _drawn(line: HistoryLine, low: float, high: float, widest: int) -> str:
    def bar(value: float | None) -> str:
        if value is None:
            return " "
        share = (value - low) / (high - low) if high > low else 0.0
        return BARS[round(share * (len(BARS) - 1))]

    drawn = "".join(bar(point.value) for point in line.points)
    name = line.name + " " * (widest - cells(line.name))
    return f"{name}{GAP if name else ''}{drawn}"
