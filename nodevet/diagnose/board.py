"""One round of `diagnose --watch`: a line for each GPU, and a sentence about the worst. Pure."""

from collections.abc import Iterator, Sequence

from nodevet.base.printable import brief, cut, plain
from nodevet.base.printable import cells as cells_of
from nodevet.diagnose import phrases as words
from nodevet.diagnose.model import (
    ORDER,
    UNDECIDED,
    Cause,
    Diagnosis,
    GpuDiagnosis,
    HostDiagnosis,
    Points,
)
from nodevet.diagnose.words import number
from nodevet.sheet.text import BOLD, GAP, GREEN, RED, YELLOW, column, count, name, pad, sgr, wrap

BARS = "▁▂▃▄▅▆▇█"
CELLS = 20  # of a course of SM busy
LONGEST = 30  # columns of a host's name
MOST_LINES = 4  # lines of the sentence
CAUSE = 2  # the place of it among the cells
LEAST_ROWS = 3  # GPUs that are shown however low the terminal is
WIDTH = 100  # columns, if the terminal has none
COLOURS = {
    **{Cause.GPU: GREEN, Cause.IDLE: BOLD, Cause.REQUESTS: BOLD},
    **dict.fromkeys(UNDECIDED, YELLOW),
}
WatchedGpu = tuple[HostDiagnosis, GpuDiagnosis]


def board(
    incident: Diagnosis, *, colour: bool, width: int | None, height: int | None = None
) -> list[str]:
    """Lines of at most `width` columns; if `height` has no room for all GPUs, the worst."""
    room = width or WIDTH
    gpus = [(host, gpu) for host in incident.hosts for gpu in host.gpus]
    closing_lines = list(_closing_lines(incident, min(gpus, key=_rank, default=None), room))
    missing_lines = list(_missing_lines(incident, room))
    rest = len(closing_lines) + len(missing_lines) + 1
    most = len(gpus) if height is None else max(LEAST_ROWS, height - rest)
    shown = gpus
    if len(gpus) > most:
        shown = sorted(gpus, key=_rank)[: most - 1]
        closing_lines.insert(0, f"and {count(len(gpus) - len(shown), 'more GPU')}")
    return [*missing_lines, *_rows(shown, colour, room), *closing_lines]


def _missing_lines(incident: Diagnosis, room: int) -> Iterator[str]:
    """A line for each host with missing GPUs."""
    for host in incident.hosts:
        labels = ", ".join(map(words.missing_label, host.missing))
        if labels:
            yield cut(f"{name(host.host)}: missing: {plain(labels)}", room)


def _rank(watched: WatchedGpu) -> int:
    return ORDER.index(watched[1].cause)


def _rows(gpus: Sequence[WatchedGpu], colour: bool, room: int) -> Iterator[str]:
    cells = [
        (
            brief(name(host.host), LONGEST),
            f"GPU {gpu.index}",
            words.cause_text(gpu),
            gpu.confidence.value,
            _busy(host, gpu),
        )
        for host, gpu in gpus
    ]
    widths = [column(cells_of_column) for cells_of_column in zip(*cells, strict=True)]
    for row, (_, gpu) in zip(cells, gpus, strict=True):
        padded = [pad(cell, width) for cell, width in zip(row, widths, strict=True)]
        line = GAP.join(padded).rstrip()
        if colour and cells_of(line) <= room:
            padded[CAUSE] = coloured(gpu, padded[CAUSE])
            line = GAP.join(padded).rstrip()
        else:
            line = cut(line, room)
        yield line


def coloured(gpu: GpuDiagnosis, text: str) -> str:
    """Text in the colour of a GPU's cause."""
    return sgr(text, COLOURS.get(gpu.cause, RED))


def _busy(host: HostDiagnosis, gpu: GpuDiagnosis) -> str:
    """`▁▃█▁ 28 %`."""
    lines = [line for line in host.timelines if line.gpu == gpu.index and line.name == "SM busy"]
    figure = next((figure.value for figure in gpu.figures if figure.name == "sm_busy"), None)
    course = sparkline(lines[0].points, CELLS) if lines else ""
    value = "" if figure is None else f"{number(figure)} %"
    return f"{pad(course, CELLS)} {value}".rstrip()


def sparkline(points: Points, cells: int, ends: tuple[float, float] | None = None) -> str:
    """Percent over time as `cells` bars; a moment without a value shows the value before it.
    `ends`: the first and the last moment, by default of the points.

    >>> sparkline(((0.0, 0.0), (1.0, 50.0), (2.0, 100.0)), 3)
    '▁▅█'
    """
    if not points:
        return ""
    first, last = ends or (points[0][0], points[-1][0])
    binned: list[list[float]] = [[] for _ in range(cells)]
    for at, value in points:
        share = (at - first) / (last - first) if last > first else 0.0
        binned[max(0, min(cells - 1, int(share * cells)))].append(value)
    bars, bar = "", BARS[0]
    for values in binned:
        if values:
            share = sum(values) / len(values) / 100
            bar = BARS[max(0, min(len(BARS) - 1, round(share * (len(BARS) - 1))))]
        bars += bar
    return bars


def _closing_lines(incident: Diagnosis, worst: WatchedGpu | None, room: int) -> Iterator[str]:
    """A sentence about the worst GPU, and a line for each host without a diagnosis."""
    for host in incident.hosts:
        if not host.gpus:
            yield cut(f"{name(host.host)}: no diagnosis: {words.no_diagnosis(host)}", room)
    if worst is not None:
        host, gpu = worst
        label = f"{name(host.host)} GPU {gpu.index}"
        yield ""
        yield from wrap(f"{label} {plain(gpu.sentence)}", room)[:MOST_LINES]
        yield from wrap(f"next: {words.next_text([gpu])}", room)[:MOST_LINES]
