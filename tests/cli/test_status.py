"""`nodevet status` of a run on a real simulated node: going on, killed with SIGKILL, ended."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(900)
SCENARIO = """\
sim: 1
nodes:
  gpu1: {gpus: {profile: h100-sxm, count: 1}, sockets: 1, cores: 2, governor: powersave}
"""
BASELINE = """\
nodevet: 1
expect: {cpu_governor: performance}
fix: [cpu_governor]
"""


@pytest.fixture(scope="module")
def fleet(boot: Boot) -> SimulatedFleet:
    made = boot("stat", SCENARIO, BASELINE)
    made.people("ann")
    return made


def until(seen: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_run_is_followed_killed_and_continued(fleet: SimulatedFleet) -> None:
    planned = fleet.run_in_project(
        *("plan", *fleet.reach, "--author", "ann", "--settle", "5s", "-o", "plan.json")
    )
    assert planned.returncode == 1, planned
    assert fleet.run_in_project("approve", "plan.json", "--key", "ann", "--yes").returncode == 0
    run = fleet.project / "runs" / "one"
    words = ["apply", "plan.json", *fleet.reach, "--project", ".", "--run", "runs/one"]
    process = subprocess.Popen(
        [sys.executable, "-m", "nodevet", *map(str, words)],
        cwd=fleet.project, stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    journal = run / "journal.jsonl"
    try:
        until(lambda: journal.exists() and b'"action-end"' in journal.read_bytes())
        process.send_signal(signal.SIGSTOP)  # it would end while others look at it
        going = fleet.nodevet("status", "runs/one")
        assert going.returncode == 4, going
        assert f"goes on (process {process.pid})" in going.stdout
        assert "IN PROGRESS  gpu1  1/1 cpu_governor: " in going.stdout
        watching = subprocess.Popen(
            [sys.executable, "-m", "nodevet", "status", "runs/one", "--watch"],
            cwd=fleet.project, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert watching.stdout and "goes on" in watching.stdout.readline()
    finally:
        process.kill()
        process.wait()
    told, _ = watching.communicate(timeout=60)
    assert watching.returncode == 3 and "interrupted" in told, told
    killed = fleet.nodevet("status")
    assert killed.returncode == 3, killed
    assert f"interrupted (process {process.pid} has ended)" in killed.stdout
    assert "WAS AT" in killed.stdout and "1/1 cpu_governor: " in killed.stdout
    assert "next: nodevet apply --resume runs/one" in killed.stdout
    resumed = fleet.run_in_project("apply", "--resume", "runs/one", "-b", "base")
    assert resumed.returncode == 0, resumed
    ended = fleet.nodevet("status")
    assert ended.returncode == 0 and "CHANGED  gpu1" in ended.stdout, ended
    assert "undo: nodevet rollback runs/one" in ended.stdout
    lines = journal.read_text().splitlines(keepends=True)
    record = json.loads(lines[1]) | {"host": "gpu9"}
    journal.write_text("".join([lines[0], json.dumps(record) + "\n", *lines[2:]]))
    damaged = fleet.nodevet("status", "runs/one")
    assert damaged.returncode == 2 and not damaged.stdout, damaged
    assert "runs/one/journal.jsonl:3: does not match line 2" in damaged.stderr
