"""Processes in D that do not run while they are watched; all else that is in D for a moment."""

import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.checks.stuck_processes import FORKED
from nodevet.remote.probe.collectors import stuck

Check = Callable[..., Any]
ASKED = {"asks": {"stuck": ["2"]}, "whole_machine": True}
KERNEL = 0x208040  # PF_KTHREAD among others


def write(root: Path, pid: int, state: str, *, flags: int = 0, switches: int = 7, begun: int = 500,
          command: str = "python3") -> None:  # fmt: skip
    place = root / f"proc/{pid}"
    place.mkdir(parents=True, exist_ok=True)
    rest = f"{state} 1 {pid} {pid} 0 -1 {flags} " + "0 " * 12 + f"{begun} 0 0"
    (place / "stat").write_text(f"{pid} ({command}) {rest}\n")
    (place / "status").write_text(
        f"Name:\t{command}\nvoluntary_ctxt_switches:\t{switches}\nnonvoluntary_ctxt_switches:\t0\n"
    )
    (place / "wchan").write_text("rpc_wait_bit_killable")


@pytest.fixture
def node(tmp_path: Path) -> Path:
    write(tmp_path, 1, "S", command="systemd")
    write(tmp_path, 2, "D", flags=KERNEL, command="nvme-wq")
    write(tmp_path, 4242, "D", command="train (D) S 1")
    write(tmp_path, 4243, "D")
    write(tmp_path, 4300, "Z", command="sh")
    return tmp_path.resolve()


def slept(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]) -> list[float]:
    """What happens at each sleep, instead of sleeping."""
    now, sleeps = [0.0], []

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        now[0] += seconds
        meanwhile()

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return sleeps


def test_a_process_in_state_d_that_never_runs_is_stuck(
    node: Path, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeps = slept(monkeypatch, lambda: None)
    found = check("stuck", stuck.collect(str(node), ASKED))
    assert [process.pid for process in found.blocked] == [4242, 4243]
    first = found.blocked[0]
    assert (first.command, first.state, first.parent) == ("train (D) S 1", "D", 1)
    assert (first.wchan, first.started_s) == ("rpc_wait_bit_killable", 5.0)
    assert (found.processes, found.blocked_count, found.zombie_count) == (4, 2, 1)
    assert (found.complete, found.watched_s, sum(sleeps)) == (True, 2.0, 2.0)
    assert [process.command for process in found.zombies] == ["sh"]


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda node: write(node, 4243, "S"),
        lambda node: write(node, 4243, "D", switches=8),
        lambda node: write(node, 4243, "D", begun=900),
        lambda node: (node / "proc/4243/stat").unlink(missing_ok=True),
        lambda node: (node / "proc/4243/stat").write_text("4243 (\n"),
    ],
    ids=["awake", "ran", "another", "gone", "nonsense"],
)
def test_processes_that_ran_in_between_are_not_counted(
    node: Path,
    check: Check,
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: Callable[[Path], None],
) -> None:
    slept(monkeypatch, lambda: meanwhile(node))
    found = check("stuck", stuck.collect(str(node), ASKED))
    assert [process.pid for process in found.blocked] == [4242]


def test_a_blocked_process_whose_status_cannot_be_read_stays_blocked(
    node: Path, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept(monkeypatch, lambda: (node / "proc/4243/status").write_text(""))
    found = check("stuck", stuck.collect(str(node), ASKED))
    assert [process.pid for process in found.blocked] == [4242, 4243]


def test_a_node_without_blocked_processes_is_not_watched(
    node: Path, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeps = slept(monkeypatch, lambda: None)
    for pid in (4242, 4243):
        write(node, pid, "R")
    found = check("stuck", stuck.collect(str(node), ASKED))
    assert (found.blocked, sleeps) == ((), [])


def test_the_time_of_a_watch_is_limited_whatever_the_baseline_says(
    node: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeps = slept(monkeypatch, lambda: None)
    asked = {"asks": {"stuck": ["5", "999", "x", "-1"]}}
    assert stuck.collect(str(node), asked)["watched_s"] == stuck.LONGEST
    assert sum(sleeps) == stuck.LONGEST


def test_a_container_does_not_see_all(node: Path, check: Check) -> None:
    for name in ("stat", "status", "wchan"):
        (node / "proc/1" / name).unlink()
    (node / "proc/1").rmdir()
    write(node, 4242, "S")
    write(node, 4243, "S")
    assert check("stuck", stuck.collect(str(node), ASKED)).complete is False


def test_all_zombies_are_counted_and_only_some_are_listed(
    tmp_path: Path, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stuck, "MOST", 3)
    for pid in range(1, 9):
        write(tmp_path, pid, "Z")
    found = check("stuck", stuck.collect(str(tmp_path.resolve()), ASKED))
    assert (found.zombie_count, len(found.zombies)) == (8, 3)


def test_this_machine_is_read(check: Check) -> None:
    found = check("stuck", stuck.collect("/", {"asks": {"stuck": ["0"]}}))
    assert found.processes > 0


VFORK = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
if libc.syscall(ctypes.c_long(int(sys.argv[1])), ctypes.c_long(0x4000 | 17), 0, 0, 0, 0) == 0:
    os.write(1, b"forked")
    os.read(0, 1)
    os._exit(0)
"""
"""Waits for a child as after vfork(2): clone(2) with CLONE_VFORK and SIGCHLD."""


def test_the_kernel_names_the_function_in_which_a_parent_waits_for_its_fork() -> None:
    number = {"x86_64": "56", "aarch64": "220"}[platform.machine()]
    with subprocess.Popen(
        [sys.executable, "-c", VFORK, number], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout and parent.stdout.read(6) == b"forked"
        end = time.monotonic() + 120
        while (stuck.state("/", parent.pid) or ("", ""))[1] != "D":
            assert time.monotonic() < end
            time.sleep(0.01)
        wchan = Path(f"/proc/{parent.pid}/wchan").read_text()
        parent.communicate(b"x")
    assert wchan in (*FORKED, "0")  # built without symbols, a kernel names no function
