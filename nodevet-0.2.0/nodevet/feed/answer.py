"""The answer of `nodevet feed`: which stage binds at each batch, where that changes, what to
change."""

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
MOST_SHOWN = 512  # workers for each GPU in the curve


class WorkerPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Utilization with a number of workers for each GPU."""

    workers: int
    utilization: Interval
    binds: FeedStage


class NodeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The workload on similar nodes; without a node, from the file alone."""

    hosts: tuple[str, ...]
    node: FeedNode | None  # the relevant facts of their evidence; null: no host was named
    gpus: int  # that the job has on one node
    workers: int | None  # for each GPU
    batches: tuple[BatchOutcome, ...]
    crossovers: tuple[Crossover, ...]  # as the batch grows
    at: int  # the batch of all fields below
    workers_crossover: Crossover | None  # the workers at which the transform stops binding
    over_workers: tuple[WorkerPoint, ...]
    changes: tuple[FeedChange, ...]  # each alone, the greatest gain first
    unknown: tuple[UnknownStage, ...]

    @property
    def chosen(self) -> BatchOutcome:
        """The outcome of the batch `at`."""
        return next(outcome for outcome in self.batches if outcome.batch == self.at)


class FeedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer, which every format renders."""

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
    """The workload on each kind of node, or without hosts by itself. `at`: the batch to find
    changes for; None: the largest."""
    batch = at or workload.batches[-1]
    groups: dict[bytes, tuple[FeedNode, list[str]]] = {}
    for host, document in evidence.items():
        node = relevant(workload, feed_node(document, workload.gpus))
        groups.setdefault(msgspec.json.encode(node), (node, []))[1].append(host)
    answers = [node_answer(workload, node, tuple(hosts), batch) for node, hosts in groups.values()]
    if not evidence and not lost:
        answers = [node_answer(workload, None, (), batch)]
    return FeedAnswer(nodevet=__version__, workload=workload, nodes=tuple(answers), lost=lost)


def node_answer(
    workload: Workload, node: FeedNode | None, hosts: tuple[str, ...], at: int
) -> NodeAnswer:
    """The workload on nodes with equal facts."""
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
    """The curve up to a little more than the workers that are needed or configured; empty if
    workers make no difference."""
    here = outcome(feed, at)
    if feed.on_gpu or here.workers_needed is None:
        return ()
    most = min(MOST_SHOWN, max(here.workers_needed, feed.workers or 1) * 5 // 4 + 1)
    crossover = worker_crossover(feed, at)
    marked = {feed.workers or 1, crossover.at if crossover else 1}
    return tuple(
        WorkerPoint(workers=workers, utilization=point.utilization, binds=point.binds)
        for workers, point in over_workers(feed, at, most, marked)
    )
