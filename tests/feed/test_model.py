"""The worked figures of the field, to the digit that is printed, and what holds of any job."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from nodevet.checking.feeding.advice import changes
from nodevet.checking.feeding.interval import UNKNOWN, Interval, exact_interval, larger, smaller
from nodevet.checking.feeding.model import (
    Feed,
    FeedStage,
    batch_crossovers,
    outcome,
    worker_crossover,
)
from nodevet.checking.feeding.setup import feed_of
from nodevet.checking.feeding.workload import StepTime

TABLE = {  # batch: GPU step ms, CPU transform ms, utilization %
    32: ("5.86", "8.00", "73.2"),
    64: ("6.70", "16.00", "41.9"),
    128: ("8.38", "32.00", "26.2"),
    256: ("11.74", "64.00", "18.3"),
    512: ("18.47", "128.00", "14.4"),
    1024: ("31.93", "256.00", "12.5"),
}
STEPS = {str(batch): f"{step} ms" for batch, (step, _, _) in TABLE.items()}


def percent(share: float | None) -> str:
    assert share is not None
    return f"{share * 100:.1f}"


@pytest.mark.parametrize("step", [None, STEPS], ids=["as a line", "as a table"])
@pytest.mark.parametrize("batch", TABLE)
def test_the_worked_table(workload, step, batch) -> None:
    found = outcome(feed_of(workload(**({"step": step} if step else {})), None), batch)
    told = f"{found.step_s * 1e3:.2f}", f"{found.transform_s.low * 1e3:.2f}"
    assert (*told, percent(found.utilization.high)) == TABLE[batch]
    assert found.certain
    assert (found.binds, found.may_bind) == (FeedStage.TRANSFORM, (FeedStage.TRANSFORM,))


def test_slowdown_and_demand_at_batch_256(workload) -> None:
    found = outcome(feed_of(workload(), None), 256)
    assert f"{found.slowdown.low:.2f}" == "5.45"
    assert f"{found.demand_b_s / 1e9:.3f}" == "10.900"


@pytest.mark.parametrize(("workers", "utilization"), [(8, "14.4"), (16, "28.9"), (32, "57.7")])
def test_more_workers_at_batch_512(workload, workers, utilization) -> None:
    found = outcome(feed_of(workload(workers=workers), None), 512)
    assert percent(found.utilization.high) == utilization
    assert found.certain
    assert found.workers_needed == 56  # 256 MB in 18.47 ms, 250 MB/s each


def test_preprocessing_on_the_gpu_takes_the_cpu_stage_away(workload) -> None:
    feed = feed_of(workload(transform={"device": "gpu", "gpu_rate": "50 GB/s"}), None)
    found = outcome(feed, 512)
    assert (percent(found.utilization.high), found.binds) == ("100.0", FeedStage.ACCELERATOR)
    assert f"{found.transform_s.low * 1e3:.2f}" == "5.12"
    assert found.workers_needed is None


def test_a_20_ms_step_behind_35_ms_of_preprocessing(workload) -> None:
    job = workload(step={"100": "20 ms"}, batch_sizes=None, workers=1,
                   transform={"worker_rate": "0.35 ms"}, storage={"cached": "100 %"})  # fmt: skip
    found = outcome(feed_of(job, None), 100)
    assert percent(found.utilization.high) == "57.1"  # 20/35
    assert f"{found.slowdown.low:.2f}" == "1.75"


def test_storage_is_shared_by_the_gpus_and_its_latency_counts(workload) -> None:
    def storage_ms(**storage: Any) -> str:
        job = workload(gpus=4, storage=storage)
        return f"{outcome(feed_of(job, None), 32).storage_s.low * 1e3:.2f}"

    assert storage_ms(read="4 GB/s") == "16.00"  # 4 × 16 MB
    assert storage_ms(read="4 GB/s", cached="75 %") == "4.00"
    assert storage_ms(read="4 GB/s", latency="1 ms", concurrency=2) == "64.00"  # 1 GB/s
    assert storage_ms(read="4 GB/s", latency="1 ms") == "16.00"  # 32 workers: 16 GB/s
    assert storage_ms(read="4 GB/s", latency="8 ms") == "32.00"  # 32 workers: 2 GB/s
    assert storage_ms(cached="100 %") == "0.00"


def test_unknown_stages_give_bounds_and_never_a_number(workload) -> None:
    found = outcome(feed_of(workload(storage=None), None), 256)
    assert found.utilization == Interval(0.0, pytest.approx(0.18348, abs=1e-5))
    assert not found.certain
    assert found.binds is FeedStage.TRANSFORM
    assert found.may_bind == (FeedStage.STORAGE, FeedStage.TRANSFORM)
    nothing = outcome(feed_of(workload(storage=None, transform=None, link=None), None), 256)
    assert nothing.utilization == Interval(0.0, 1.0)


def test_a_pcie_link_gives_a_range_from_minimum_to_maximum_rate(workload) -> None:
    feed = replace(feed_of(workload(link="Gen1 x16", workers=64), None), cpus=None)
    found = outcome(feed, 256)  # 128 MB at 3 to 4 GB/s
    assert (found.link_s.low, found.link_s.high) == (
        pytest.approx(0.032),
        pytest.approx(0.04267, abs=1e-5),
    )
    assert percent(found.utilization.low) == "27.5"
    assert percent(found.utilization.high) == "36.7"


def test_the_rate_at_which_another_stage_binds(workload) -> None:
    (found,) = batch_crossovers(feed_of(workload(), None), [32, 64])
    assert (found.at, found.before, found.after) == (23, FeedStage.ACCELERATOR, FeedStage.TRANSFORM)
    assert not found.about
    (first, *_) = batch_crossovers(
        feed_of(workload(workers=9, step={"32": "7.5 ms", "64": "8 ms"}, batch_sizes=None), None),
        [32, 64],
    )
    assert (first.at, first.about) == (34, True)  # 7.5 ms and 0.0156 ms more for each: 34 × 0.222
    workers = worker_crossover(feed_of(workload(), None), 512)
    assert workers is not None
    assert (workers.at, workers.before, workers.after) == (
        56,
        FeedStage.TRANSFORM,
        FeedStage.ACCELERATOR,
    )
    slower = worker_crossover(feed_of(workload(storage={"read": "10 GB/s"}), None), 512)
    assert slower is not None
    assert (slower.at, slower.after) == (40, FeedStage.STORAGE)  # 40 × 250 MB/s are 10 GB/s


POSITIVE = st.floats(1e-3, 1e6)
RATES = st.one_of(
    st.just(UNKNOWN),
    POSITIVE.map(exact_interval),
    st.tuples(POSITIVE, st.floats(1, 10)).map(lambda ends: Interval(ends[0], ends[0] * ends[1])),
    POSITIVE.map(lambda high: Interval(0.0, high)),
)
CORES = st.integers(1, 256).map(lambda cores: Interval(cores, 2 * cores))
FEEDS = st.builds(
    Feed,
    step=st.builds(StepTime, fixed_s=st.floats(0, 10), per_sample_s=st.floats(1e-6, 1)),
    sample_b=st.one_of(st.none(), POSITIVE),
    tensor_b=st.one_of(st.none(), POSITIVE),
    gpus=st.integers(1, 16),
    workers=st.one_of(st.none(), st.integers(1, 128)),
    cpus=st.one_of(st.none(), st.just(UNKNOWN), CORES),
    worker_rate=RATES,
    on_gpu=st.booleans(),
    gpu_rate=RATES,
    storage_read=RATES,
    storage_latency_s=st.one_of(st.none(), st.floats(1e-6, 1)),
    storage_concurrency=st.one_of(st.none(), st.integers(1, 512)),
    uncached=st.floats(0, 1),
    link=RATES,
)  # fmt: skip
BATCHES = st.integers(1, 4096)
MANY = settings(deadline=None, max_examples=300)


@MANY
@given(FEEDS, BATCHES)
def test_utilization_is_a_share_and_its_inverse_the_slowdown(feed: Feed, batch: int) -> None:
    found = outcome(feed, batch)
    low, high = found.utilization.low, found.utilization.high
    assert high is not None
    assert 0 <= low <= high <= 1
    assert high > 0
    assert found.slowdown.low == pytest.approx(1 / high)
    assert found.slowdown.low >= 1
    assert (found.slowdown.high is None) == (low == 0)


@MANY
@given(FEEDS, BATCHES)
def test_the_slowest_stage_binds(feed: Feed, batch: int) -> None:
    found = outcome(feed, batch)
    times = {stage: found.time_of(stage) for stage in FeedStage}
    slowest = max(time.low for time in times.values())
    assert times[found.binds].low == slowest == found.pace_s.low
    assert found.binds in found.may_bind
    for stage, time in times.items():
        assert (stage in found.may_bind) == (time.high is None or time.high >= slowest)
    if not found.certain:
        assert found.utilization.low < found.utilization.high


@MANY
@given(FEEDS, BATCHES, st.integers(1, 128), st.integers(0, 128))
def test_more_workers_never_lower_utilization(feed: Feed, batch: int, few: int, more: int) -> None:
    one = outcome(replace(feed, workers=few), batch)
    other = outcome(replace(feed, workers=few + more), batch)
    assert other.utilization.low >= one.utilization.low
    assert other.utilization.high >= one.utilization.high


@MANY
@given(FEEDS, BATCHES, st.floats(1, 10))
def test_a_faster_stage_never_lowers_utilization(feed: Feed, batch: int, factor: float) -> None:
    before = outcome(feed, batch)
    for field in ("worker_rate", "gpu_rate", "storage_read", "link"):
        after = outcome(replace(feed, **{field: getattr(feed, field).times(factor)}), batch)
        assert after.utilization.low >= before.utilization.low
        assert after.utilization.high >= before.utilization.high


@MANY
@given(FEEDS, BATCHES)
def test_the_same_feed_gives_the_same_outcome(feed: Feed, batch: int) -> None:
    assert outcome(replace(feed, workers=feed.workers), batch) == outcome(feed, batch)


@MANY
@given(FEEDS, BATCHES)
def test_knowing_more_only_narrows_a_bound(feed: Feed, batch: int) -> None:
    vague = outcome(replace(feed, storage_read=UNKNOWN), batch)
    found = outcome(feed, batch)
    assert vague.utilization.low <= found.utilization.low
    assert found.utilization.high <= vague.utilization.high


@MANY
@given(FEEDS, BATCHES)
def test_as_many_workers_as_are_needed_are_enough(feed: Feed, batch: int) -> None:
    found = outcome(feed, batch)
    if found.workers_needed is None or feed.worker_rate.high is None:
        return
    feed = replace(feed, cpus=None, worker_rate=exact_interval(feed.worker_rate.low))
    enough = outcome(replace(feed, workers=found.workers_needed), batch)
    assert enough.transform_s.low <= found.step_s * (1 + 1e-6)
    if found.workers_needed > 1:
        short = outcome(replace(feed, workers=found.workers_needed - 1), batch)
        assert short.transform_s.low >= found.step_s * (1 - 1e-6)


@MANY
@given(RATES, RATES)
def test_minimum_and_maximum_of_intervals_contain_every_result(
    one: Interval, other: Interval
) -> None:
    for join, exact in ((smaller, min), (larger, max)):
        found = join(one, other)
        for a in _points(one):
            for b in _points(other):
                assert found.low <= exact(a, b)
                assert found.high is None or exact(a, b) <= found.high


def _points(interval: Interval) -> list[float]:
    far = interval.low * 2 + 1e9 if interval.high is None else interval.high
    return [interval.low, (interval.low + far) / 2, far]


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"storage": {"read": "1 GB/s"}},
        {"storage": {"read": "6 GB/s", "latency": "4 ms", "concurrency": 4}},
        {"link": "Gen1 x4", "workers": 64},
        {"gpus": 8},
        {"storage": None},
        {"transform": {"worker_rate": "250 MB/s"}},
    ],
)
def test_the_gain_of_each_change_is_what_the_model_says_of_the_changed_input(
    workload, changed
) -> None:
    job = workload(**changed)
    feed = feed_of(job, None)
    before = outcome(feed, 256)
    found = changes(feed, job, None, 256)
    assert found
    assert [each.gain for each in found] == sorted((each.gain for each in found), reverse=True)
    for each in found:
        after = outcome(_as_advised(feed, each.name, each.text), _batch(each.name, each.text))
        gain = after.throughput.high / before.throughput.high - 1
        assert each.gain == pytest.approx(gain, rel=0.01)
        assert each.utilization.high == pytest.approx(after.utilization.high, rel=0.01)
        assert each.gain > 0


def _batch(name: str, text: str) -> int:
    return int(text.split()[1]) if name == "batch" else 256


def _as_advised(feed: Feed, name: str, text: str) -> Feed:
    """The input as a person would change it who reads the advice."""
    from nodevet.checking.feeding import units

    if name == "workers":
        return replace(feed, workers=int(text.split(maxsplit=1)[0]))
    if name == "gpu_preprocessing":
        return replace(feed, on_gpu=True)
    if name == "link":
        return replace(feed, link=exact_interval(units.rate(" ".join(text.split()[4:6]))))
    if name == "storage":
        read = units.rate(" ".join(text.split()[-2:]))
        return replace(feed, storage_read=exact_interval(read), storage_latency_s=None)
    assert name == "batch"
    return feed


def test_no_change_is_advised_if_the_gpu_is_the_slowest_stage(workload) -> None:
    job = workload(batch_sizes=[512], workers=64)
    assert changes(feed_of(job, None), job, None, 512) == ()


def test_more_workers_are_advised_only_until_another_stage_binds(workload) -> None:
    job = workload(storage={"read": "10 GB/s"})
    first = next(
        each for each in changes(feed_of(job, None), job, None, 512) if each.name == "workers"
    )
    assert first.text == "40 workers for each GPU instead of 8"
    assert first.gain == pytest.approx(4.0)
    assert first.certain
    assert math.isclose(first.utilization.low, 18.47036 / 25.6)  # fmt: skip
