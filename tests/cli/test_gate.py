"""`nodevet gate`: one exit code for a new node."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.vet.terminal.gate_watch import GateBoard
from nodevet.vet.use.listener import Waiting

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
def test_a_failing_or_unreachable_node_fails_the_gate(
    nodevet: Run, reach: list[str], verdict: Path, host: str
) -> None:
    done = nodevet("gate", host, *reach, *H100, *QUICK, "--verdict", verdict)
    assert done.returncode == 1
    assert json.loads(verdict.read_text())["verdict"] == "fail"


def test_one_bad_node_fails_all(nodevet: Run, reach: list[str]) -> None:
    assert nodevet("gate", "gpu[1,4]", *reach, *H100, *QUICK).returncode == 1


def test_a_node_that_has_just_booted_fails_the_gate(nodevet: Run, reach: list[str]) -> None:
    done = nodevet("gate", "gpu1", *reach, *H100, *QUICK, "--settle", "7d")
    assert done.returncode == 1
    assert re.search(r"not settled: up for 1 h( \d+ min)?, expected 7 d", done.stdout)


def test_a_node_that_is_fixed_within_the_wait_passes(
    fleet: Any, reach: list[str], verdict: Path, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [*NODEVET, "gate", "gpu2", *reach, *H100, "--wait", "600", "--interval", "0.5",
         "--verdict", verdict],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    limit = "power_limit: 500 W, expected 700 W"
    try:
        end = time.monotonic() + 240
        while not verdict.exists() or not (said := json.loads(verdict.read_text()))["waiting"]:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert said == {
            "verdict": "pending", "exit_code": None, "run": None, "waiting": {"gpu2": limit},
        }  # fmt: skip
        mend = threading.Timer(3, fleet.sim, ["set", "gpu2", "gpu.*.power_limit_mw=700000"])
        mend.start()
        stdout, stderr = process.communicate(timeout=240)
        mend.join()
    finally:
        fleet.sim("set", "gpu2", "gpu.*.power_limit_mw=500000")
    assert process.returncode == 0, stdout
    assert json.loads(verdict.read_text())["verdict"] == "pass"
    told = rf"[\d.]+ s: waiting for 1 of 1 host: gpu2: {limit}; .*; gives up in \d+ min( \d+ s)?\n"
    assert re.fullmatch(told, stderr), "one line, for it waited for one thing"


def test_a_quiet_gate_does_not_say_what_it_waits_for(nodevet: Run, reach: list[str]) -> None:
    words = ("gate", "gpu[2,4]", *reach, *H100, "--interval", "0.5", "--wait", "3")
    told = nodevet(*words).stderr
    assert "waiting for 2 of 2 hosts: gpu2: power_limit: 500 W" in told
    assert "gpu4: unreachable: " in told
    assert nodevet(*words, "-q").stderr == ""


def waiting(since: float, **reasons: str) -> Waiting:
    return Waiting(reasons=reasons, hosts=8, since=since, next_in=10, left=600 - since)


def test_a_line_says_why_a_gate_waits_and_until_when() -> None:
    board = GateBoard()
    assert not board.waiting
    first = waiting(12, n1="not settled: up for 14 s, expected 30 s", n2="x: 1", n3="x: 1")
    board.take(first, 100)
    said = board.event_line(first, terminal=False)
    assert said and said.text == (
        "12 s: waiting for 3 of 8 hosts: n[2-3]: x: 1; "
        "n1: not settled: up for 14 s, expected 30 s; next try in 10 s; gives up in 9 min 48 s"
    )
    assert board.head(109.8) == "22 s: waiting for 3 of 8 hosts; trying now; gives up in 9 min 38 s"
    later = waiting(22, n1="not settled: up for 24 s, expected 30 s", n2="x: 1", n3="x: 1")
    board.take(later, 110)
    assert board.event_line(later, terminal=False) is None, "only the clock went on"
    changed = waiting(32, n2="x: 2", n3="x: 1")
    board.take(changed, 120)
    assert board.event_line(changed, terminal=True) is None, "a terminal shows it live"
    assert board.event_line(changed, terminal=False) is not None
    many = waiting(40, **{f"n{number}": f"x: {number}" for number in range(9)})
    board.take(many, 130)
    assert board.rows(130, 4) == ["n0: x: 0", "n1: x: 1", "n2: x: 2", "and 6 more"]


def test_a_missing_baseline_replaces_an_old_pass(
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
def test_an_invalid_option_value_replaces_an_old_pass_with_pending(
    nodevet: Run, verdict: Path, mistake: list[str]
) -> None:
    verdict.write_text('{"verdict": "pass"}')
    done = nodevet("gate", "gpu1", *H100, *mistake, "--verdict", verdict)
    assert done.returncode == 2
    assert json.loads(verdict.read_text())["verdict"] == "pending"


def test_a_verdict_that_cannot_be_written_is_reported_before_any_host(
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


@pytest.mark.parametrize(
    "words",
    [
        ("--setle", "3s", "--verdict", "FILE"),
        ("--verdict=FILE", "--wait", "soon"),
        ("--verdict", "FILE", "--sample", "1s", "--sample"),
        ("--verdict", "FILE", "--fail-on", "much"),
    ],
)
def test_a_mistake_in_the_command_leaves_no_old_pass(
    nodevet: Run, verdict: Path, words: tuple[str, ...]
) -> None:
    verdict.write_text('{"verdict": "pass", "exit_code": 0, "run": null, "waiting": {}}')
    done = nodevet("gate", "gpu1", *(word.replace("FILE", str(verdict)) for word in words))
    assert done.returncode == 2 and "Error: " in done.stderr, done
    assert json.loads(verdict.read_text())["verdict"] == "pending"


@pytest.mark.parametrize(
    "text", ["", "not JSON", "[]", '{"verdict": "guilty"}', '{"id": "run"}', "\x00" * 99]
)
def test_other_files_are_not_replaced_by_a_verdict(nodevet: Run, verdict: Path, text: str) -> None:
    verdict.write_text(text)
    done = nodevet("gate", "--setle", "--verdict", verdict)
    assert done.returncode == 2 and verdict.read_text() == text
    done = nodevet("gate", "gpu1", "--setle", "3s", "--", "--verdict", verdict)
    assert done.returncode == 2 and verdict.read_text() == text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("notes of mine\n", "this is not a verdict; --verdict would overwrite it"),
        ("nodevet: 1\nexpect: {gpu_count: 8}\n", "this is a baseline; use it with -b"),
        ('{"verdict": "guilty"}', "this is not a verdict"),
    ],
)
def test_a_file_of_another_kind_is_not_overwritten(
    nodevet: Run, verdict: Path, text: str, told: str
) -> None:
    verdict.write_text(text)
    done = nodevet("gate", "@local", "-b", "generic", "--verdict", verdict)
    assert (done.returncode, verdict.read_text()) == (2, text)
    assert f"{verdict}: {told}" in done.stderr


@pytest.mark.parametrize("text", ["", '{"verdict": "fail"}'])
def test_a_verdict_or_an_empty_file_is_written_again(
    nodevet: Run, verdict: Path, text: str
) -> None:
    verdict.write_text(text)
    nodevet(
        "gate", "@local", "-b", "generic", "--wait", "1s", "--settle", "0s", "--verdict", verdict
    )
    assert json.loads(verdict.read_text())["run"]["hosts"]


FILLS = """
from contextlib import suppress
from pathlib import Path

from nodevet.model import Check, CheckParams, fail

def judge(evidence, params):
    with suppress(OSError), Path("small/full").open("wb", 0) as file:
        while file.write(b"." * 4096):
            pass
    yield fail(expected="room", actual="none")

CHECK = Check(params=CheckParams, reads=(), judge=judge)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file system")
def test_a_full_disk_leaves_no_pending_verdict_of_a_node_that_fails(tmp_path: Path) -> None:
    (tmp_path / "checks").mkdir()
    (tmp_path / "small").mkdir()
    (tmp_path / "checks/fills.py").write_text(FILLS)
    (tmp_path / "b.yaml").write_text("nodevet: 1\nexpect: {fills: {}}\n")
    gate = [*NODEVET, "gate", "@local", "-b", "b.yaml", "--wait", "0", "--settle", "0"]
    script = 'mount -t tmpfs -o size=64k none small; "$@"; cat small/verdict; exit 1'
    words = ["unshare", "-m", "sh", "-c", script, "sh", *gate, "--verdict", "small/verdict"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "small/verdict: cannot be written: No space left on device" in done.stderr
    told = json.loads(done.stdout[done.stdout.index("{") :])
    assert (told["verdict"], told["exit_code"]) == ("fail", 1)


def test_a_mistake_makes_no_verdict_file(nodevet: Run, verdict: Path) -> None:
    assert nodevet("gate", "gpu1", "--setle", "--verdict", verdict).returncode == 2
    assert not verdict.exists()


def test_a_killed_gate_leaves_no_old_pass(verdict: Path, tmp_path: Path) -> None:
    verdict.write_text('{"verdict": "pass"}')
    process = subprocess.Popen(
        [*NODEVET, "gate", "@local", "-b", "generic", "--settle", "7d", "--verdict", verdict],
        cwd=tmp_path, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    end = time.monotonic() + 60
    while json.loads(verdict.read_text())["verdict"] == "pass":
        assert time.monotonic() < end
        time.sleep(0.05)
    process.kill()
    process.wait()
    assert json.loads(verdict.read_text())["verdict"] == "pending"
