"""A workload file: what it says as numbers, and what is wrong with it, line by line."""

from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from nodevet.checking.feeding.interval import UNKNOWN, Interval, exact_interval
from nodevet.feed.workload_file import WorkloadError, read_workload

REPO = Path(__file__).parents[2]
MISTAKES = yaml.safe_load((REPO / "tests/feed/mistakes.yaml").read_text(encoding="utf-8"))
HEAD = "nodevet: 1\nworkload: x\n"


def problems(tmp_path: Path, text: str, head: str = HEAD) -> list[str]:
    path = tmp_path / "w.yaml"
    path.write_text(head + dedent(text), encoding="utf-8")
    with pytest.raises(WorkloadError) as refused:
        read_workload(path)
    return [line.removeprefix(f"{path}:") for line in str(refused.value).splitlines()]


def test_the_shipped_example() -> None:
    found = read_workload(REPO / "workloads/resnet50-a100.yaml")
    assert found.name == "ResNet-50, FP16, A100"
    assert found.batches == (32, 64, 128, 256, 512, 1024)
    assert (found.sample_b, found.tensor_b, found.gpus, found.workers) == (500e3, 500e3, 1, 8)
    assert found.worker_rate == exact_interval(500.0)
    assert found.gpu_rate == exact_interval(100e3)
    assert found.storage_read == exact_interval(20e9)
    assert found.link == Interval(
        pytest.approx(23.63e9, rel=1e-3), pytest.approx(31.51e9, rel=1e-3)
    )


def test_a_table_of_steps_names_the_batches(workload) -> None:
    found = workload(step={"64": "6.7 ms", "32": "5.86 ms"}, batch_sizes=None)
    assert found.batches == (32, 64)
    assert found.step.seconds_for(64) == pytest.approx(6.7e-3)
    assert found.step.interpolated_seconds(48) == pytest.approx(6.28e-3)
    assert (found.step.interpolated_seconds(1), found.step.interpolated_seconds(99)) == (
        found.step.seconds_for(32),
        found.step.seconds_for(64),
    )


def test_a_throughput_is_a_step_without_a_fixed_part(workload) -> None:
    assert workload(step={"throughput": "2500 samples/s"}).step.seconds_for(500) == pytest.approx(
        0.2
    )


def test_measured_values_replace_values_that_are_not_stated(workload) -> None:
    measured = {"sample_size": "100 kB", "worker_rate": "50 MB/s", "storage_read": "1 GB/s"}
    found = workload(sample_size=None, transform=None, storage=None, measured=measured)
    assert (found.sample_b, found.worker_rate) == (100e3, exact_interval(500.0))
    assert found.storage_read == exact_interval(1e9)


def test_a_worker_rate_in_bytes_is_unknown_without_the_sample_size(workload) -> None:
    assert workload(sample_size=None).worker_rate == UNKNOWN
    by_time = workload(sample_size=None, transform={"worker_rate": "2 ms"})
    assert by_time.worker_rate == exact_interval(500.0)


@pytest.mark.parametrize("case", MISTAKES, ids=[case["text"][:40] for case in MISTAKES])
def test_mistakes_in_a_workload_are_reported_with_their_position(tmp_path, case) -> None:
    assert problems(tmp_path, case["text"]) == case["told"]


def test_a_file_of_another_kind_is_called_by_its_name(tmp_path) -> None:
    (told,) = problems(tmp_path, "expect: {gpu_count: 8}", head="nodevet: 1\n")
    assert "this is a baseline; use it with -b" in told
    (told,) = problems(tmp_path, "workload: x\nstep: {32: 5 ms}", head="")
    assert told == "1:1: nodevet is missing; add it"
