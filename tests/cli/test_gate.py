"""`nodevet gate`: one exit code for a new node."""

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.timeout(600)  # nodes are booted first
Run = Callable[..., subprocess.CompletedProcess[str]]
NODEVET = [sys.executable, "-m", "nodevet"]


H100 = ("-b", "nvidia-h100-sxm")
QUICK = ("--interval", "0.5", "--wait", "1")


@pytest.fixture
def verdict(tmp_path: Path) -> Path:
    return tmp_path / "verdict.json"


def test_a_healthy_node_passes(nodevet: Run, reach: list[str], verdict: Path) -> None:
    done = nodevet("gate", "gpu1", *reach, *H100, "--verdict", verdict)
    assert done.returncode == 0
    said = json.loads(verdict.read_text())
    assert (said["verdict"], said["exit_code"]) == ("pass", 0)
    assert said["run"]["hosts"][0]["host"] == "gpu1"


@pytest.mark.parametrize("host", ["gpu2", "gpu3", "gpu4"])
def test_what_is_wrong_or_unreachable_fails(
    nodevet: Run, reach: list[str], verdict: Path, host: str
) -> None:
    done = nodevet("gate", host, *reach, *H100, *QUICK, "--verdict", verdict)
    assert done.returncode == 1
    assert json.loads(verdict.read_text())["verdict"] == "fail"


def test_one_bad_node_fails_all(nodevet: Run, reach: list[str]) -> None:
    assert nodevet("gate", "gpu[1,4]", *reach, *H100, *QUICK).returncode == 1


def test_a_node_that_has_just_booted_is_not_believed(nodevet: Run, reach: list[str]) -> None:
    done = nodevet("gate", "gpu1", *reach, *H100, *QUICK, "--settle", "864001")
    assert done.returncode == 1
    assert re.search(r"not settled: up for \d{4,5} s, expected 864001 s", done.stdout)


def test_a_node_that_becomes_right_in_time_passes(
    fleet: Any, reach: list[str], verdict: Path, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [*NODEVET, "gate", "gpu2", *reach, *H100, "--wait", "90", "--interval", "0.5",
         "--verdict", verdict],
        cwd=tmp_path, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        while not verdict.exists():
            time.sleep(0.05)
        assert json.loads(verdict.read_text())["verdict"] == "pending"
        mend = threading.Timer(3, fleet.sim, ["set", "gpu2", "gpu.*.power_limit_mw=700000"])
        mend.start()
        stdout, _ = process.communicate(timeout=100)
        mend.join()
    finally:
        fleet.sim("set", "gpu2", "gpu.*.power_limit_mw=500000")
    assert process.returncode == 0, stdout
    assert json.loads(verdict.read_text())["verdict"] == "pass"


def test_an_old_pass_does_not_survive_a_mistake(
    nodevet: Run, reach: list[str], verdict: Path
) -> None:
    verdict.write_text('{"verdict": "pass"}')
    done = nodevet("gate", "gpu1", *reach, "-b", "no-such-baseline", "--verdict", verdict)
    assert done.returncode == 2
    assert json.loads(verdict.read_text())["verdict"] != "pass"


@pytest.mark.parametrize(
    "mistake",
    [["--format", "tabel"], ["--format", "json:/no/folder/x"], ["-b", "no-such"], ["--limit", "x"]],
)
def test_an_old_pass_does_not_survive_any_mistake(
    nodevet: Run, verdict: Path, mistake: list[str]
) -> None:
    verdict.write_text('{"verdict": "pass"}')
    done = nodevet("gate", "gpu1", *H100, *mistake, "--verdict", verdict)
    assert done.returncode == 2
    assert json.loads(verdict.read_text())["verdict"] == "pending"


def test_a_verdict_that_cannot_be_written_is_told_before_any_host(
    nodevet: Run, tmp_path: Path
) -> None:
    for place in ("/no/folder/verdict", "/proc/verdict", "/dev/full"):
        done = nodevet("gate", "@local", "-b", "generic", "--verdict", place)
        assert (done.returncode, done.stdout) == (2, ""), place
        assert len(done.stderr.splitlines()) < 5
    report = tmp_path / "one"
    done = nodevet(
        "gate", "@local", "-b", "generic", "--verdict", report, "--format", f"json:{report}"
    )
    assert done.returncode == 2
    assert json.loads(report.read_text())["verdict"] == "pending"


def test_a_killed_gate_leaves_no_old_pass(verdict: Path, tmp_path: Path) -> None:
    verdict.write_text('{"verdict": "pass"}')
    process = subprocess.Popen(
        [*NODEVET, "gate", "@local", "-b", "generic", "--settle", "1e9", "--verdict", verdict],
        cwd=tmp_path, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    end = time.monotonic() + 60
    while json.loads(verdict.read_text())["verdict"] == "pass":
        assert time.monotonic() < end
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert json.loads(verdict.read_text())["verdict"] == "pending"
