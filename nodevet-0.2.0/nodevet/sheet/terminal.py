"""A sheet in a terminal, or in a pipe. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import singledispatch
from typing import NamedTuple

from nodevet.base.printable import cells
from nodevet.sheet import diffs, excerpts, prose
from nodevet.sheet.chart import drawable, known_values
from nodevet.sheet.differences import grid
from nodevet.sheet.host_rows import table
from nodevet.sheet.model import (
    AnyBlock,
    Cell,
    ChartBlock,
    ChartLine,
    CodeBlock,
    DifferenceBlock,
    ExcerptBlock,
    FactBlock,
    GroupBlock,
    HostRowBlock,
    ListBlock,
    ListItem,
    Medium,
    ProseBlock,
    Sheet,
    SheetBlock,
    TableBlock,
    TextBlock,
    TimeBlock,
)
from nodevet.sheet.text import BOLD, GAP, TONES, break_line, sgr, wrap

BARS = "▁▂▃▄▅▆▇█"
NARROWEST = 12  # columns of a table's column that wraps
LEAST_ROOM = 30  # columns for text beside a label, however narrow the terminal is
INDENT = 2  # columns of a group's blocks
APART = (TableBlock, ChartBlock, CodeBlock, TimeBlock)
"""Blocks with an empty line before and after them, also within a group."""


class Paper(NamedTuple):
    """The output: whether it has colour, and its columns; None: no limit."""

    colour: bool = False
    width: int | None = None

    def narrowed(self, columns: int) -> "Paper":
        """The paper without `columns` columns."""
        narrower = None if self.width is None else max(LEAST_ROOM, self.width - columns)
        return self._replace(width=narrower)

    def wrapped(self, text: str) -> list[str]:
        return (wrap(text, self.width) if self.width else [text]) if text else []

    def tinted(self, text: str, code: str) -> str:
        return sgr(text, code) if self.colour and text and code else text


def render(sheet: Sheet, *, colour: bool = False, width: int | None = None) -> str:
    """The sheet in at most `width` columns."""
    paper = Paper(colour, width)
    has_head = Medium.TERMINAL in sheet.media
    out = [paper.tinted(line, BOLD) for line in paper.wrapped(sheet.title) if has_head]
    out += paper.wrapped(" · ".join(sheet.facts)) if has_head else []
    for block in visible(sheet.blocks):
        lines = _titled(block, paper)
        out += ["", *lines] if out and lines else lines
    out += ["", *paper.wrapped(sheet.end)] if sheet.end else []
    text = "\n".join(out).strip("\n")
    return text + "\n" if text else ""


def visible(blocks: Iterable[AnyBlock]) -> list[AnyBlock]:
    """The blocks that a terminal shows."""
    return [block for block in blocks if Medium.TERMINAL in block.media]


def _titled(block: AnyBlock, paper: Paper) -> list[str]:
    lines = _lines(block, paper)
    labelled = isinstance(block, GroupBlock) or (isinstance(block, ListBlock) and block.label)
    untitled = labelled or not block.title
    return lines if untitled else [paper.tinted(block.title, BOLD), *lines]


@singledispatch
def _lines(block: SheetBlock, paper: Paper) -> list[str]:
    raise TypeError(f"no terminal shows a {type(block).__name__}")


@_lines.register
def _text(block: TextBlock, paper: Paper) -> list[str]:
    code = TONES.get(block.tone, "")
    return [paper.tinted(line, code) for line in paper.wrapped(block.text)]


@_lines.register
def _prose(block: ProseBlock, paper: Paper) -> list[str]:
    return prose.fill(block.text, paper.width)


@_lines.register
def _facts(block: FactBlock, paper: Paper) -> list[str]:
    rows = [(Cell(label, "quiet"), Cell(value)) for label, value in block.rows]
    return _aligned(rows, paper, firm=1)


@_lines.register
def _list(block: ListBlock, paper: Paper) -> list[str]:
    return [line for item in block.items for line in _item(item, block.label, paper)]


def _item(item: ListItem, label: str, paper: Paper) -> Iterator[str]:
    head = f"{label}: " if label else ""
    text = f"{item.text}: {item.note}" if item.note else item.text
    for place, line in enumerate(paper.narrowed(len(head)).wrapped(text)):
        yield (head if place == 0 else " " * len(head)) + line
    if item.command:
        yield " " * INDENT + item.command


@_lines.register
def _table(block: TableBlock, paper: Paper) -> list[str]:
    heads = [tuple(Cell(head.upper(), "quiet") for head in block.heads)] if block.heads else []
    rows = _fitting([*heads, *block.rows], block.spare, paper.width)
    return [*_aligned(rows, paper), *paper.wrapped(block.note)]


@_lines.register
def _chart(block: ChartBlock, paper: Paper) -> list[str]:
    return [line.rstrip() for line in bars(block)]


@_lines.register
def _time(block: TimeBlock, paper: Paper) -> list[str]:
    return []  # values over time need more room than lines of text have


@_lines.register
def _code(block: CodeBlock, paper: Paper) -> list[str]:
    if block.language == "diff":
        return list(diffs.rows(block.text, block.loud, colour=paper.colour, width=paper.width))
    return [part for line in block.text.split("\n") for part in break_line(line, paper.width)]


@_lines.register
def _host_rows(block: HostRowBlock, paper: Paper) -> list[str]:
    rows = table(block.rows, paper.width, " " * INDENT if block.title else "")
    return [diffs.paint(row, block.loud) for row in rows] if paper.colour else list(rows)


@_lines.register
def _excerpts(block: ExcerptBlock, paper: Paper) -> list[str]:
    groups = (excerpts.lines(row, colour=paper.colour, width=paper.width) for row in block.rows)
    return [line for lines in groups for line in lines]


@_lines.register
def _differences(block: DifferenceBlock, paper: Paper) -> list[str]:
    return [*grid(block, colour=paper.colour, width=paper.width), *paper.wrapped(block.note)]


@_lines.register
def _group(block: GroupBlock, paper: Paper) -> list[str]:
    out = _heading(block, paper)
    apart = False
    for inner in visible(block.blocks):
        lines = _titled(inner, paper.narrowed(INDENT))
        if out and lines and (apart or isinstance(inner, APART)):
            out.append("")
        out += [" " * INDENT + line if line else "" for line in lines]
        apart = isinstance(inner, APART) if lines else apart
    return out


def _heading(block: GroupBlock, paper: Paper) -> list[str]:
    """`GPU 3: storage-bound (confidence high)`, `gpu007: watched for 10 s`."""
    tag = block.tag.text if block.tag else ""
    note = f" ({block.note})" if tag and block.note else block.note
    text = ": ".join(filter(None, (block.title, tag + note)))
    *lines, last = paper.wrapped(text) or [""]
    if paper.colour and block.tag and tag:
        tinted = paper.tinted(tag, TONES.get(block.tag.tone, BOLD))
        last = last.replace(f": {tag}", f": {tinted}", 1)
    return [*lines, last]


def _fitting(
    rows: Sequence[Sequence[Cell]], spare: Sequence[int], width: int | None
) -> list[Sequence[Cell]]:
    """The rows, without as many of the `spare` columns, in order, as it takes for them to fit."""
    left_out: set[int] = set()
    for column in (*spare, None):
        fitting = [[c for place, c in enumerate(row) if place not in left_out] for row in rows]
        if width is None or column is None or _widest(fitting) <= width:
            break
        left_out.add(column)
    return list(fitting) if spare else list(rows)


def _widest(rows: Sequence[Sequence[Cell]]) -> int:
    widths = [max(cells(cell.text) for cell in column) for column in zip(*rows, strict=True)]
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _aligned(rows: Sequence[Sequence[Cell]], paper: Paper, firm: int = 0) -> list[str]:
    """Cells in aligned columns; a cell wider than its column continues below. The first `firm`
    columns are as wide as their contents."""
    if not rows:
        return []
    count = max(map(len, rows))
    filled = [[*row, *(Cell("") for _ in range(count - len(row)))] for row in rows]
    widths = [max(cells(row[place].text) for row in filled) for place in range(count)]
    places = [place for place in range(count) if widths[place]]
    right = [any(row[place].right for row in filled) for place in range(count)]
    if paper.width is not None:
        room = paper.width - len(GAP) * (len(places) - 1)
        least = [_longest_word(row[place].text for row in filled) for place in range(count)]
        _fit([at for at in places if at >= firm and not right[at]], widths, least, room)
    out: list[str] = []
    for row in filled:
        out += _row([row[place] for place in places], widths, places, right, paper)
    return out


def _fit(columns: Sequence[int], widths: list[int], least: Sequence[int], room: int) -> None:
    """Narrow the widest of these columns until all fit; words are broken only if they must be."""
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
    places: Sequence[int],
    right: Sequence[bool],
    paper: Paper,
) -> Iterator[str]:
    pieces = [_broken(cell.text, widths[place]) for cell, place in zip(row, places, strict=True)]
    for number in range(max(map(len, pieces))):
        line = []
        for cell, place, texts in zip(row, places, pieces, strict=True):
            text = texts[number] if number < len(texts) else ""
            blank = " " * (widths[place] - cells(text))
            tinted = paper.tinted(text, TONES.get(cell.tone, ""))
            line.append(blank + tinted if right[place] else tinted + blank)
        yield GAP.join(line).rstrip()


def _broken(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns; a longer word is broken."""
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


def bars(chart_block: ChartBlock) -> list[str]:
    """One line of bars for each line of the chart; a table next to it has the numbers."""
    chart = drawable(chart_block)
    known = known_values(chart)
    low = 0.0 if chart.whole or chart.top is not None else min(known, default=0.0)
    high = chart.top if chart.top is not None else max(known, default=0.0)
    widest = max((cells(line.name) for line in chart.lines), default=0)
    return [_bar_line(line, low, high, widest) for line in chart.lines]


def _bar_line(line: ChartLine, low: float, high: float, widest: int) -> str:
    def bar(value: float | None) -> str:
        if value is None:
            return " "
        share = (value - low) / (high - low) if high > low else 0.0
        return BARS[round(share * (len(BARS) - 1))]

    bar_text = "".join(bar(point.value) for point in line.points)
    name = line.name + " " * (widest - cells(line.name))
    return f"{name}{GAP if name else ''}{bar_text}"
