"""Storage is as fast as it is with many readers: one worker that waits does not measure it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from slow_machine import slowness

from nodevet.base.typed import convert
from nodevet.checking.feeding.interval import Interval
from nodevet.checking.feeding.model import outcome
from nodevet.checking.feeding.setup import feed_of
from nodevet.checking.feeding.workload import WorkloadFile, workload_of
from nodevet.evidence.loader import LoaderRun
from nodevet.feed.measured import block, measured_series
from nodevet.feed.series import next_workers

SAMPLE = 500_000


def run(workers: int, rate: float, cpus: int = 64, cpu_share: float = 0.1) -> LoaderRun:
    """Workers that read so many bytes a second together, and mostly wait."""
    return LoaderRun(
        name="python3 loader.py {workers}",
        seconds=10.0,
        cpu_s=10.0 * workers * cpu_share,
        samples=int(rate * 10 / SAMPLE),
        read_b=int(rate * 10),
        asked_b=int(rate * 10),
        cpus=cpus,
    )


def measured(*runs: tuple[int, LoaderRun]) -> dict[str, Any]:
    text = block(measured_series(runs, "gpu001", "2026-11-22T04:00:00+00:00"))
    found: dict[str, Any] = yaml.safe_load(text)["measured"]
    return found


GROWS = ((1, run(1, 185e6)), (2, run(2, 360e6)), (4, run(4, 640e6)), (8, run(8, 670e6)))


def test_the_number_of_workers_doubles_until_the_read_rate_stops_growing() -> None:
    assert [next_workers(GROWS[:count], 64) for count in range(5)] == [1, 2, 4, 8, None]
    assert next_workers(GROWS[:3], 4) is None


def test_the_ceiling_is_a_range_with_latency_and_concurrency() -> None:
    found = measured(*GROWS)
    assert found["storage_read"] == "640 MB/s to 670 MB/s"
    assert found["storage_latency"] == "2.43 ms", "it worked for a tenth of the time"
    assert found["storage_concurrency"] == 4
    assert found["sample_size"] == "500 kB"


@pytest.mark.parametrize(
    ("runs", "least"),
    [
        (GROWS[:1], "at least 185 MB/s"),  # one concurrency
        (GROWS[:3], "at least 640 MB/s"),  # it still grew
        ((*GROWS[:3], (8, run(8, 670e6, cpus=2, cpu_share=0.24))), "at least 670 MB/s"),
    ],
)
def test_without_a_ceiling_the_measured_read_rate_is_a_lower_bound(
    runs: tuple[tuple[int, LoaderRun], ...], least: str
) -> None:
    """The last: the CPUs were full, not the storage."""
    assert measured(*runs)["storage_read"] == least


def workload(**more: Any) -> Any:
    fields = {"nodevet": 1, "workload": "x", "step": {"512": "18 ms"}, "workers": 8, "gpus": 1}
    return workload_of(convert({**fields, **more}, WorkloadFile), "x")


def test_a_measured_storage_rate_gives_a_range_of_storage_times() -> None:
    whole = workload(measured=measured(*GROWS))
    assert whole.storage_read == Interval(640e6, 670e6)
    one = workload(measured=measured(GROWS[0]))
    assert one.storage_read == Interval(185e6, None)
    result = outcome(feed_of(one, None), 512)
    fastest = 512 * SAMPLE / (8 * SAMPLE / 0.00243)  # eight reads at once, each with its latency
    assert result.storage_s.high == pytest.approx(512 * SAMPLE / 185e6)
    assert result.storage_s.low == pytest.approx(fastest, rel=0.05)


LOADER = """
import os, sys, time
workers = int(sys.argv[1])
open(f"began-with-{workers}", "w").close()
for _ in range(workers - 1):
    if os.fork() == 0:
        break
while True:
    time.sleep(0.02)
    print("samples 10", flush=True)
"""


def test_the_command_is_run_with_more_and_more_workers(tmp_path: Path) -> None:
    """Real processes."""
    loader = tmp_path / "loader.py"
    loader.write_text(LOADER)
    command = [sys.executable, str(loader), "{workers}"]
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "nodevet",
                "feed",
                "--measure",
                "--for",
                f"{2 * slowness():.1f}s",
            ),
            *("--workers", "2", "--format", "json", "--run-as", "root", "--", *command),
        ],
        capture_output=True,
        text=True,
        timeout=240,
        cwd=tmp_path,
    )
    if os.geteuid() and "root" in done.stderr:
        pytest.skip("it takes root")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [point["workers"] for point in found["series"]] == [1, 2]
    assert sorted(path.name for path in tmp_path.glob("began-*")) == [
        "began-with-1",
        "began-with-2",
    ]
    assert all(point["run"]["samples"] > 0 for point in found["series"])
    assert found["measured"]["command"].endswith("{workers}'")
