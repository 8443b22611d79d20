"""Preprocessing on the GPU moves stored samples over the link, and takes time of the GPU."""

from typing import Any

import pytest

from nodevet.base.typed import convert
from nodevet.checking.feeding.advice import changes
from nodevet.checking.feeding.model import BatchOutcome, outcome
from nodevet.checking.feeding.node import FeedNode
from nodevet.checking.feeding.setup import feed_of, unknowns
from nodevet.checking.feeding.workload import Workload, WorkloadFile, workload_of
from nodevet.feed.answer import answer, node_answer
from nodevet.feed.text import facts


def workload(**more: Any) -> Workload:
    fields = {
        "nodevet": 1,
        "workload": "x",
        "gpus": 1,
        "workers": 8,
        "step": {"100": "10 ms"},
        "sample_size": "100 kB",
        "tensor_size": "600 kB",
        "transform": {"device": "gpu", "gpu_rate": "20000 samples/s"},
        "storage": {"read": "100 GB/s"},
        "link": "10 GB/s",
    }
    return workload_of(convert({**fields, **more}, WorkloadFile), "x")


def result(**more: Any) -> BatchOutcome:
    return outcome(feed_of(workload(**more), None), 100)


def test_stored_samples_move_over_the_link() -> None:
    assert result().link_s.low == pytest.approx(0.001), "100 kB each, not 600 kB"
    on_cpu = result(transform={"device": "cpu", "worker_rate": "1000 samples/s"})
    assert on_cpu.link_s.low == pytest.approx(0.006)


def test_gpu_preprocessing_adds_up_to_its_own_time_to_the_step() -> None:
    """5 ms of transform and 10 ms of step: at once at best, one after the other at worst."""
    found = result()
    assert (found.pace_s.low, found.pace_s.high) == pytest.approx((0.010, 0.015))
    assert (found.utilization.low, found.utilization.high) == pytest.approx((2 / 3, 1.0))
    assert not found.certain


def test_an_unstated_gpu_rate_is_reported_and_leaves_no_lower_bound() -> None:
    found = result(transform={"device": "gpu"})
    assert found.utilization.low == 0 and found.pace_s.high is None
    unknown = workload(transform={"device": "gpu"})
    (stage,) = unknowns(feed_of(unknown, None), unknown, None)
    assert "transform.gpu_rate" in stage.why


def test_the_advice_for_gpu_preprocessing_includes_its_cost_on_the_gpu() -> None:
    busy = workload(
        transform={"device": "cpu", "worker_rate": "500 samples/s", "gpu_rate": "20000 samples/s"}
    )
    (on_gpu,) = (
        change
        for change in changes(feed_of(busy, None), busy, None, 100)
        if change.name == "gpu_preprocessing"
    )
    assert not on_gpu.certain
    assert (on_gpu.utilization.low, on_gpu.utilization.high) == pytest.approx((2 / 3, 1.0))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("NVIDIA H100 80GB HBM3", True),
        ("NVIDIA A100-SXM4-80GB", False),
        ("", False),
    ],
)
def test_steps_of_another_gpu_model_are_reported(model: str, said: bool) -> None:
    job = workload(gpu_model="A100")
    node = node_answer(job, FeedNode(gpus=1, gpu_model=model), ("gpu1",), 100)
    whole = answer(job, {}, {})
    texts = [text for label, text in facts(whole, node) if label == "GPU model"]
    assert bool(texts) is said
    if said:
        assert texts == [
            "step was measured on A100, and this node has NVIDIA H100 80GB HBM3, where a "
            "step takes another time"
        ]
