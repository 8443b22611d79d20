"""What was measured, as a block that a workload file takes; what could not be told is a comment."""

from typing import Any

import pytest
import yaml

from nodevet.base.typed import convert
from nodevet.checking.feeding.interval import Interval, exact_interval
from nodevet.checking.feeding.workload import WorkloadFile, workload_of
from nodevet.evidence.loader import LoaderRun
from nodevet.feed.measured import block as block_of
from nodevet.feed.measured import measured_loader

RUN = {
    "name": "python3 'my loader.py'",
    "user": "nobody",
    "ended": False,
    "seconds": 20.0,
    "cpu_s": 10.0,
    "samples": 5000,
    "read_b": 2_500_000_000,
    "asked_b": 2_600_000_000,
}


def written(run: LoaderRun, workers: int | None) -> str:
    return block_of(measured_loader(run, "gpu001", "2026-11-22T04:00:00+00:00", workers))


def block(workers: int | None = 4, **changes: Any) -> dict[str, Any]:
    run = LoaderRun(**{**RUN, **changes})
    found = yaml.safe_load(written(run, workers))
    measured: dict[str, Any] = found["measured"]
    return measured


def test_a_loader_that_waited_for_storage() -> None:
    assert block() == {
        "when": "2026-11-22T04:00:00+00:00",
        "host": "gpu001",
        "command": "python3 'my loader.py'",
        "worker_rate": "500.0 samples/s",
        "sample_size": "500 kB",
        "storage_read": "at least 125 MB/s",
        "storage_latency": "14 ms",
    }


def test_a_workload_file_accepts_the_measured_block() -> None:
    fields = {"nodevet": 1, "workload": "x", "step": {"32": "5 ms"}, "measured": block()}
    found = workload_of(convert(fields, WorkloadFile), "x")
    assert found.worker_rate == exact_interval(500.0)
    assert found.storage_read == Interval(125e6, None)
    assert found.storage_latency_s == 14e-3
    assert found.sample_b == 500e3


@pytest.mark.parametrize(
    ("changes", "missing", "said"),
    [
        ({"cpu_s": 19.0, "workers": 1}, {"storage_read"}, "is at least 125 MB/s"),
        ({"workers": None}, {"storage_read"}, "--workers N shows that"),
        (
            {"read_b": 1_000_000_000},
            {"storage_read", "sample_size"},
            "most came from the page cache",
        ),
        (
            {"read_b": 20_500, "asked_b": 11_900},
            {"storage_read", "sample_size"},
            "read hardly anything",
        ),
        ({"read_b": None}, {"storage_read", "sample_size"}, "the kernel does not count reads"),
        ({"samples": 0}, {"worker_rate", "sample_size"}, "no line `samples N`"),
        ({"cpu_s": 0.0}, {"worker_rate"}, "worker_rate is not known"),
    ],
)
def test_unknown_values_are_omitted(changes, missing, said) -> None:
    assert {"worker_rate", "sample_size", "storage_read"} - block(**changes).keys() == missing
    workers = changes.pop("workers", 4)
    assert said in written(LoaderRun(**{**RUN, **changes}), workers)


def test_hostile_host_and_loader_names_stay_on_one_line() -> None:
    run = LoaderRun(**{**RUN, "name": 'a"\n: b\x1b[31m'})
    text = block_of(measured_loader(run, "h\nx: 1", "", 4))
    assert "\x1b" not in text
    assert yaml.safe_load(text)["measured"]["host"] == "h\\nx: 1"
