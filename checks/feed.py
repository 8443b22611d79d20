"""The node can feed its GPUs: the named workload keeps them as busy as the baseline asks.

**Why it matters.** A training step takes as long as the slowest of storage reads, CPU transforms,
the copy to the GPU and the step itself. A node whose CPUs or links are too few for its GPUs looks
healthy and is expensive: at 57 % utilization almost every second GPU is bought for nothing.

**Read from** `/sys/devices/system/cpu` (cores and threads), NVML (GPUs, their negotiated PCIe
links) and `/sys/bus/pci/devices` (the ports above them, which several GPUs may share). The baseline
gives batch sizes, step times, the rate of a worker and the rate of storage: the probe measures none
of them.

**Verdicts.** For each batch size, utilization is the accelerator's step time divided by the time of
the slowest stage; see docs/feed.md for the arithmetic. The lowest utilization counts. A worker has
at least a core, and a thread beyond the cores counts for at most as much. A PCIe link moves 75 to
100 % of its rate after encoding; the link of an idle GPU is between its current rate and its
highest rate. If the verdict depends on such a range, or on a stage that neither baseline nor
evidence knows, it is unknown: for nodes that are checked while idle, give `link`, and let
`pcie_link` verify that rate. Without `storage.read` or `storage.cached` the check can fail, but
never pass.

**To fix it** run `nodevet feed` with the same values in a workload file: it shows what to change
first and what each change gains: more workers, a larger batch, preprocessing on the GPU, the link,
storage.
"""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from nodevet.checking.feeding.advice import changes
from nodevet.checking.feeding.model import BatchOutcome, Feed, outcome
from nodevet.checking.feeding.node import READS, FeedNode, cores_and_links
from nodevet.checking.feeding.setup import feed_of, unknowns
from nodevet.checking.feeding.workload import Workload, WorkloadFields, workload_of
from nodevet.evidence.document import Evidence
from nodevet.model import Area, Check, CheckParams, Finding, Severity, fail, ok, unknown


class Params(WorkloadFields, CheckParams, frozen=True, kw_only=True):
    """`feed: {minimum_utilization: 80, sample_size: 500 kB, workers: 16, step: {256: 11.74 ms},
    transform: {worker_rate: 250 MB/s}, storage: {read: 20 GB/s}}`"""

    minimum_utilization: Annotated[float, Meta(gt=0, le=100)]
    """The least utilization of the accelerator at every batch size, in percent."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    workload = workload_of(params, "")
    node = cores_and_links(evidence, workload.gpus)
    if workload.gpus is None and node.gpus is None:
        yield unknown(why=node.unknown["gpus"])
        return
    if node.gpus is not None and node.gpus < (workload.gpus or 0):
        yield unknown(why=f"the node has {node.gpus} GPUs, and the job takes {workload.gpus}")
        return
    feed = feed_of(workload, node)
    outcomes = [outcome(feed, batch) for batch in workload.batches]
    expected = f"at least {params.minimum_utilization:g} %"
    minimum = params.minimum_utilization / 100
    worst = min(outcomes, key=lambda outcome: outcome.utilization.high or 0.0)
    least = min(outcomes, key=lambda each: each.utilization.low)
    if (worst.utilization.high or 0.0) < minimum:
        yield fail(
            expected=expected,
            actual=utilization_text(worst.utilization.high, worst),
            why=binds_text(feed, worst),
            advice=advice(feed, workload, node, worst),
        )
    elif node.gpus is None:
        yield unknown(expected=expected, why=node.unknown["gpus"])
    elif least.utilization.low < minimum:
        yield unknown(expected=expected, why=why_unsure(feed, workload, node, least))
    else:
        yield ok(expected=expected, actual=utilization_text(least.utilization.low, least))


def utilization_text(share: float | None, result: BatchOutcome) -> str:
    """`at most 14.4 % at batch 512`"""
    bound = (
        "" if result.certain else "at most " if share == result.utilization.high else "at least "
    )
    return f"{bound}{(share or 0.0) * 100:.1f} % at batch {result.batch}"


def binds_text(feed: Feed, result: BatchOutcome) -> str:
    text = f"{result.binds.words} binds"
    if result.workers_needed and feed.workers and result.workers_needed > feed.workers:
        text += f"; each GPU needs {result.workers_needed} workers and has {feed.workers}"
    return text


def advice(feed: Feed, workload: Workload, node: FeedNode, result: BatchOutcome) -> str:
    """The change that gains the most."""
    first = next(iter(changes(feed, workload, node, result.batch)), None)
    if first is None:
        return "several stages are too slow at once: `nodevet feed` shows them side by side"
    note = f" ({first.note})" if first.note else ""
    return f"first: {first.text}{note}; `nodevet feed` shows what each change gains"


def why_unsure(feed: Feed, workload: Workload, node: FeedNode, result: BatchOutcome) -> str:
    """Why it is not known whether the GPUs are busy enough."""
    missing = next(unknowns(feed, workload, node), None)
    if missing:
        return f"{missing.stage.value}: {missing.why}"
    share = result.utilization
    ends = f"between {share.low * 100:.1f} and {(share.high or 0.0) * 100:.1f} %"
    if feed.on_gpu and not inexact_stages(result):
        return (
            f"{ends} at batch {result.batch}: the GPU transforms beside its steps, or before them"
        )
    return f"{ends} at batch {result.batch}: {stages(result)} known only within bounds"


def inexact_stages(result: BatchOutcome) -> list[str]:
    return [s.value for s in result.may_bind if not result.time_of(s).exact]


def stages(result: BatchOutcome) -> str:
    """The stages that may bind and whose time is only a range."""
    names = inexact_stages(result)
    return f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'}"


CHECK = Check(
    params=Params,
    area=Area.CPU,
    reads=READS,
    judge=judge,
    severity=Severity.WARNING,
    unasked="step times and rates depend on the job: say feed with yours",
)
