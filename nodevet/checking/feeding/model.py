"""The arithmetic: how long each stage of a step takes, which stage binds, and how busy the GPU is.

The stages overlap, as in any loader that prefetches: a step takes as long as the slowest of them.
With batch B, sample size s, a transform rate c and the accelerator's time t, the transform takes
B·s / c, utilization is t / max(t, B·s / c, ...), the slowdown is its inverse, and data must arrive
at B·s / t for the accelerator to be the slowest stage.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from functools import reduce
from itertools import pairwise
from math import ceil

import msgspec

from nodevet.checking.feeding.interval import (
    NO_TIME,
    UNKNOWN,
    Interval,
    exact_interval,
    larger,
    smaller,
)
from nodevet.checking.feeding.workload import LARGEST_BATCH, StepTime

MOST_WORKERS = 65_536  # the most workers for each GPU that are tried


class FeedStage(str, Enum):
    """The stages that a step waits for, in the order of the data."""

    STORAGE = "storage"  # reads
    TRANSFORM = "transform"  # decoding and augmenting, by workers or on the GPU
    LINK = "link"  # the copy to the GPU
    ACCELERATOR = "accelerator"  # the step itself

    @property
    def words(self) -> str:
        """The stage in a sentence: `storage`, `the link`."""
        return self.value if self is FeedStage.STORAGE else f"the {self.value}"


OF_EQUALS = (FeedStage.ACCELERATOR, FeedStage.STORAGE, FeedStage.LINK, FeedStage.TRANSFORM)


class Feed(msgspec.Struct, frozen=True, kw_only=True):
    """The input of the arithmetic, from a job and a node. An interval without bounds is unknown."""

    step: StepTime
    sample_b: float | None  # of one sample as it is read
    tensor_b: float | None  # of one sample as it goes to the GPU, if a CPU transforms it
    gpus: int  # of the job on this node
    workers: int | None  # for each GPU
    cpus: Interval | None  # that all workers of the node share; null: as many as there are workers
    worker_rate: Interval  # samples/s of one worker with a core of its own
    on_gpu: bool  # where the transform happens
    gpu_rate: Interval  # samples/s of preprocessing on one GPU
    storage_read: Interval  # bytes/s of all GPUs of the node
    storage_latency_s: float | None
    storage_concurrency: int | None  # null: one for each worker
    uncached: float  # share of reads that go to storage
    link: Interval  # bytes/s of each GPU


class BatchOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one batch size, in seconds, bytes and samples per second."""

    batch: int  # samples of one step of one GPU
    step_s: float  # the accelerator's time
    storage_s: Interval  # times of the other stages for one step of one GPU
    transform_s: Interval
    link_s: Interval
    pace_s: Interval  # from one step to the next: the slowest stage
    utilization: Interval  # of the accelerator, 0 to 1
    slowdown: Interval  # pace_s / step_s, 1 or more
    throughput: Interval  # samples/s of one GPU
    demand_b_s: float | None  # bytes/s that one GPU at full speed takes; null: size not known
    binds: FeedStage  # the slowest stage of those that are known
    # every stage that may be the slowest if the unknown values are as bad as possible
    may_bind: tuple[FeedStage, ...]
    workers_needed: int | None  # for each GPU, so that the transform keeps up with full speed

    @property
    def certain(self) -> bool:
        """Whether utilization is a number and not only a bound."""
        return self.utilization.exact

    def time_of(self, stage: FeedStage) -> Interval:
        return {
            FeedStage.STORAGE: self.storage_s,
            FeedStage.TRANSFORM: self.transform_s,
            FeedStage.LINK: self.link_s,
            FeedStage.ACCELERATOR: exact_interval(self.step_s),
        }[stage]


class Crossover(msgspec.Struct, frozen=True, kw_only=True):
    """The point at which another stage begins to bind, as the batch or the number of workers
    grows."""

    at: int  # the first batch, or number of workers, at which the second stage binds
    before: FeedStage
    after: FeedStage
    about: bool = False  # true: interpolated between two batches of a table


def outcome(feed: Feed, batch: int) -> BatchOutcome:
    """The outcome of a batch size for which the workload has a step time."""
    return _outcome(feed, batch, feed.step.seconds_for(batch))


def _outcome(feed: Feed, batch: int, step_s: float) -> BatchOutcome:
    times = {
        FeedStage.STORAGE: _storage(feed, batch),
        FeedStage.TRANSFORM: _transform(feed, batch),
        FeedStage.LINK: _link(feed, batch),
        FeedStage.ACCELERATOR: exact_interval(step_s),
    }
    pace = reduce(larger, times.values())
    if feed.on_gpu:  # beside the step at best, and in its way at worst
        pace = larger(pace, Interval(step_s, _sum(step_s, times[FeedStage.TRANSFORM].high)))
    low, high = pace.low, pace.high
    demand = None if feed.sample_b is None else batch * feed.sample_b / step_s
    return BatchOutcome(
        batch=batch,
        step_s=step_s,
        storage_s=times[FeedStage.STORAGE],
        transform_s=times[FeedStage.TRANSFORM],
        link_s=times[FeedStage.LINK],
        pace_s=pace,
        utilization=Interval(0.0 if high is None else step_s / high, step_s / low),
        slowdown=Interval(low / step_s, None if high is None else high / step_s),
        throughput=Interval(0.0 if high is None else batch / high, batch / low),
        demand_b_s=demand,
        binds=_slowest(times),
        may_bind=tuple(
            stage for stage, time in times.items() if time.high is None or time.high >= low
        ),
        workers_needed=workers_needed(feed, batch, step_s),
    )


def _sum(seconds: float, more: float | None) -> float | None:
    return None if more is None else seconds + more


def _slowest(times: dict[FeedStage, Interval]) -> FeedStage:
    """The stage with the largest lower bound of its time; of equal stages the one that is hardest
    to change."""
    return max(OF_EQUALS, key=lambda stage: times[stage].low)


def _storage(feed: Feed, batch: int) -> Interval:
    if feed.uncached == 0:
        return NO_TIME
    if feed.sample_b is None:
        return UNKNOWN
    rate = feed.storage_read
    if feed.storage_latency_s:
        reads = feed.storage_concurrency or (feed.workers and feed.workers * feed.gpus)
        within = reads * feed.sample_b / feed.storage_latency_s if reads else None
        rate = smaller(rate, UNKNOWN if within is None else exact_interval(within))
    return rate.time_for(batch * feed.sample_b * feed.uncached * feed.gpus)


def _transform(feed: Feed, batch: int) -> Interval:
    return transform_rate(feed).time_for(batch)


def transform_rate(feed: Feed) -> Interval:
    """The samples per second of one GPU's preprocessing."""
    if feed.on_gpu:
        return feed.gpu_rate
    busy = UNKNOWN if feed.workers is None else exact_interval(feed.workers)
    if feed.cpus is not None:
        busy = smaller(busy, feed.cpus.times(1 / feed.gpus))
    worker = feed.worker_rate
    high = None if worker.high is None or busy.high is None else worker.high * busy.high
    return Interval(worker.low * busy.low, high)


def _link(feed: Feed, batch: int) -> Interval:
    moved = moved_b(feed)
    return UNKNOWN if moved is None else feed.link.time_for(batch * moved)


def moved_b(feed: Feed) -> float | None:
    """The bytes of one sample that go over the link: as it is stored if the GPU transforms it."""
    return feed.sample_b if feed.on_gpu else feed.tensor_b


def workers_needed(feed: Feed, batch: int, within_s: float) -> int | None:
    """The number of workers for each GPU that transform a batch in this time, each with a core of
    its own; None if their rate is not known, or if no worker is needed."""
    if feed.on_gpu or not feed.worker_rate.low or not within_s:
        return None
    exact = batch / (within_s * feed.worker_rate.low)
    return max(1, ceil(exact * (1 - 1e-9)))


def batch_crossovers(feed: Feed, batches: Sequence[int]) -> tuple[Crossover, ...]:
    """Where another stage begins to bind as the batch grows: from 1 up if the step times are a
    line; between the first and the last batch if they are a table."""
    table = bool(feed.step.table)
    places = sorted({*batches, *(() if table else (1, LARGEST_BATCH))})
    return tuple(_crossings(feed, places, about=table))


def _crossings(feed: Feed, places: Sequence[int], *, about: bool) -> Iterator[Crossover]:
    def binds(batch: int) -> FeedStage:
        return _outcome(feed, batch, feed.step.interpolated_seconds(batch)).binds

    for low, high in pairwise(places):
        before, after = binds(low), binds(high)
        if before is after:
            continue
        first, last = low, high
        while last - first > 1:
            middle = (first + last) // 2
            first, last = (middle, last) if binds(middle) is before else (first, middle)
        yield Crossover(at=last, before=before, after=after, about=about)


def worker_crossover(feed: Feed, batch: int) -> Crossover | None:
    """The least number of workers for each GPU with which the transform does not bind; None if it
    never binds, if no number of workers changes this, or if the rate of a worker is not known."""
    if feed.on_gpu or not feed.worker_rate.low:
        return None
    single = msgspec.structs.replace(feed, workers=1)
    if outcome(single, batch).binds is not FeedStage.TRANSFORM:
        return None
    low, high = 1, MOST_WORKERS
    if outcome(msgspec.structs.replace(feed, workers=high), batch).binds is FeedStage.TRANSFORM:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        bound = outcome(msgspec.structs.replace(feed, workers=middle), batch).binds
        low, high = (middle, high) if bound is FeedStage.TRANSFORM else (low, middle)
    after = outcome(msgspec.structs.replace(feed, workers=high), batch).binds
    return Crossover(at=high, before=FeedStage.TRANSFORM, after=after)


def over_workers(
    feed: Feed, batch: int, most: int, shown: Iterable[int]
) -> Iterator[tuple[int, BatchOutcome]]:
    """The outcomes of a batch with 1 to `most` workers for each GPU: for 40 of these numbers, and
    always for the numbers in `shown`."""
    for workers in sorted({*_spread(1, most, 40), *shown}):
        yield workers, outcome(msgspec.structs.replace(feed, workers=workers), batch)


def _spread(low: int, high: int, number: int) -> Iterable[int]:
    if high - low < number:
        return range(low, high + 1)
    return sorted({round(low + (high - low) * place / (number - 1)) for place in range(number)})
