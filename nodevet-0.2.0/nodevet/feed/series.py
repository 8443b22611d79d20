"""A data loader with more and more workers: when to stop, and what its storage can do. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

from nodevet.checking.feeding.interval import Interval
from nodevet.evidence.loader import LoaderRun

PLACE = "{workers}"
"""In the command: replaced by the number of workers."""
GROWS = 1.1  # times the rate of half as many workers; below, it no longer grows
MOST_WORKERS = 64
FULL = 0.8  # of all CPUs: they hold the loader up, not its storage

Points = Sequence[tuple[int, LoaderRun]]
"""The numbers of workers, ascending, each with its run."""


class Ceiling(NamedTuple):
    """The highest rate of reads, and the number of workers that reaches it."""

    read_b_s: Interval
    concurrency: int | None  # None: it still grew


def next_workers(points: Points, most: int) -> int | None:
    """The number of workers to measure next; None at the end."""
    if not points:
        return 1
    if len(points) > 1 and not grew(points[-2][1], points[-1][1]):
        return None
    workers = 2 * points[-1][0]
    return workers if workers <= most else None


def grew(before: LoaderRun, after: LoaderRun) -> bool:
    """Whether its samples, or its reads if it reported none, came clearly faster."""
    return rate(after) >= GROWS * rate(before)


def rate(run: LoaderRun) -> float:
    return (run.samples or run.read_b or 0) / (run.seconds or 1.0)


def read_rate(run: LoaderRun) -> float:
    return (run.read_b or 0) / (run.seconds or 1.0)


def ceiling(points: Points) -> Ceiling:
    """A range if more workers no longer read more, and the CPUs were not full; else a bound."""
    fastest = max(read_rate(run) for _, run in points)
    if len(points) < 2 or grew(points[-2][1], points[-1][1]) or _is_full(points[-1][1]):
        return Ceiling(Interval(fastest, None), None)
    (enough, before), (_, last) = points[-2:]
    low, high = sorted((read_rate(before), read_rate(last)))
    return Ceiling(Interval(low, high), enough)


def _is_full(run: LoaderRun) -> bool:
    return bool(run.cpus) and (run.cpu_s or 0.0) >= FULL * (run.cpus or 0) * (run.seconds or 0.0)


def latency_s(workers: int, run: LoaderRun) -> float | None:
    """How long one worker waited for one sample; None if it is not known."""
    if not run.samples or not run.seconds or run.cpu_s is None:
        return None
    return max(0.0, workers * run.seconds - run.cpu_s) / run.samples
