"""Utilization as a curve: where its points, bands and ticks are in an SVG of one size. Pure."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nodevet.feed.answer import NodeAnswer
from nodevet.feed.interval import Interval
from nodevet.report.parts.feed_text import utilization

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 46, 14, 12, 40  # of the plot, within
MOST_TICKS = 12
LEVELS = (0, 25, 50, 75, 100)  # percent


class Dot(NamedTuple):
    x: float
    y: float
    stage: str  # which binds; its colour
    text: str


class Tick(NamedTuple):
    at: float
    label: str


class Chart(NamedTuple):
    """All that the template draws, in the SVG's own units."""

    title: str
    axis: str
    dots: list[Dot]
    most: str  # points of the line of what utilization is at most
    least: str  # at least; empty where both are the same
    ticks: list[Tick]
    levels: list[Tick]
    marks: list[Tick]


class Point(NamedTuple):
    """A place on the axis, and what is there."""

    place: float
    label: str
    share: Interval
    stage: str


def by_batch(node: NodeAnswer) -> Chart:
    """Batch sizes at even distances, whatever they are."""
    points = [
        Point(place, f"{each.batch}", each.utilization, each.binds.value)
        for place, each in enumerate(node.batches)
    ]
    return _chart("Utilization by batch size", "batch size", points, points, ())


def by_workers(node: NodeAnswer) -> Chart | None:
    """The number of workers for each GPU, to scale; None where it changes nothing."""
    if not node.over_workers:
        return None
    points = [
        Point(each.workers, f"{each.workers}", each.utilization, each.binds.value)
        for each in node.over_workers
    ]
    crossover = node.workers_crossover
    marks = {"now": node.workers}
    if crossover:
        marks[f"{crossover.after.value} binds"] = crossover.at
    title = f"Utilization by workers for each GPU, at batch {node.at}"
    every = max(1, -(-len(points) // MOST_TICKS))
    last = points[-1].place
    found = [(float(at), label) for label, at in marks.items() if at and at <= last]
    return _chart(title, "workers for each GPU", points, points[::every], found)


def _chart(
    title: str,
    axis: str,
    points: Sequence[Point],
    ticks: Iterable[Point],
    marks: Iterable[tuple[float, str]],
) -> Chart:
    first, last = points[0].place, points[-1].place
    room = WIDTH - LEFT - RIGHT

    def across(place: float) -> float:
        share = 0.5 if last == first else (place - first) / (last - first)
        return round(LEFT + room * share, 1)

    def line(ends: Iterable[float]) -> str:
        xs = (across(point.place) for point in points)
        return " ".join(f"{x},{_up(end)}" for x, end in zip(xs, ends, strict=True))

    exact = all(point.share.exact for point in points)
    return Chart(
        title=title,
        axis=axis,
        dots=[_dot(point, across(point.place)) for point in points],
        most=line(point.share.high or 0.0 for point in points),
        least="" if exact else line(point.share.low for point in points),
        ticks=[Tick(across(point.place), point.label) for point in ticks],
        levels=[Tick(_up(level / 100), f"{level} %") for level in LEVELS],
        marks=[Tick(across(at), label) for at, label in marks],
    )


def _dot(point: Point, x: float) -> Dot:
    text = f"{point.label}: {utilization(point.share)}, {point.stage} binds"
    return Dot(x, _up(point.share.high or 0.0), point.stage, text)


def _up(share: float) -> float:
    return round(TOP + (HEIGHT - TOP - BOTTOM) * (1 - share), 1)
