"""Lay a chart out as an SVG of one size: its lines, bands and ticks. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from nodevet.sheet.model import ChartBlock, ChartLine, ChartPoint

WIDTH, HEIGHT = 860, 240
LEFT, RIGHT, TOP, BOTTOM = 70, 18, 12, 34  # margins of the plot
AXIS = 18  # more margin at the bottom if the axis has a title
COLOURS = 8  # of lines; the ninth line has the first colour again
HIGHEST = 1e30  # number that is drawn
MOST_TICKS = 8
LEVELS = 4
TONES = {"fail": 1, "unknown": 4, "ok": 2}  # colours with a meaning


class ChartMark(NamedTuple):
    """A place on an axis, and its label."""

    at: float
    label: str


class ChartDot(NamedTuple):
    """A measurement; `tone`: a colour of its own, or ""."""

    x: float
    y: float
    tone: str


class DrawnLine(NamedTuple):
    """One line with its colour's number. `band`: the outline from least to most, or ""."""

    name: str
    colour: int
    runs: list[str]  # the points of each stretch without a gap
    dots: list[ChartDot]
    band: str
    last: str  # its value in the last run that has one


class Hover(NamedTuple):
    """A run, and the values of every line in it."""

    x: float
    width: float
    text: str


class DrawnChart(NamedTuple):
    """Everything that the template draws, in the SVG's units."""

    title: str
    about: str
    height: int
    axis: str
    lines: list[DrawnLine]
    levels: list[ChartMark]
    ticks: list[ChartMark]
    marks: list[ChartMark]
    hovers: list[Hover]
    key: tuple[tuple[str, str], ...]


class Plane(NamedTuple):
    """Maps values of a chart to places in its SVG."""

    first: float
    last: float
    low: float
    high: float

    def across(self, at: float) -> float:
        share = 0.5 if self.last == self.first else (at - self.first) / (self.last - self.first)
        return round(LEFT + (WIDTH - LEFT - RIGHT) * share, 1)

    def up(self, value: float) -> float:
        low, high = self.low, self.high
        share = (value - low) / (high - low) if high > low else 0.5
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - share), 1)


def drawable(chart: ChartBlock) -> ChartBlock:
    """The chart without numbers that no scale can show: one node's nonsense may not cost a page."""
    lines = tuple(
        replace(line, points=tuple(map(_drawable_point, line.points))) for line in chart.lines
    )
    return replace(chart, lines=lines)


def _drawable_point(point: ChartPoint) -> ChartPoint:
    values = (point.least, point.value, point.most)
    known = [value for value in values if value is not None]
    if all(abs(value) <= HIGHEST for value in known):  # false for what is not a number
        return point
    return point._replace(least=None, value=None, most=None)


def draw(chart_block: ChartBlock) -> DrawnChart:
    """The chart with its lines on one scale."""
    chart = drawable(chart_block)
    points = chart.lines[0].points if chart.lines else ()
    places = [place_of(point, number) for number, point in enumerate(points)]
    plane = Plane(min(places, default=0.0), max(places, default=0.0), *_scale(chart))
    unit = f" {chart.unit}" if chart.unit else ""
    lines = [_line(line, place, plane, unit) for place, line in enumerate(chart.lines)]
    values = ", ".join(f"{line.name} {line.last}".strip() for line in lines if line.last)
    return DrawnChart(
        title=chart.title,
        about=f"{chart.title}; at the end: {values}",
        height=HEIGHT + (AXIS if chart.axis else 0),
        axis=chart.axis,
        lines=lines,
        levels=_levels(plane, unit, integers=chart.whole),
        ticks=_ticks(points, plane),
        marks=[ChartMark(plane.across(at), label) for at, label in chart.marks],
        hovers=_hovers(chart.lines, plane, unit),
        key=chart.key,
    )


def place_of(point: ChartPoint, number: int) -> float:
    """The point's own place on the axis, or its number."""
    return float(number) if point.at is None else point.at


def _scale(chart: ChartBlock) -> tuple[float, float]:
    known = known_values(chart)
    low, high = min(known, default=0.0), max(known, default=1.0)
    if chart.top is not None:
        return 0.0, chart.top
    if chart.whole:
        return 0.0, max(high, 1.0)
    room = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
    return (0.0 if 0 <= low < high / 2 else low - room), high + room


def known_values(chart: ChartBlock) -> list[float]:
    """Every number of a chart: least, value and most of each point."""
    points = (point for line in chart.lines for point in line.points)
    return [v for p in points for v in (p.least, p.value, p.most) if v is not None]


def _line(line: ChartLine, place: int, plane: Plane, unit: str) -> DrawnLine:
    stretches: list[list[str]] = [[]]
    dots = []
    upper, lower = [], []
    for number, point in enumerate(line.points):
        x = plane.across(place_of(point, number))
        if point.value is None:
            stretches.append([])
            continue
        y = plane.up(point.value)
        stretches[-1].append(f"{x},{y}")
        dots.append(ChartDot(x, y, point.tone))
        if point.least is not None and point.most is not None and point.least < point.most:
            upper.append(f"{x},{plane.up(point.most)}")
            lower.append(f"{x},{plane.up(point.least)}")
    last = next((point.value for point in reversed(line.points) if point.value is not None), None)
    return DrawnLine(
        name=line.name,
        colour=TONES.get(line.tone, place % COLOURS),
        runs=[" ".join(stretch) for stretch in stretches if len(stretch) > 1],
        dots=dots,
        band=" ".join([*upper, *reversed(lower)]) if len(upper) > 1 else "",
        last="" if last is None else number_of(last) + unit,
    )


def number_of(value: float) -> str:
    """A number as people read it: `31`, `0.42`, `700,000`.

    >>> number_of(700000.0), number_of(0.4216), number_of(31.5)
    ('700,000', '0.422', '31.5')
    """
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"


def _levels(plane: Plane, unit: str, *, integers: bool) -> list[ChartMark]:
    low, high = plane.low, plane.high
    values = [low + (high - low) * place / LEVELS for place in range(LEVELS + 1)]
    if integers:
        step = max(1, round(high / LEVELS))
        values = [float(value) for value in range(0, int(high) + 1, step)]
    return [ChartMark(plane.up(value), number_of(_rounded(value, high)) + unit) for value in values]


def _rounded(value: float, high: float) -> float:
    return round(value) if high >= 20 else round(value, 2)


def _ticks(points: Sequence[ChartPoint], plane: Plane) -> list[ChartMark]:
    step = max(1, -(-len(points) // MOST_TICKS))
    return [
        ChartMark(plane.across(place_of(point, number)), point.label)
        for number, point in enumerate(points)
        if number % step == 0
    ]


def _hovers(lines: Sequence[ChartLine], plane: Plane, unit: str) -> list[Hover]:
    points = lines[0].points if lines else ()
    width = (WIDTH - LEFT - RIGHT) / max(1, len(points) - 1)
    hovers = []
    for number, first in enumerate(points):
        texts = [first.label]
        for line in lines:
            point = line.points[number]
            if point.text:
                texts.append(point.text)
            elif point.value is not None:
                texts.append(f"{line.name} {number_of(point.value)}{unit}{_range(point, unit)}")
        x = max(float(LEFT), plane.across(place_of(first, number)) - width / 2)
        most = min(width, WIDTH - RIGHT - x)
        hovers.append(Hover(round(x, 1), round(most, 1), "\n".join(texts)))
    return hovers


def _range(point: ChartPoint, unit: str) -> str:
    if point.least is None or point.most is None or point.least == point.most:
        return ""
    return f" ({number_of(point.least)} to {number_of(point.most)}{unit})"
