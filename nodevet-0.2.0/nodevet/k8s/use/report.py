"""Write verdicts to nodes as conditions, and an event for each new failure."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from nodevet.base.errors import UserError
from nodevet.inventory.cluster import (
    CONFLICT,
    FORBIDDEN,
    GONE,
    UNKNOWN_USER,
    Cluster,
    ClusterError,
)
from nodevet.inventory.cluster_objects import ClusterNode, NodeCondition
from nodevet.k8s.condition import (
    TYPE,
    NodeVerdict,
    WrittenCondition,
    condition_of,
    events_of,
    heartbeat,
    is_newer,
    is_of_other_boot,
    is_recent,
    stale,
    unknown,
    verdict_of,
    why_untried,
)
from nodevet.k8s.use.find import node_of
from nodevet.model import HostReport, Run

TRIES = 8  # writes, each repeated because somebody else changed the node meanwhile
NEWER = "its condition comes from a later visit"
FATAL = frozenset({0, UNKNOWN_USER, FORBIDDEN})  # statuses of errors that every node would cause
Judge = Callable[[ClusterNode], NodeVerdict | None]


class Reporter(NamedTuple):
    """The parameters that apply to all nodes."""

    cluster: Cluster
    now: float  # seconds since 1970
    most: float  # age in seconds above which a verdict is too old
    dry: bool = False  # write nothing


def report(reporter: Reporter, run: Run, name: str = "") -> Iterator[WrittenCondition]:
    """Write the verdict about each host of a run. `name`: the node of the only host. Raises
    UserError if the run cannot prove that a node passes."""
    if run.only or run.skip:
        raise UserError("a run with --only or --skip cannot prove that a node passes")
    if run.replayed:
        raise UserError("the run judged saved evidence; report a run that visited the nodes")
    if name and len(run.hosts) != 1:
        raise UserError(f"--node names one node, and the run has {len(run.hosts)} hosts")
    for host in run.hosts:
        yield _reported(reporter, run, host, name or host.host)


def expire(reporter: Reporter, selector: str) -> Iterator[WrittenCondition]:
    """Write Unknown to the selected nodes whose verdict is missing or too old."""
    for node in reporter.cluster.nodes(selector):
        if _expired(reporter, node):
            yield _guarded(node.name, partial(_expire, reporter, node))


def _reported(reporter: Reporter, run: Run, host: HostReport, name: str) -> WrittenCondition:
    if why := why_untried(host):
        return WrittenCondition(name, why_not=why)

    def judge(node: ClusterNode) -> NodeVerdict | None:
        verdict = verdict_of(run, host, node, now=reporter.now, most=reporter.most)
        return None if is_newer(node.condition(TYPE), verdict, reporter.now) else verdict

    return _guarded(
        name, lambda: _written(reporter, node_of(reporter.cluster, name), judge, run.id)
    )


def _expire(reporter: Reporter, node: ClusterNode) -> WrittenCondition:
    try:
        return _written(reporter, node, partial(_expired, reporter), "")
    except ClusterError as error:
        if error.status != GONE:
            raise
        return WrittenCondition(node.name, why_not="the node was deleted meanwhile")


def _expired(reporter: Reporter, node: ClusterNode) -> NodeVerdict | None:
    """The verdict to write to a node; None if its present condition may stay."""
    old = node.condition(TYPE)
    if old is not None and old.status == "Unknown":
        return None
    read = heartbeat(old)
    if old is not None and is_of_other_boot(old, node):
        return unknown("OtherMachine", "the node has booted since it was vetted", read)
    if read is not None and is_recent(read, reporter.now, reporter.most):
        return None
    return stale(read, reporter.now)


def _guarded(name: str, write: Callable[[], WrittenCondition]) -> WrittenCondition:
    """The result of `write`. An error about one node does not stop the others."""
    try:
        return write()
    except ClusterError as error:
        if error.status in FATAL:
            raise
        return WrittenCondition(name, why_not=str(error), is_short=True)


def _written(reporter: Reporter, node: ClusterNode, judge: Judge, run: str) -> WrittenCondition:
    """Write the verdict that `judge` returns about the node. If somebody changed the node
    meanwhile, read and judge it again. Raises ClusterError."""
    cluster, tries = reporter.cluster, TRIES
    while True:
        verdict, old = judge(node), node.condition(TYPE)
        if verdict is None:
            return WrittenCondition(node.name, why_not=NEWER)
        if not reporter.dry:
            try:
                _write(reporter, node, verdict, old, run)
            except ClusterError as error:
                tries -= 1
                if error.status != CONFLICT or not tries:
                    raise
                node = cluster.node(node.name)
                continue
        return WrittenCondition(node.name, verdict.status, verdict.message)


def _write(
    reporter: Reporter, node: ClusterNode, verdict: NodeVerdict, old: NodeCondition | None, run: str
) -> None:
    """Write the condition, then its events: if one is lost, the condition still has its text."""
    condition = condition_of(verdict, old, reporter.now)
    reporter.cluster.patch_status(node, {"conditions": [condition]})
    for event in events_of(verdict, old, node, run, reporter.now):
        reporter.cluster.add_event(event)
