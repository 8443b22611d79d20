"""Lay values over time out as small charts on one axis. Pure."""

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from nodevet.base.printable import brief
from nodevet.sheet.chart import COLOURS, HIGHEST, ChartMark, number_of
from nodevet.sheet.model import TimeBlock, TimeLine, TimeStrip

WIDTH, HEIGHT, AXIS = 640, 58, 18  # of one strip; AXIS: height of the labels below the last one
LEFT, RIGHT, TOP, BOTTOM = 54, 16, 5, 5
MOST_POINTS = 160  # of a line; more are not visible
COLUMNS = 60  # moments whose values a reader can show
TICKS = 6
LONGEST = 48  # columns of a line's name
STEPS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300)  # seconds between two ticks
Points = tuple[tuple[float, float], ...]


class StripLine(NamedTuple):
    """One line, with its colour's number and its mean."""

    name: str
    colour: int
    points: str
    mean: str


class StripColumn(NamedTuple):
    """A moment, and the values of every line then."""

    x: float
    width: float
    text: str


class DrawnStrip(NamedTuple):
    """One chart, in the SVG's units."""

    title: str
    lines: list[StripLine]
    levels: list[ChartMark]
    columns: list[StripColumn]
    ticks: list[ChartMark]
    last: bool  # the labels of the axis are below it
    about: str  # in words


def strips(block: TimeBlock) -> list[DrawnStrip]:
    """The strips of a block, in order."""
    last = len(block.strips) - 1
    return [_strip(strip, block, last=place == last) for place, strip in enumerate(block.strips)]


def _strip(strip: TimeStrip, block: TimeBlock, *, last: bool) -> DrawnStrip:
    lines = [_drawable(line) for line in strip.lines]
    highest = max((value for line in lines for _, value in line.points), default=0.0)
    top = max(highest, *(line.most or 0.0 for line in lines)) or 1.0
    strip_lines = [
        StripLine(
            brief(line.name, LONGEST),
            place % COLOURS,
            _polyline(line.points, block.seconds, block.later, top),
            f"{number_of(_mean(line.points))} {strip.unit}",
        )
        for place, line in enumerate(lines)
    ]
    means = ", ".join(f"{line.name} {line.mean}" for line in strip_lines)
    return DrawnStrip(
        title=strip.title,
        lines=strip_lines,
        levels=[
            ChartMark(_y_position(0, top), "0"),
            ChartMark(_y_position(top, top), f"{number_of(top)} {strip.unit}"),
        ],
        columns=_columns(lines, block.seconds, block.later),
        ticks=ticks(block.seconds),
        last=last,
        about=f"{strip.title}, mean: {means}",
    )


def _drawable(line: TimeLine) -> TimeLine:
    """The line without numbers that no scale can show."""
    points = tuple(point for point in line.points if abs(point[1]) <= HIGHEST)
    most = line.most if line.most is not None and abs(line.most) <= HIGHEST else None
    return replace(line, points=points, most=most)


def _mean(points: Points) -> float:
    """The mean over time: points need not be evenly spaced."""
    spans = [(after[0] - at, (value + after[1]) / 2) for (at, value), after in pairwise(points)]
    total = sum(span for span, _ in spans)
    if total <= 0:
        return points[0][1] if points else 0.0
    return sum(span * value for span, value in spans) / total


def ticks(seconds: float) -> list[ChartMark]:
    """Ticks at round numbers of seconds."""
    step = next((step for step in STEPS if seconds / step <= TICKS), seconds or 1)
    return [
        ChartMark(_x_position(place * step, seconds), f"{place * step:g} s")
        for place in range(int(seconds / step + 1e-6) + 1)
    ]


def _x_position(at: float, seconds: float) -> float:
    share = min(1.0, max(0.0, at / seconds)) if seconds else 0.0
    return round(LEFT + (WIDTH - LEFT - RIGHT) * share, 1)


def _y_position(value: float, top: float) -> float:
    return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - max(0.0, value) / top), 1)


def _polyline(points: Points, seconds: float, later: float, top: float) -> str:
    return " ".join(
        f"{_x_position(at + later, seconds)},{_y_position(value, top)}"
        for at, value in thin(points)
    )


def thin(points: Points) -> Points:
    """At most MOST_POINTS points: of each stretch of time the lowest and the highest value.

    >>> len(thinned(tuple((float(n), float(n % 7)) for n in range(10000)))) <= MOST_POINTS
    True
    """
    if len(points) <= MOST_POINTS:
        return points
    size = -(-len(points) // (MOST_POINTS // 2))
    points_kept = []
    for start in range(0, len(points), size):
        stretch = points[start : start + size]
        ends = {min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])}
        points_kept += sorted(ends)
    return tuple(points_kept)


def _columns(lines: Sequence[TimeLine], seconds: float, later: float) -> list[StripColumn]:
    """Evenly spaced moments, at most COLUMNS and at most one for each point."""
    count = max(1, min(COLUMNS, max(len(line.points) for line in lines)))
    width = (WIDTH - LEFT - RIGHT) / count
    columns = []
    for place in range(count):
        at = (place + 0.5) * seconds / count
        values = [
            f"{brief(line.name, LONGEST)} {number_of(value)} {line.unit}"
            for line in lines
            if (value := _nearest_value(line.points, at - later, 1.5 * seconds / count)) is not None
        ]
        if values:
            text = "\n".join([f"{at:.1f} s", *values])
            columns.append(StripColumn(round(LEFT + place * width, 1), round(width, 1), text))
    return columns


def _nearest_value(points: Points, at: float, most: float) -> float | None:
    """The value nearest in time to `at`, within `most` seconds, or None."""
    place = bisect_left(points, (at, float("-inf")))
    near = points[max(0, place - 1) : place + 1]
    time, value = min(near, key=lambda point: abs(point[0] - at), default=(0.0, 0.0))
    return value if near and abs(time - at) <= most else None
