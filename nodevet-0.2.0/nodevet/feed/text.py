"""Whether a node can feed its GPUs, in words that every format shares: cells, facts, changes.

A known number has no mark; `62–73 %` is a range, `≤ 73 %` a bound, `?` not known at all.
"""

import re
from collections.abc import Callable, Iterator

from nodevet.base.printable import plain
from nodevet.checking.feeding.interval import Interval
from nodevet.checking.feeding.model import BatchOutcome, Crossover, FeedStage
from nodevet.checking.feeding.units import amount_text
from nodevet.checking.feeding.workload import Workload
from nodevet.feed.answer import FeedAnswer, NodeAnswer
from nodevet.sheet.text import count, nodeset

UNKNOWN = "?"
HEADS = (
    *("batch", "step ms", "transform ms", "storage ms", "link ms"),
    *("utilization", "slowdown", "demand GB/s", "binds"),
)
CHANGE_HEADS = ("change", "gain", "utilization", "then binds")
BOUNDS = "a–b is a range and ≤ a bound: unknown values can only make it worse."


def subtitle(answer: FeedAnswer, node: NodeAnswer) -> str:
    """`gpu[001-004]: 8 GPUs, 8 workers for each, 500 kB samples`"""
    where = nodeset(node.hosts) if node.hosts else "from the file alone"
    return f"{where}: {', '.join(_job(answer.workload, node))}"


def _job(workload: Workload, node: NodeAnswer) -> Iterator[str]:
    model = plain(node.node.gpu_model) if node.node and node.node.gpu_model else ""
    listed_gpus = node.node.gpus if node.node else None
    if listed_gpus is not None and listed_gpus < node.gpus:
        has = f"{listed_gpus} × {model}" if model else listed_gpus
        yield f"{count(node.gpus, 'GPU')} for the job, but the node has {has}"
    else:
        yield f"{node.gpus} × {model}" if model else count(node.gpus, "GPU")
    if workload.transform_on == "gpu":
        yield "preprocessing on the GPU"
    elif node.workers:
        per_gpu = " for each" if node.gpus > 1 else ""
        yield f"{count(node.workers, 'worker')}{per_gpu}"
    if workload.sample_b:
        yield f"{amount_text(workload.sample_b, 'B')} samples"


def cells(outcome: BatchOutcome) -> tuple[str, ...]:
    """A row under HEADS."""
    demand = UNKNOWN if outcome.demand_b_s is None else f"{outcome.demand_b_s / 1e9:.3f}"
    return (
        f"{outcome.batch}",
        f"{outcome.step_s * 1e3:.2f}",
        milliseconds(outcome.transform_s),
        milliseconds(outcome.storage_s),
        milliseconds(outcome.link_s),
        utilization(outcome.utilization),
        slowdown(outcome.slowdown),
        demand,
        binds(outcome),
    )


def milliseconds(time: Interval) -> str:
    return _interval_text(time, lambda seconds: f"{seconds * 1e3:.2f}")


def slowdown(factor: Interval) -> str:
    if factor.low <= 1 and factor.high is None:
        return UNKNOWN
    return _interval_text(factor, lambda times: f"{times:.2f}") + "×"


def utilization(share: Interval) -> str:
    """`73.2 %`, `62.0–73.2 %`, `≤ 73.2 %`; ? if it may be anything."""
    low, high = f"{share.low * 100:.1f}", f"{(share.high or 0) * 100:.1f}"
    if share.low > 0:
        return f"{high} %" if low == high else f"{low}–{high} %"
    return f"≤ {high} %" if (share.high or 0) < 1 else UNKNOWN


def _interval_text(value: Interval, text: Callable[[float], str]) -> str:
    if value.high is None:
        return f"≥ {text(value.low)}" if value.low > 0 else UNKNOWN
    low, high = text(value.low), text(value.high)
    if low == high:
        return low
    return f"{low}–{high}" if value.low > 0 else f"≤ {high}"


def binds(outcome: BatchOutcome) -> str:
    """The stage that binds, and the stages that may bind because their time is not known."""
    others = [stage.value for stage in outcome.may_bind if stage is not outcome.binds]
    return " or ".join([outcome.binds.value, *others])


def facts(answer: FeedAnswer, node: NodeAnswer) -> Iterator[tuple[str, str]]:
    """More facts, each with its label."""
    certain = all(item.certain for item in node.batches)
    yield (
        "binding",
        crossing_text(node) if certain else f"as far as is known, {crossing_text(node)}",
    )
    chosen = node.chosen
    if answer.workload.transform_on == "cpu":
        yield f"workers at batch {node.at}", "; ".join(_workers(node, chosen))
    yield f"demand at batch {node.at}", "; ".join(_demand(answer.workload, node, chosen))
    for item in node.unknown:
        yield f"{item.stage.value} not known", plain(item.why)
    yield from _unread_facts(answer.workload, node)


def _unread_facts(workload: Workload, node: NodeAnswer) -> Iterator[tuple[str, str]]:
    """Unknown values of the node that matter."""
    missing = node.node.unknown if node.node else {}
    if other := other_model(workload, node):
        yield "GPU model", other
    listed_gpus = node.node.gpus if node.node else None
    if listed_gpus is not None and listed_gpus < node.gpus:
        yield "GPUs", f"the job has {node.gpus} on a node, and this one lists {listed_gpus}"
    if "gpus" in missing and workload.gpus is None:
        yield "GPUs not known", plain(missing["gpus"])
    elif "near_cores" in missing and workload.transform_on == "cpu" and "gpus" not in missing:
        yield "near cores not known", plain(missing["near_cores"])


def other_model(workload: Workload, node: NodeAnswer) -> str:
    """That the node has another GPU than the one whose step time the file has; else empty."""
    here = node.node.gpu_model if node.node else ""
    wanted = re.findall(r"[a-z0-9]+", workload.gpu_model.lower())
    if not here or set(wanted) <= set(re.findall(r"[a-z0-9]+", here.lower())):
        return ""
    return (
        f"step was measured on {plain(workload.gpu_model)}, and this node has {plain(here)}, "
        "where a step takes another time"
    )


def crossing_text(node: NodeAnswer) -> str:
    """`the accelerator up to batch 22, the transform from 23`"""
    if not node.crossovers:
        stages = [crossover.binds for crossover in node.batches]
        return f"{stages[0].words} at every batch size"
    first, *others = node.crossovers
    about = "about " if first.about else ""
    parts = [f"{first.before.words} up to batch {about}{first.at - 1}"]
    following = [*others, None]
    parts += map(_range_text, node.crossovers, following)
    return ", ".join(parts)


def _range_text(crossover: Crossover, following: Crossover | None) -> str:
    about = "about " if crossover.about else ""
    until = f" to {following.at - 1}" if following else ""
    return f"{crossover.after.words} from {about}{crossover.at}{until}"


def _workers(node: NodeAnswer, chosen: BatchOutcome) -> Iterator[str]:
    """The workers that are needed and configured, for one GPU and for all, and the cores for
    them."""
    needed = chosen.workers_needed
    if needed is None:
        yield "how many are needed is not known"
    else:
        total = f", {needed * node.gpus:,} for all {node.gpus} GPUs" if node.gpus > 1 else ""
        yield f"{needed:,} needed for each GPU{total}"
    if node.workers:
        total = f", {node.workers * node.gpus:,} in all" if node.gpus > 1 else ""
        yield f"{node.workers:,} there{total}"
    if node.node and node.node.cores:
        near = "" if node.node.near_cores is None else f", {node.node.near_cores} near each GPU"
        share = f", {node.node.cores // node.gpus} for each GPU" if node.gpus > 1 else ""
        threads = f" with {node.node.threads:,} threads" if node.node.threads else ""
        yield f"{node.node.cores:,} cores{threads} in the node{share}{near}"
    if node.workers_crossover:
        after = node.workers_crossover
        yield f"from {after.at:,} on {after.after.words} binds"


def _demand(workload: Workload, node: NodeAnswer, chosen: BatchOutcome) -> Iterator[str]:
    if chosen.demand_b_s is None:
        yield "not known: sample_size is not given"
        return
    one = chosen.demand_b_s
    total = f", {amount_text(one * node.gpus, 'B/s')} for all {node.gpus}" if node.gpus > 1 else ""
    yield f"{amount_text(one, 'B/s')} for each GPU at full speed{total}"
    storage = rate(workload.storage_read)
    if workload.cached:
        yield f"{workload.cached * 100:g} % of it from the page cache"
    if storage != UNKNOWN:
        yield f"storage reads {storage}"
    elif node.node and workload.storage_over:
        on = node.node.nvme if workload.storage_over == "nvme" else node.node.network
        yield f"storage reads {rate(on)}"
    link = workload.link or (node.node.link if node.node else Interval())
    if rate(link) != UNKNOWN:
        words = workload.link_words or (node.node.link_words if node.node else "")
        yield f"the link moves {rate(link)}{f' ({plain(words)})' if words else ''}"


def rate(value: Interval) -> str:
    """`20 GB/s`, `23.6 to 31.5 GB/s`, `at most 7.9 GB/s`."""
    if value.high is None:
        return f"at least {amount_text(value.low, 'B/s')}" if value.low > 0 else UNKNOWN
    high = amount_text(value.high, "B/s")
    if value.low <= 0:
        return f"at most {high}"
    low = amount_text(value.low, "B/s")
    if low == high:
        return low
    same = low.split()[1] == high.split()[1]
    return f"{low.split()[0] if same else low} to {high}"


def changes(node: NodeAnswer) -> Iterator[tuple[str, ...]]:
    """Rows under CHANGE_HEADS."""
    for change in node.changes:
        note = f" ({plain(change.note)})" if change.note else ""
        bound = "" if change.certain else "≤ "
        yield (
            f"{plain(change.text)}{note}",
            f"{bound}+{change.gain * 100:,.0f} %"
            if change.gain < 10
            else f"{bound}{change.gain + 1:,.1f}×",
            utilization(change.utilization),
            change.binds.value,
        )


def no_change_text(node: NodeAnswer) -> str:
    """Why there is no change to suggest."""
    chosen = node.chosen
    if chosen.binds is FeedStage.ACCELERATOR:
        if chosen.certain:
            return "nothing to change: the accelerator is the slowest stage, as it should be"
        return "nothing is known to be slower than the accelerator; see what is not known"
    return "no single change gains anything: several stages are equally slow"


def has_bounds(node: NodeAnswer) -> bool:
    """Whether the tables have a value that is a bound."""
    certain = [*(item.certain for item in node.batches), *(item.certain for item in node.changes)]
    return not all(certain)
