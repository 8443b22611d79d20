"""What one change would gain, by the arithmetic of `nodevet feed` with the figures of the watch
(pure).

A step is one second of the watch. The GPU takes its busy share of that second, and the stage that
binds takes all of it. Of the other stages only bounds are known, so most answers are ranges.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from nodevet.checking.feeding.advice import FeedChange, change, changes
from nodevet.checking.feeding.interval import UNKNOWN, Interval, exact_interval
from nodevet.checking.feeding.model import Feed, FeedStage, outcome
from nodevet.checking.feeding.units import amount_text
from nodevet.checking.feeding.workload import StepTime, WorkloadFields, usable_rate, workload_of
from nodevet.diagnose.gpu_figures import link_capacity
from nodevet.diagnose.hot import ticks_used
from nodevet.diagnose.job_figures import (
    ACTIVE,
    WatchedJob,
    needed_percent,
    watched_job,
)
from nodevet.diagnose.model import Cause, Figure
from nodevet.diagnose.series import counter_growth, known_values, mean, span
from nodevet.diagnose.words import number
from nodevet.evidence.cpu import Cpu
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu_activity import GpuActivity
from nodevet.evidence.host_activity import HostActivity

Figures = Mapping[str, Figure]
STAGES = {
    Cause.PREPROCESSING: FeedStage.TRANSFORM,
    Cause.STORAGE: FeedStage.STORAGE,
    Cause.TRANSFER: FeedStage.LINK,
}
"""The causes that are a stage of feeding."""
IDLE_WORKERS = 50.0  # percent of a core: workers that want less do not hold the GPU up
FULL_LINK = 70.0  # percent
MOST = 0.95  # of the time: a GPU that is busier has nothing to gain
NO_TIME = 0.001  # percent: in its place, as a rate is an amount in some time
LEAST = 1.0  # percent busy: below, there are no steps to compute with
GAIN = 0.02  # of the time: a smaller gain is not worth a word
BATCH = 1
UNREAD = "nodevet could not read what a helper of the job did"
NO_WORKLOAD = workload_of(WorkloadFields(step={str(BATCH): "1 s"}), "")
NAMES = {
    "workers": ("", "loader workers: helpers that want at least a tenth of a core"),
    "workers_want": ("%", "mean of the loader workers with their waits for a CPU, of one core"),
    "workers_use": ("%", "mean of the loader workers, of one core"),
}


def worker_figures(job: WatchedJob | str) -> Iterator[Figure]:
    """How many loader workers the job has, and how much of a core each of them wants and uses."""
    workers = job if isinstance(job, str) else job.unseen or _workers(job)
    why = workers if isinstance(workers, str) else ""
    values: dict[str, float | None] = dict.fromkeys(NAMES)
    if not isinstance(workers, str):
        wants, uses = zip(*workers, strict=True) if workers else ((0.0,), (0.0,))
        values = {"workers": float(len(workers)), "workers_want": mean(wants)}
        values["workers_use"] = mean(uses)
    for name, (unit, what) in NAMES.items():
        yield Figure(name, values[name], unit, what, "" if values[name] is not None else why)


def _workers(job: WatchedJob) -> list[tuple[float, float]] | str:
    """(percent of a core that it wants, that it used) of each worker; or why that is not known."""
    helpers = [process for process in job.processes if process.pid not in job.on_gpu]
    workers = []
    for helper in helpers:
        shares = known_values(needed_percent(thread, job) for thread in helper.threads or ())
        ticks = ticks_used(helper)
        if helper.ended_s is not None:
            return "helpers ended during the watch"
        waits = [thread.waited_ns for thread in helper.threads or ()]
        if ticks is None or len(shares) < len(waits) or not waits or None in waits:
            return UNREAD
        if helper.born_s is not None and sum(shares) >= ACTIVE:
            return "helpers began during the watch"
        if sum(shares) >= ACTIVE:
            workers.append((min(100.0, sum(shares)), 100.0 * ticks / job.hz / job.seconds))
    return workers


def gain_text(
    causes: Sequence[Cause], figures: Figures, evidence: Evidence, gpu: GpuActivity
) -> str:
    """`6 workers for each GPU instead of 2: GPU busy 33 → 81–100 %`; empty if the cause is no stage
    of feeding, or if the gain cannot be computed."""
    busy = (figures["sm_busy"].value or 0.0) / 100
    stage = STAGES.get(causes[0]) if len(causes) == 1 else None
    job = watched_job(evidence, gpu)
    if stage is None or isinstance(job, str) or contradiction(causes, figures):
        return ""
    if not LEAST / 100 <= busy <= MOST:
        return ""
    feed = seen_feed(stage, figures, job, evidence, gpu)
    best = best_change(stage, figures, feed) if feed else None
    if feed is None or best is None or (best.utilization.high or 0.0) < busy + GAIN:
        return ""
    note, after = f" ({best.note})" if best.note else "", best.utilization
    if stage is FeedStage.STORAGE:
        now_b_s = feed.storage_read.low
        note = f" instead of {amount_text(now_b_s, 'B/s')}{_each_read(figures, now_b_s)}"
    if best.name == "half" or (stage is FeedStage.STORAGE and not figures["workers"].value):
        after = _in_turn(busy, after, 0.5 if best.name == "half" else busy)
    return f"{best.text}{note}: {_range_text(busy, after)}"


def _in_turn(busy: float, after: Interval, least_s: float) -> Interval:
    """The range down to the case that the stage and the step take turns: feed's stages overlap, as
    in a loader that prefetches, and it is not known that these do."""
    stage_s = max(least_s, busy / (after.high or 1.0))
    return Interval(min(after.low, busy / (busy + stage_s)), after.high)


def _range_text(busy: float, after: Interval) -> str:
    """`GPU busy 33 → 81–100 %`. No change makes it less busy than it is."""
    low, high = round(100 * max(busy, after.low)), round(100 * (after.high or 1.0))
    bound = f"{high}" if low == high else f"{low}–{high}"
    if low <= round(100 * busy):
        bound = f"at most {high}"
    return f"GPU busy {100 * busy:.0f} → {bound} %"


def best_change(stage: FeedStage, figures: Figures, feed: Feed) -> FeedChange | None:
    """The change to the stage that binds, with its outcome; None if it cannot be computed."""
    before = outcome(feed, BATCH)
    if stage is not FeedStage.LINK:
        name = "workers" if stage is FeedStage.TRANSFORM else "storage"
        listed = changes(feed, NO_WORKLOAD, None, BATCH)
        return next((candidate for candidate in listed if candidate.name == name), None)
    if (figures["link"].value or 0.0) >= FULL_LINK:
        half = msgspec.structs.replace(feed, tensor_b=(feed.tensor_b or 0.0) / 2)
        return change("half", "half as many bytes over the link", before, outcome(half, BATCH))
    if (figures["idle_link"].value or 0.0) >= FULL_LINK:
        return change("overlap", "copies that overlap with kernels", before, before)
    return None  # a thread that copies: the rate of pinned copies was not measured


SMALL = 100.0  # kB of a read: the time of each one decides, and not the bandwidth


def _each_read(figures: Figures, stored_b_s: float) -> str:
    """` (23 ms a read)`, of small reads of one process; else empty. `stored_b_s`: bytes a second
    from storage, which the reads must explain."""
    size, rate = figures["read_size"].value, figures["read_rate"].value
    blocked = figures["blocked"].value
    if not size or not rate or not blocked or size > SMALL or figures["workers"].value:
        return ""
    if not stored_b_s / 2 < 1e6 * rate < stored_b_s * 2:
        return ""
    each_ms = 10 * blocked / (1000 * rate / size)
    return f" ({number(each_ms)} ms a read)" if each_ms >= LEAST_MS else ""


LEAST_MS = 0.1


def seen_feed(
    stage: FeedStage, figures: Figures, job: WatchedJob, evidence: Evidence, gpu: GpuActivity
) -> Feed | None:
    """The input of the arithmetic, from the watch; None if the stage that binds is not known."""
    on_gpu = [process for process in job.processes if process.pid in job.on_gpu]
    gpus = max(1, len({gpu for process in on_gpu for gpu in process.gpus}))
    workers = int(figures["workers"].value or 0)
    rate = _worker_rate(stage, figures, workers / gpus)
    read_b = _read_b(job) / gpus if stage is FeedStage.STORAGE else 1.0
    cpus = _cpus(figures, workers, evidence)
    if rate is None or not read_b or (stage is FeedStage.TRANSFORM and cpus is None):
        return None
    if stage is FeedStage.STORAGE and figures["waits_writing"].value:
        return None
    link = _link(figures["link"].value, link_capacity(gpu))
    storage = Interval(read_b * gpus / _storage_time(figures), None)
    if stage is FeedStage.STORAGE:
        storage = exact_interval(read_b * gpus)
    return Feed(
        step=StepTime(table={BATCH: (figures["sm_busy"].value or 0.0) / 100}),
        sample_b=read_b,
        tensor_b=link[0],
        gpus=gpus,
        workers=max(1, workers // gpus),
        cpus=cpus if stage is FeedStage.TRANSFORM else None,
        worker_rate=rate,
        on_gpu=False,
        gpu_rate=UNKNOWN,
        storage_read=storage,
        storage_latency_s=None,
        storage_concurrency=None,
        uncached=1.0,
        link=link[1],
    )


def _link(percent: float | None, capacity_b_s: float | None) -> tuple[float, Interval]:
    """(bytes that the link moved in the second, bytes a second that it can). A link that seems full
    moves no more than it did; one of unknown load may have been busy all the time."""
    if percent is None or capacity_b_s is None:
        return 1.0, Interval(1.0, None)
    moved_b = percent / 100 * capacity_b_s
    return moved_b, exact_interval(moved_b) if percent >= FULL_LINK else usable_rate(capacity_b_s)


def _worker_rate(stage: FeedStage, figures: Figures, workers: float) -> Interval | None:
    """Samples a second of one worker with a core of its own. `workers`: of one GPU. None if they do
    not share the work equally.

    If the transform binds, all workers together make one sample in the second that was watched;
    otherwise it takes at most as long as the hottest thread works.
    """
    wants, uses = figures["workers_want"].value, figures["workers_use"].value
    if stage is FeedStage.TRANSFORM:
        if not wants or not uses or workers < 1 or workers % 1:
            return None
        return exact_interval(wants / uses / workers)
    hottest = [figures[name].value for name in ("helper_wants", "thread_wants")]
    longest = 1.0 if None in hottest else max(known_values(hottest)) / 100
    return Interval(1 / (max(1, int(workers)) * longest), None) if longest else exact_interval(1e9)


def _storage_time(figures: Figures) -> float:
    """Seconds at most: as long as a thread waited for it or its disk was busy; all of the step if
    NFS, whose load is not known, was read."""
    shares = [figures[name].value for name in ("blocked", "disk_busy")]
    if None in shares or figures["nfs_latency"].value is not None:
        return 1.0
    return max(*known_values(shares), NO_TIME) / 100


def _cpus(figures: Figures, workers: int, evidence: Evidence) -> Interval | None:
    """The CPUs that the workers may use: those that they use, and the idle ones that the job may
    use. The second thread of a core adds at most one CPU. None if that is not known."""
    allowed, used = figures["cpus_allowed"].value, figures["job_cpus"].value
    host, cpu = evidence[HostActivity].data, evidence[Cpu].data
    if host is None or host.total is None or allowed is None or used is None:
        return None
    idle, seconds = span(host.total.idle), host.look.seconds if host.look else 0.0
    if idle is None or not host.tick_hz or not seconds:
        return None
    own = workers * (figures["workers_use"].value or 0.0) / 100
    more = max(0.0, min(allowed - used, idle / host.tick_hz / seconds))
    cores = cpu.cores / cpu.threads if cpu and cpu.cores and cpu.threads else 0.5
    return Interval(own + more * cores, own + more)


def _read_b(job: WatchedJob) -> float:
    """Bytes a second that the job reads from storage, or else by read(2)."""
    for field in ("storage_read_b", "read_b"):
        read = sum(
            known_values(counter_growth(getattr(process, field)) for process in job.processes)
        )
        if read:
            return read / job.seconds
    return 0.0


def contradiction(causes: Collection[Cause], figures: Figures) -> Mapping[Cause, str]:
    """By cause: why the arithmetic contradicts it, because another stage takes longer."""
    workers, wants = figures["workers"], figures["workers_want"]
    blocked = figures["blocked"].value or 0.0
    if len(causes) != 1:
        return {}
    (cause,) = causes
    if UNREAD in (workers.why, wants.why):
        return {cause: UNREAD} if cause in (Cause.PREPROCESSING, Cause.STORAGE) else {}
    want = wants.value or 0.0
    if cause is Cause.PREPROCESSING and workers.value and want < IDLE_WORKERS:
        return {
            cause: f"its loader workers want only {want:.0f} % of a core each, so by feed's "
            "arithmetic more of them gain nothing"
        }
    if cause is Cause.STORAGE and want > max(blocked, IDLE_WORKERS):
        return {
            cause: f"its loader workers want {want:.0f} % of a core each, more than the "
            f"{blocked:.0f} % that it waits for storage: by feed's arithmetic the transform binds"
        }
    return {}
