"""Whether nodes can feed their GPUs, as a sheet. Pure."""

from collections.abc import Iterator, Sequence

from nodevet.base.printable import brief
from nodevet.checking.feeding.interval import Interval
from nodevet.checking.feeding.model import FeedStage
from nodevet.feed import text
from nodevet.feed.answer import FeedAnswer, NodeAnswer, WorkerPoint
from nodevet.sheet.model import (
    AnyBlock,
    Cell,
    ChartBlock,
    ChartLine,
    ChartPoint,
    FactBlock,
    GroupBlock,
    Medium,
    Sheet,
    TableBlock,
    TextBlock,
)
from nodevet.sheet.text import name

LONGEST = 2000  # columns of one text
TONES = {
    FeedStage.STORAGE: "waived",
    FeedStage.TRANSFORM: "warning",
    FeedStage.LINK: "unknown",
    FeedStage.ACCELERATOR: "ok",
}
"""The colour of the stage that binds."""
SPARE = tuple(map(text.HEADS.index, ("link ms", "storage ms", "slowdown")))
BAR = 50  # columns of a bar of 100 %
MOST_BARS = 16


def feed_sheet(answer: FeedAnswer, *, plot: bool = False) -> Sheet:
    """A group for each kind of node, then the hosts that could not be read.

    `plot`: also draw utilization as bars in a terminal.
    """
    return Sheet(
        title=brief(answer.workload.name, LONGEST),
        kind="feed",
        facts=(headline(answer),),
        blocks=(*(_node(answer, node, plot) for node in answer.nodes), *_lost_host_blocks(answer)),
        more="more kinds of nodes",
    )


def headline(answer: FeedAnswer) -> str:
    """The lowest utilization of all nodes, at the batch of the changes."""
    if not answer.nodes:
        return "No host could be read"
    worst = min(
        (node.chosen for node in answer.nodes), key=lambda outcome: outcome.utilization.high or 0
    )
    share = text.utilization(worst.utilization)
    if share == text.UNKNOWN:
        return f"Not known at batch {worst.batch}: see what is missing"
    return f"{share} busy at batch {worst.batch}: {text.binds(worst)} binds"


def _lost_host_blocks(answer: FeedAnswer) -> Iterator[TextBlock]:
    for host, why in answer.lost.items():
        yield TextBlock(text=brief(f"{name(host)}: not read: {why}", LONGEST))


def _node(answer: FeedAnswer, node: NodeAnswer, plot: bool) -> GroupBlock:
    facts = tuple((label, brief(value, LONGEST)) for label, value in text.facts(answer, node))
    return GroupBlock(
        title=brief(text.subtitle(answer, node), LONGEST),
        blocks=(
            *_charts(node),
            _batches(node),
            FactBlock(rows=facts),
            _changes(node),
            *(_bars(node) if plot else ()),
        ),
    )


def _batches(node: NodeAnswer) -> TableBlock:
    return TableBlock(
        heads=text.HEADS,
        rows=tuple(_row(text.cells(outcome), outcome.binds) for outcome in node.batches),
        note=text.BOUNDS if text.has_bounds(node) else "",
        spare=SPARE,
    )


def _row(cells: Sequence[str], stage: FeedStage) -> tuple[Cell, ...]:
    """Cells of numbers, and last the stage that binds."""
    *numbers, binds = cells
    return (*(Cell(number, right=True) for number in numbers), Cell(binds, TONES[stage]))


def _changes(node: NodeAnswer) -> AnyBlock:
    if not node.changes:
        return TextBlock(text=text.no_change_text(node))
    rows = zip(text.changes(node), node.changes, strict=True)
    return TableBlock(
        title=f"What to change first, at batch {node.at}; each alone",
        heads=text.CHANGE_HEADS,
        rows=tuple(
            (
                Cell(label),
                Cell(gain, right=True),
                Cell(share, right=True),
                Cell(binds, TONES[change.binds]),
            )
            for (label, gain, share, binds), change in rows
        ),
    )


def _charts(node: NodeAnswer) -> Iterator[ChartBlock]:
    """Utilization by batch size and, if workers matter, by workers."""
    batches = tuple(_point(f"{b.batch}", b.utilization, b.binds) for b in node.batches)
    yield _chart("Utilization by batch size", "batch size", batches, ())
    if node.over_workers:
        points = tuple(
            _point(f"{w.workers}", w.utilization, w.binds, w.workers) for w in node.over_workers
        )
        title = f"Utilization by workers for each GPU, at batch {node.at}"
        yield _chart(title, "workers for each GPU", points, tuple(_marks(node)))


def _chart(
    title: str, axis: str, points: tuple[ChartPoint, ...], marks: tuple[tuple[float, str], ...]
) -> ChartBlock:
    exact = all(point.least == point.most for point in points)
    legend = "utilization" if exact else "utilization, at most"
    return ChartBlock(
        title=title,
        media=Medium.PAGE,
        axis=axis,
        unit="%",
        top=100.0,
        lines=(ChartLine(name=legend, points=points),),
        marks=marks,
        key=tuple((TONES[stage], f"{stage.value} binds") for stage in FeedStage),
    )


def _point(label: str, share: Interval, stage: FeedStage, at: float | None = None) -> ChartPoint:
    low, high = share.low * 100, (share.high or 0.0) * 100
    title = f"{text.utilization(share)}, {stage.value} binds"
    return ChartPoint(label, low, high, high, at, TONES[stage], title)


def _marks(node: NodeAnswer) -> Iterator[tuple[float, str]]:
    """Where the node is now, and where another stage becomes the limit."""
    last = node.over_workers[-1].workers
    crossover = node.workers_crossover
    if node.workers and node.workers <= last:
        yield float(node.workers), "now"
    if crossover and crossover.at <= last:
        yield float(crossover.at), f"{crossover.after.value} binds"


def _bars(node: NodeAnswer) -> Iterator[TableBlock]:
    """Utilization over batch size, and over workers, in characters that any terminal has."""
    yield _bar_table(
        "utilization by batch size: # at least, + at most",
        [
            (f"{outcome.batch}", outcome.utilization, outcome.binds.value)
            for outcome in node.batches
        ],
    )
    if node.over_workers:
        yield _bar_table(
            f"utilization by workers for each GPU, at batch {node.at}",
            [
                (
                    f"{point.workers}",
                    point.utilization,
                    point.binds.value + _now_mark(node, point.workers),
                )
                for point in _some_points(node)
            ],
        )


def _bar_table(title: str, rows: Sequence[tuple[str, Interval, str]]) -> TableBlock:
    return TableBlock(
        title=title,
        media=Medium.TERMINAL,
        rows=tuple(
            (
                Cell(label, right=True),
                Cell(_bar(share)),
                Cell(text.utilization(share), right=True),
                Cell(binds),
            )
            for label, share, binds in rows
        ),
    )


def _bar(share: Interval) -> str:
    low, high = round(share.low * BAR), round((share.high or 0.0) * BAR)
    return f"|{'#' * low}{'+' * (high - low)}{'.' * (BAR - high)}|"


def _some_points(node: NodeAnswer) -> list[WorkerPoint]:
    """At most about MOST_BARS points, with those where something changes."""
    marked = {node.workers, node.workers_crossover.at if node.workers_crossover else None}
    step = -(-len(node.over_workers) // MOST_BARS)
    places = enumerate(node.over_workers)
    return [point for index, point in places if index % step == 0 or point.workers in marked]


def _now_mark(node: NodeAnswer, workers: int) -> str:
    return ", now" if workers == node.workers else ""
