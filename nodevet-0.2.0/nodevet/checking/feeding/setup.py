"""A workload on a node: values from the file, and values that the node fills in."""

from collections.abc import Iterator

import msgspec

from nodevet.checking.feeding.interval import UNKNOWN, Interval
from nodevet.checking.feeding.model import Feed, FeedStage, moved_b
from nodevet.checking.feeding.node import FeedNode
from nodevet.checking.feeding.workload import Workload

NO_READ = "storage.read is not given, and the probe cannot measure it"


class UnknownStage(msgspec.Struct, frozen=True, kw_only=True):
    """A stage whose time is not known, or only bounded from below."""

    stage: FeedStage
    why: str


def feed_of(workload: Workload, node: FeedNode | None) -> Feed:
    """The input of the arithmetic. Without a `node`, it comes from the file alone."""
    return Feed(
        step=workload.step,
        sample_b=workload.sample_b,
        tensor_b=workload.tensor_b,
        gpus=gpus_of(workload, node),
        workers=workload.workers,
        cpus=_cpus(workload, node) if node else None,
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
    """The node without the values that the file itself gives or does not need."""
    needed = {
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
        if not needed.get(field.partition("_")[0], True) and field != "gpus"
    ]
    return msgspec.structs.replace(
        node,
        unknown={name: why for name, why in node.unknown.items() if needed.get(name, True)},
        **{field: getattr(blank, field) for field in fields},
    )


def gpus_of(workload: Workload, node: FeedNode | None) -> int:
    """The number of the job's GPUs on one node: from the file, or from the node, or else one."""
    return workload.gpus or (node.gpus if node else None) or 1


def why_uncounted(workload: Workload, node: FeedNode | None) -> str:
    """Why it is not known how many GPUs share the node's resources; empty if it is known. The
    arithmetic then takes one GPU, which is the best case."""
    if node is None or workload.gpus is not None or node.gpus is not None:
        return ""
    return node.unknown.get("gpus", "GPUs are not known")


def _cpus(workload: Workload, node: FeedNode) -> Interval:
    if node.cores is None or node.threads is None:
        return UNKNOWN
    return Interval(0.0 if why_uncounted(workload, node) else node.cores, node.threads)


def _storage(workload: Workload, node: FeedNode | None) -> Interval:
    """The rate from the file, unless the node's links cannot carry it; without one, the bound of
    the links."""
    stated = workload.storage_read
    links = {"nvme": node.nvme, "network": node.network} if node else {}
    bound = links.get(workload.storage_over or "", UNKNOWN)
    if why_uncounted(workload, node):
        stated = Interval(0.0, stated.high)
    if bound.high is None or (stated.high is not None and stated.high <= bound.high):
        return stated
    is_bound = stated.high is None  # else the file says more than the links carry
    return Interval(min(stated.low, bound.high) if is_bound else 0.0, bound.high)


def unknowns(feed: Feed, workload: Workload, node: FeedNode | None) -> Iterator[UnknownStage]:
    """The stages whose time is not known, each with the reason. A time with bounds on both sides
    counts as known, because a range can be shown."""
    for stage, why in (
        (FeedStage.STORAGE, _no_storage(feed, workload, node)),
        (FeedStage.TRANSFORM, _no_transform(feed, workload, node)),
        (FeedStage.LINK, _no_link(feed, node)),
    ):
        if why:
            yield UnknownStage(stage=stage, why=why)


def _no_storage(feed: Feed, workload: Workload, node: FeedNode | None) -> str:
    if not feed.uncached:
        return ""
    if feed.sample_b is None:
        return "sample_size is not given"
    if feed.storage_read.low:
        return ""
    where = workload.storage_over or ""
    words = {"nvme": node.nvme_words, "network": node.network_words} if node else {}
    if workload.storage_read.low:
        more = f"storage.read is more than its links carry: {words.get(where)}"
        return why_uncounted(workload, node) or more
    if node is None or not where:
        return NO_READ
    return (
        f"{NO_READ}; {node.unknown.get(where) or f'at most what its links carry: {words[where]}'}"
    )


def _no_transform(feed: Feed, workload: Workload, node: FeedNode | None) -> str:
    if feed.on_gpu:
        return "" if feed.gpu_rate.low else "transform.gpu_rate is not given"
    if not feed.worker_rate.low:
        return "transform.worker_rate is not given"
    if feed.workers is None:
        return "workers is not given"
    if feed.cpus is None or feed.cpus.low:
        return ""
    cores = node.unknown.get("cores") if node else ""
    return cores or why_uncounted(workload, node) or "cores are not known"


def _no_link(feed: Feed, node: FeedNode | None) -> str:
    if moved_b(feed) is None:
        return "sample_size is not given"
    if feed.link.low:
        return ""
    known = node.unknown.get("link") if node else ""
    return known or "link is not given, and no host is named to read it from"
