"""Whether a node can feed its GPUs, for a terminal: the table, what follows, what to change."""

from collections.abc import Iterator, Sequence

from nodevet.feed.answer import FeedAnswer, NodeAnswer, WorkerPoint
from nodevet.feed.interval import Interval
from nodevet.printable import cells, plain
from nodevet.report.parts import feed_text
from nodevet.report.parts.grid import BOLD, sgr
from nodevet.report.parts.text import GAP, name, pad, wrap

BAR = 50  # columns of a bar of 100 %
MOST_BARS = 16
FIRST_TO_GO = ("link ms", "storage ms", "slowdown")


def table(answer: FeedAnswer, *, colour: bool, width: int | None, plot: bool) -> str:
    """One block for each kind of node; then the hosts that could not be read."""
    lines = [sgr(feed_text.title(answer), BOLD) if colour else feed_text.title(answer)]
    for node in answer.nodes:
        lines += ["", *_node(answer, node, colour=colour, width=width, plot=plot)]
    for host, why in answer.lost.items():
        lines += ["", f"{name(host)}: not read: {plain(why)}"]
    return "\n".join(lines) + "\n"


def _node(
    answer: FeedAnswer, node: NodeAnswer, *, colour: bool, width: int | None, plot: bool
) -> Iterator[str]:
    yield from wrap(feed_text.subtitle(answer, node), width or 10_000)
    yield ""
    yield from _fitting([feed_text.HEADS, *map(feed_text.cells, node.batches)], width)
    if feed_text.bounded(node):
        yield feed_text.BOUNDS
    yield ""
    facts = list(feed_text.facts(answer, node))
    first = max(len(label) for label, _ in facts)
    for label, text in facts:
        head, *rest = wrap(text, max(30, width - first - 2) if width else 10_000)
        yield f"{label:{first}}{GAP}{head}"
        yield from (f"{'':{first}}{GAP}{line}" for line in rest)
    yield ""
    yield from _changes(node, colour)
    if plot:
        yield ""
        yield from plotted(node)


def _changes(node: NodeAnswer, colour: bool) -> Iterator[str]:
    if not node.changes:
        yield feed_text.nothing_to_change(node)
        return
    head = f"What to change first, at batch {node.at}; each alone:"
    yield sgr(head, BOLD) if colour else head
    yield from aligned([feed_text.CHANGE_HEADS, *feed_text.changes(node)], left=(0, 3))


def _fitting(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """The table; in a terminal that is too narrow without the columns that `binds` stands for."""
    lines = list(aligned(rows))
    for column in FIRST_TO_GO:
        if width is None or max(map(cells, lines)) <= width:
            break
        place = rows[0].index(column)
        rows = [[*row[:place], *row[place + 1 :]] for row in rows]
        lines = list(aligned(rows, left=(len(rows[0]) - 1,)))
    return lines


def aligned(rows: Sequence[Sequence[str]], left: Sequence[int] = (8,)) -> Iterator[str]:
    """Rows under one another: numbers to the right, the columns of `left` to the left."""
    widths = [max(map(cells, each)) for each in zip(*rows, strict=True)]
    for row in rows:
        padded = (
            pad(cell, width) if place in left else " " * (width - cells(cell)) + cell
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield GAP.join(padded).rstrip()


def plotted(node: NodeAnswer) -> Iterator[str]:
    """Utilization over batch size, and over workers, in characters that any terminal has."""
    yield "utilization by batch size: # at least, + at most"
    rows = [(f"{each.batch}", each.utilization, each.binds.value) for each in node.batches]
    yield from _bars(rows)
    points = node.over_workers
    if points:
        yield ""
        yield f"utilization by workers for each GPU, at batch {node.at}"
        yield from _bars(
            [
                (f"{one.workers}", one.utilization, one.binds.value + _now(node, one.workers))
                for one in _few(node)
            ]
        )


def _few(node: NodeAnswer) -> list[WorkerPoint]:
    """Some of the points: those that say something, and others between them."""
    told = {node.workers, node.workers_crossover.at if node.workers_crossover else None}
    step = -(-len(node.over_workers) // MOST_BARS)
    places = enumerate(node.over_workers)
    return [each for place, each in places if place % step == 0 or each.workers in told]


def _now(node: NodeAnswer, workers: int) -> str:
    return ", now" if workers == node.workers else ""


def _bars(rows: Sequence[tuple[str, Interval, str]]) -> Iterator[str]:
    first = max(len(label) for label, _, _ in rows)
    last = max(len(feed_text.utilization(share)) for _, share, _ in rows)
    for label, share, binds in rows:
        low, high = round(share.low * BAR), round((share.high or 0.0) * BAR)
        bar = "#" * low + "+" * (high - low) + "." * (BAR - high)
        yield f"{label:>{first}} |{bar}| {feed_text.utilization(share):>{last}}  {binds}"
