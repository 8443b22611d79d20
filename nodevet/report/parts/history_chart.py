"""A chart of the history: where lines, bands and ticks are in an SVG of one size. Pure."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nodevet.report.parts.history_sheet import HistoryChart, HistoryLine, RunPoint

WIDTH, HEIGHT = 860, 240
LEFT, RIGHT, TOP, BOTTOM = 70, 18, 12, 34  # of the plot, within
COLOURS = 8  # then they begin again
MOST_TICKS = 8
LEVELS = 4
TONES = {"fail": 1, "unknown": 4, "ok": 2}  # colours that mean something


class Mark(NamedTuple):
    at: float
    label: str


class DrawnLine(NamedTuple):
    """One line with its colour's number. `band`: from the least to the most, if there is one."""

    name: str
    colour: int
    runs: list[str]  # the points of each stretch without a gap
    dots: list[tuple[float, float]]
    band: str
    last: str  # its value in the last run that has one


class Hover(NamedTuple):
    """A run, and what every line was then."""

    x: float
    width: float
    text: str


class DrawnChart(NamedTuple):
    """All that the template draws, in the SVG's own units."""

    title: str
    about: str
    lines: list[DrawnLine]
    levels: list[Mark]
    ticks: list[Mark]
    hovers: list[Hover]


def drawn(chart: HistoryChart) -> DrawnChart:
    """The lines of a chart, on one scale."""
    low, high = _scale(chart)
    several = max((len(line.points) for line in chart.lines), default=0)
    unit = f" {chart.unit}" if chart.unit else ""
    lines = [_line(line, place, several, low, high, unit) for place, line in enumerate(chart.lines)]
    told = ", ".join(f"{line.name} {line.last}".strip() for line in lines if line.last)
    return DrawnChart(
        title=chart.title,
        about=f"{chart.title}; in the last run: {told}",
        lines=lines,
        levels=_levels(low, high, unit, whole=chart.whole),
        ticks=_ticks(chart.lines, several),
        hovers=_hovers(chart.lines, several, unit),
    )


def _scale(chart: HistoryChart) -> tuple[float, float]:
    known = [value for line in chart.lines for point in line.points for value in _known(point)]
    low, high = min(known, default=0.0), max(known, default=1.0)
    if chart.whole:
        return 0.0, max(high, 1.0)
    room = (high - low) * 0.08 or abs(high) * 0.05 or 1.0
    return (0.0 if 0 <= low < high / 2 else low - room), high + room


def _known(point: RunPoint) -> Iterator[float]:
    yield from (v for v in (point.least, point.value, point.most) if v is not None)


def _across(place: int, several: int) -> float:
    share = 0.5 if several < 2 else place / (several - 1)
    return round(LEFT + (WIDTH - LEFT - RIGHT) * share, 1)


def _up(value: float, low: float, high: float) -> float:
    share = (value - low) / (high - low) if high > low else 0.5
    return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - share), 1)


def _line(
    line: HistoryLine, place: int, several: int, low: float, high: float, unit: str
) -> DrawnLine:
    stretches: list[list[str]] = [[]]
    dots = []
    upper, lower = [], []
    for number, point in enumerate(line.points):
        x = _across(number, several)
        if point.value is None:
            stretches.append([])
            continue
        y = _up(point.value, low, high)
        stretches[-1].append(f"{x},{y}")
        dots.append((x, y))
        if point.least is not None and point.most is not None and point.least < point.most:
            upper.append(f"{x},{_up(point.most, low, high)}")
            lower.append(f"{x},{_up(point.least, low, high)}")
    last = next((point.value for point in reversed(line.points) if point.value is not None), None)
    return DrawnLine(
        name=line.name,
        colour=TONES.get(line.tone, place % COLOURS),
        runs=[" ".join(some) for some in stretches if len(some) > 1],
        dots=dots,
        band=" ".join([*upper, *reversed(lower)]) if len(upper) > 1 else "",
        last="" if last is None else number_of(last) + unit,
    )


def number_of(value: float) -> str:
    """As people read it: `31`, `0.42`, `700,000`.

    >>> number_of(700000.0), number_of(0.4216), number_of(31.5)
    ('700,000', '0.422', '31.5')
    """
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"


def _levels(low: float, high: float, unit: str, *, whole: bool) -> list[Mark]:
    values = [low + (high - low) * place / LEVELS for place in range(LEVELS + 1)]
    if whole:
        step = max(1, round(high / LEVELS))
        values = [float(value) for value in range(0, int(high) + 1, step)]
    return [
        Mark(_up(value, low, high), number_of(_rounded(value, high)) + unit) for value in values
    ]


def _rounded(value: float, high: float) -> float:
    return round(value) if high >= 20 else round(value, 2)


def _ticks(lines: Sequence[HistoryLine], several: int) -> list[Mark]:
    points = lines[0].points if lines else ()
    every = max(1, -(-several // MOST_TICKS))
    return [
        Mark(_across(place, several), point.label)
        for place, point in enumerate(points)
        if place % every == 0
    ]


def _hovers(lines: Sequence[HistoryLine], several: int, unit: str) -> list[Hover]:
    if not several:
        return []
    width = (WIDTH - LEFT - RIGHT) / max(1, several - 1)
    found = []
    for place, first in enumerate(lines[0].points):
        told = [first.label]
        for line in lines:
            point = line.points[place]
            if point.value is not None:
                told.append(f"{line.name} {number_of(point.value)}{unit}{_range(point, unit)}")
        x = max(float(LEFT), _across(place, several) - width / 2)
        most = min(width, WIDTH - RIGHT - x)
        found.append(Hover(round(x, 1), round(most, 1), "\n".join(told)))
    return found


def _range(point: RunPoint, unit: str) -> str:
    if point.least is None or point.most is None or point.least == point.most:
        return ""
    return f" ({number_of(point.least)} to {number_of(point.most)}{unit})"
