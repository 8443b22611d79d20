"""A workload on a node: what the file says, and what the node fills in."""

from collections.abc import Iterator

import msgspec

from nodevet.feed.interval import UNKNOWN, Interval
from nodevet.feed.model import Feed, FeedStage
from nodevet.feed.node import FeedNode
from nodevet.feed.workload import Workload

NO_READ = "storage.read is not given, and a look at a node cannot measure it"


class UnknownStage(msgspec.Struct, frozen=True, kw_only=True):
    """A stage whose time is not known, or only bounded from below."""

    stage: FeedStage
    why: str


def feed_of(workload: Workload, node: FeedNode | None) -> Feed:
    """All that the arithmetic needs. `node`: None works from the file alone."""
    return Feed(
        step=workload.step,
        sample_b=workload.sample_b,
        tensor_b=workload.tensor_b,
        gpus=gpus_of(workload, node),
        workers=workload.workers,
        cpus=_cpus(node) if node else None,
        worker_rate=workload.worker_rate,
        on_gpu=workload.transform_on == "gpu",
        gpu_rate=workload.gpu_rate,
        storage_read=_storage(workload, node),
        storage_latency_s=workload.storage_latency_s,
        storage_concurrency=workload.storage_concurrency,
        uncached=1.0 - (workload.cached or 0.0),
        link=workload.link or (node.link if node else UNKNOWN),
    )


def relevant(workload: Workload, node: FeedNode) -> FeedNode:
    """The node without what the file itself says, or does not ask for."""
    told = {
        "link": workload.link is None,
        "nvme": workload.storage_over == "nvme",
        "network": workload.storage_over == "network",
        "memory": workload.dataset_b is not None,
        "gpus": workload.gpus is None or workload.link is None,
    }
    blank = FeedNode()
    fields = [
        field
        for field in FeedNode.__struct_fields__
        if not told.get(field.partition("_")[0], True) and field != "gpus"
    ]
    return msgspec.structs.replace(
        node,
        unknown={name: why for name, why in node.unknown.items() if told.get(name, True)},
        **{field: getattr(blank, field) for field in fields},
    )


def gpus_of(workload: Workload, node: FeedNode | None) -> int:
    """GPUs of the job on one node: as the file says, or those of the node, or else one."""
    return workload.gpus or (node.gpus if node else None) or 1


def _cpus(node: FeedNode) -> Interval:
    if node.cores is None or node.threads is None:
        return UNKNOWN
    return Interval(node.cores, node.threads)


def _storage(workload: Workload, node: FeedNode | None) -> Interval:
    """As stated, unless the node's links cannot carry it; unstated, what these bound it to."""
    stated = workload.storage_read
    links = {"nvme": node.nvme, "network": node.network} if node else {}
    bound = links.get(workload.storage_over or "", UNKNOWN)
    if bound.high is None or (stated.high is not None and stated.high <= bound.high):
        return stated
    return Interval(0.0, bound.high)


def unknowns(feed: Feed, workload: Workload, node: FeedNode | None) -> Iterator[UnknownStage]:
    """The stages whose time is not known, each with why; those that are bounded on both sides are
    known well enough to be told as a range."""
    missing = node.unknown if node else {}
    if feed.sample_b is None and feed.uncached:
        yield UnknownStage(stage=FeedStage.STORAGE, why="sample_size is not given")
    elif feed.uncached and not feed.storage_read.low:
        yield UnknownStage(stage=FeedStage.STORAGE, why=_why_no_storage(workload, node))
    if feed.on_gpu:
        if not feed.gpu_rate.low:
            yield UnknownStage(stage=FeedStage.TRANSFORM, why="transform.gpu_rate is not given")
    elif not feed.worker_rate.low:
        yield UnknownStage(stage=FeedStage.TRANSFORM, why="transform.worker_rate is not given")
    elif feed.workers is None:
        yield UnknownStage(stage=FeedStage.TRANSFORM, why="workers is not given")
    elif feed.cpus is not None and not feed.cpus.low:
        yield UnknownStage(
            stage=FeedStage.TRANSFORM, why=missing.get("cores", "cores are not known")
        )
    if feed.tensor_b is None:
        yield UnknownStage(stage=FeedStage.LINK, why="sample_size is not given")
    elif not feed.link.low:
        why = missing.get("link", "link is not given, and no host is named to ask")
        yield UnknownStage(stage=FeedStage.LINK, why=why)


def _why_no_storage(workload: Workload, node: FeedNode | None) -> str:
    where = workload.storage_over
    if node is None or where is None:
        return NO_READ
    if where in node.unknown:
        return f"{NO_READ}; {node.unknown[where]}"
    words = node.nvme_words if where == "nvme" else node.network_words
    return f"{NO_READ}; at most what its links carry: {words}"
