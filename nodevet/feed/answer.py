"""A workload on nodes, answered: batch by batch, what binds, where that changes, what to change."""

from collections.abc import Mapping

import msgspec

from nodevet import __version__
from nodevet.checking.feeding.advice import FeedChange, changes
from nodevet.checking.feeding.interval import Interval
from nodevet.checking.feeding.model import (
    BatchOutcome,
    Crossover,
    Feed,
    FeedStage,
    batch_crossovers,
    outcome,
    over_workers,
    worker_crossover,
)
from nodevet.checking.feeding.node import FeedNode, feed_node
from nodevet.checking.feeding.setup import UnknownStage, feed_of, relevant, unknowns
from nodevet.checking.feeding.workload import Workload
from nodevet.evidence.document import Evidence

FEED_SCHEMA = 1
MOST_SHOWN = 512  # workers for each GPU, of the curve over them


class WorkerPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Utilization with so many workers for each GPU."""

    workers: int
    utilization: Interval
    binds: FeedStage


class NodeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What comes of the workload on nodes that are alike; without a node, by the file alone."""

    hosts: tuple[str, ...]
    node: FeedNode | None  # what their evidence says that matters; null: no host was named
    gpus: int  # of the job on one node
    workers: int | None  # for each GPU
    batches: tuple[BatchOutcome, ...]
    crossovers: tuple[Crossover, ...]  # as the batch grows
    at: int  # the batch of all that follows
    workers_crossover: Crossover | None  # from so many workers on the transform does not bind
    over_workers: tuple[WorkerPoint, ...]
    changes: tuple[FeedChange, ...]  # one at a time, the most gain first
    unknown: tuple[UnknownStage, ...]

    @property
    def chosen(self) -> BatchOutcome:
        """The outcome of the batch that the changes are for."""
        return next(each for each in self.batches if each.batch == self.at)


class FeedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Everything: what every format renders."""

    schema: int = FEED_SCHEMA
    nodevet: str
    workload: Workload
    nodes: tuple[NodeAnswer, ...]
    lost: Mapping[str, str] = {}  # hosts that could not be read, and why

    @property
    def exit_code(self) -> int:
        """3 if a host could not be read, else 0."""
        return 3 if self.lost else 0


def answer(
    workload: Workload,
    evidence: Mapping[str, Evidence],
    lost: Mapping[str, str],
    at: int | None = None,
) -> FeedAnswer:
    """The workload on each kind of node, or without hosts by itself. `at`: the batch that changes
    are sought for; the largest if none is named."""
    batch = at or workload.batches[-1]
    groups: dict[bytes, tuple[FeedNode, list[str]]] = {}
    for host, each in evidence.items():
        node = relevant(workload, feed_node(each, workload.gpus))
        groups.setdefault(msgspec.json.encode(node), (node, []))[1].append(host)
    found = [node_answer(workload, node, tuple(hosts), batch) for node, hosts in groups.values()]
    if not evidence and not lost:
        found = [node_answer(workload, None, (), batch)]
    return FeedAnswer(nodevet=__version__, workload=workload, nodes=tuple(found), lost=lost)


def node_answer(
    workload: Workload, node: FeedNode | None, hosts: tuple[str, ...], at: int
) -> NodeAnswer:
    """The workload on nodes of which all say the same."""
    feed = feed_of(workload, node)
    return NodeAnswer(
        hosts=hosts,
        node=node,
        gpus=feed.gpus,
        workers=feed.workers,
        batches=tuple(outcome(feed, batch) for batch in workload.batches),
        crossovers=batch_crossovers(feed, workload.batches),
        at=at,
        workers_crossover=worker_crossover(feed, at),
        over_workers=tuple(_over_workers(feed, at)),
        changes=changes(feed, workload, node, at),
        unknown=tuple(unknowns(feed, workload, node)),
    )


def _over_workers(feed: Feed, at: int) -> tuple[WorkerPoint, ...]:
    """The curve, up to a little past what is needed or there; none if workers change nothing."""
    found = outcome(feed, at)
    if feed.on_gpu or found.workers_needed is None:
        return ()
    most = min(MOST_SHOWN, max(found.workers_needed, feed.workers or 1) * 5 // 4 + 1)
    crossover = worker_crossover(feed, at)
    told = {feed.workers or 1, crossover.at if crossover else 1}
    return tuple(
        WorkerPoint(workers=workers, utilization=one.utilization, binds=one.binds)
        for workers, one in over_workers(feed, at, most, told)
    )
