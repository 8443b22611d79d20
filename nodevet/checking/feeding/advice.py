"""What to change first: repeats the arithmetic with one changed input at a time, and compares the
gains."""

from collections.abc import Iterator, Sequence
from math import floor

import msgspec

from nodevet.checking.feeding.interval import Interval, exact_interval, larger
from nodevet.checking.feeding.model import (
    BatchOutcome,
    Feed,
    FeedStage,
    moved_b,
    outcome,
    workers_needed,
)
from nodevet.checking.feeding.node import FeedNode
from nodevet.checking.feeding.units import amount_text
from nodevet.checking.feeding.workload import Workload

LEAST = 0.001  # of the throughput; a smaller gain does not count


class FeedChange(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to change, and the effect of this change alone."""

    name: str  # workers, batch, gpu_preprocessing, link, storage, cache
    text: str  # 56 workers for each GPU instead of 8
    gain: float  # of the throughput: 0.5 is half as much again
    certain: bool  # false: `gain` is an upper bound, because an unknown stage may bind first
    utilization: Interval  # after the change
    binds: FeedStage  # after the change
    note: str = ""


def changes(
    feed: Feed, workload: Workload, node: FeedNode | None, batch: int
) -> tuple[FeedChange, ...]:
    """The changes that gain something at a batch size, the best first."""
    before = outcome(feed, batch)
    candidates = [
        *_workers(feed, before, node),
        *_batch(feed, before, workload.batches),
        *_on_gpu(feed, before),
        *_link(feed, before, node),
        *_storage(feed, before),
        *_cache(feed, before, workload, node),
    ]
    return tuple(
        sorted((candidate for candidate in candidates if candidate.gain >= LEAST), key=_order)
    )


def _order(change: FeedChange) -> tuple[float, bool, str]:
    """The sort key: the largest gain first; certain gains before uncertain ones."""
    return -round(change.gain, 6), not change.certain, change.name


def change(
    name: str, text: str, before: BatchOutcome, after: BatchOutcome, note: str = ""
) -> FeedChange:
    """The change between two outcomes of the model."""
    most_before, most_after = before.throughput.high or 0.0, after.throughput.high or 0.0
    return FeedChange(
        name=name,
        text=text,
        gain=most_after / most_before - 1,
        certain=before.throughput.exact and after.throughput.exact,
        utilization=after.utilization,
        binds=after.binds,
        note=note,
    )


def with_workers(feed: Feed, workers: int) -> Feed:
    return msgspec.structs.replace(feed, workers=workers)


def _workers(feed: Feed, before: BatchOutcome, node: FeedNode | None) -> Iterator[FeedChange]:
    """A change to as many workers as the slowest other stage can use and the node has cores for."""
    if feed.on_gpu or feed.workers is None:
        return
    others = _slowest_but(before, FeedStage.TRANSFORM)
    needed = workers_needed(feed, before.batch, others.low)
    if needed is None:
        return
    most = floor(feed.cpus.low / feed.gpus) if feed.cpus and feed.cpus.low else None
    workers = needed if most is None else min(needed, most)
    if workers <= feed.workers:
        return
    note = ""
    if most is None:
        note = f"needs {workers * feed.gpus} cores"
    elif workers < needed:
        note = f"each GPU needs {needed}; the node's cores are enough for {most}"
    elif node and node.near_cores is not None and workers > node.near_cores:
        note = f"{node.near_cores} cores are near each GPU, the others on another NUMA node"
    yield change(
        "workers", f"{workers} workers for each GPU instead of {feed.workers}", before,
        outcome(with_workers(feed, workers), before.batch), note,
    )  # fmt: skip


def _batch(feed: Feed, before: BatchOutcome, batches: Sequence[int]) -> Iterator[FeedChange]:
    """A change to another batch size of the file; to a smaller one only if it is faster."""
    others = [outcome(feed, batch) for batch in batches if batch != before.batch]
    best = max(others, key=lambda outcome: outcome.throughput.high or 0.0, default=None)
    if best:
        text = f"batch {best.batch} instead of {before.batch}"
        yield change("batch", text, before, best, "if the model converges with it")


def _on_gpu(feed: Feed, before: BatchOutcome) -> Iterator[FeedChange]:
    if feed.on_gpu:
        return
    after = outcome(msgspec.structs.replace(feed, on_gpu=True), before.batch)
    note = "" if feed.gpu_rate.low else "its rate is not known: transform.gpu_rate"
    yield change("gpu_preprocessing", "preprocessing on the GPU", before, after, note)


def _link(feed: Feed, before: BatchOutcome, node: FeedNode | None) -> Iterator[FeedChange]:
    """A change to the slot's best link, or else to a link that the other stages do not wait for."""
    moved = moved_b(feed)
    if moved is None or before.link_s.low < _slowest_but(before, FeedStage.LINK).low:
        return
    best = node.link_best if node and feed.link == node.link else None
    if best and best.high and best.high > (feed.link.high or 0.0):
        text, rate, note = "the link that GPU and slot can have", best, "see the check pcie_link"
    else:
        rate = exact_interval(before.batch * moved / _slowest_but(before, FeedStage.LINK).low)
        text, note = f"a link that moves {amount_text(rate.low, 'B/s')} to each GPU", ""
    after = outcome(msgspec.structs.replace(feed, link=rate), before.batch)
    yield change("link", text, before, after, note)


def _storage(feed: Feed, before: BatchOutcome) -> Iterator[FeedChange]:
    """A change to storage that the other stages do not wait for."""
    others = _slowest_but(before, FeedStage.STORAGE).low
    if feed.sample_b is None or not feed.uncached or before.storage_s.low <= others:
        return
    rate = before.batch * feed.sample_b * feed.uncached * feed.gpus / others
    after = msgspec.structs.replace(feed, storage_read=exact_interval(rate), storage_latency_s=None)
    text = f"storage that reads {amount_text(rate, 'B/s')}"
    waits = feed.storage_latency_s and (feed.storage_read.high or rate) >= rate
    note = "more reads at once, or larger ones: each waits for its latency" if waits else ""
    yield change("storage", text, before, outcome(after, before.batch), note)


def _cache(
    feed: Feed, before: BatchOutcome, workload: Workload, node: FeedNode | None
) -> Iterator[FeedChange]:
    """A change to the page cache, if the node's memory can hold the data."""
    size, memory = workload.dataset_b, node.memory_b if node else None
    if not size or not memory or size > memory * 0.8 or not feed.uncached:
        return
    after = outcome(msgspec.structs.replace(feed, uncached=0.0), before.batch)
    text = f"all of the {amount_text(size, 'B')} in the page cache"
    yield change(
        "cache", text, before, after, f"of {amount_text(memory, 'B')} memory; after one epoch"
    )


def _slowest_but(before: BatchOutcome, stage: FeedStage) -> Interval:
    """The time of the slowest of the other stages."""
    slowest = exact_interval(before.step_s)
    for other_stage in FeedStage:
        if other_stage is not stage:
            slowest = larger(slowest, before.time_of(other_stage))
    return slowest
