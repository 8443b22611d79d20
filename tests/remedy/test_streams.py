"""Output that cannot be written, and terminals that are gone, stop no apply and no rollback.

Each command runs in a process of its own, on the boxes of a world: real pipes, real signals.
"""

import fcntl
import json
import os
import pty
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from far_processes import take_signal

from nodevet import cli
from nodevet.fix.journal.journal import JournalError, RunEnd, read

CommandRig = Any


@pytest.fixture
def slow(rig: Callable[..., CommandRig]) -> CommandRig:
    """Three nodes, one at a time, each of which waits before it is changed."""
    d = rig("n1", "n2", "n3")

    def fault(box: Any, call: str, when: str) -> None:
        if when == "before" and call == "act":
            until(d.project.joinpath("go-on").exists)

    d.w.executor.fault = fault
    return d


def go_on(d: CommandRig) -> None:
    """Let nodes wait no more."""
    (d.project / "go-on").touch()


@contextmanager
def started(words: list[Any], *, terminal: bool = False) -> Iterator[tuple[int, int]]:
    """A command in another process: its id, and the end that reads what it says.

    `terminal`: it has a terminal of its own, of which this is the other side.
    """
    reading, writing = pty.openpty() if terminal else os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            os.setsid()
            if terminal:
                fcntl.ioctl(writing, termios.TIOCSCTTY, 0)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.close(reading)
            for number in (1, 2):
                os.dup2(writing, number)
            sys.stdout, sys.stderr = open(1, "w"), open(2, "w")  # noqa: SIM115
            sys.argv = ["nodevet", *map(str, words)]
            cli.main()
        except SystemExit as ended:
            with suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            code = ended.code if isinstance(ended.code, int) else 98
        finally:
            os._exit(code)
    os.close(writing)
    try:
        yield pid, reading
    finally:
        with suppress(OSError):
            os.close(reading)


def wait(pid: int) -> int:
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        threading.Event().wait(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("it does not end")


def at(run: Path, word: bytes, times: int = 1) -> None:
    """Wait until the journal has a word so many times."""
    until(lambda: (run / "journal.jsonl").exists() and journal(run).count(word) >= times)


def until(there: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not there():
        assert time.monotonic() < limit
        threading.Event().wait(0.01)


def journal(run: Path) -> bytes:
    return (run / "journal.jsonl").read_bytes()


def ended(run: Path) -> bool:
    with suppress(JournalError):
        return isinstance(read(run)[-1], RunEnd)
    return False


def applying(d: CommandRig) -> list[Any]:
    return ["apply", d.plan(batch=1), "--run", d.run, "-b", "b"]


def test_r1_a_closed_output_pipe_does_not_stop_an_apply(slow: CommandRig) -> None:
    with started(applying(slow)) as (pid, reading):
        at(slow.run, b'"action-begin"')
        os.close(reading)
        go_on(slow)
        assert wait(pid) == 0
    assert ended(slow.run)
    assert slow.outcomes() == {"n1": "changed", "n2": "changed", "n3": "changed"}
    assert json.loads((slow.run / "result.json").read_text())["hosts"]


def test_r1_a_ctrl_c_that_also_ends_the_reader_lets_started_nodes_finish(slow: CommandRig) -> None:
    """As with `2>&1 | tee`: both have it."""
    with started(applying(slow)) as (pid, reading):
        at(slow.run, b'"action-begin"')
        os.close(reading)
        os.kill(pid, signal.SIGINT)
        take_signal(pid, signal.SIGINT)
        go_on(slow)
        assert wait(pid) == 1
    assert ended(slow.run)
    assert slow.outcomes() == {"n1": "changed", "n2": "not_attempted", "n3": "not_attempted"}


def test_r1_a_lost_terminal_is_a_graceful_stop(slow: CommandRig) -> None:
    """Told twice: by the shell, and by the kernel as the terminal goes."""
    with started(applying(slow), terminal=True) as (pid, reading):
        at(slow.run, b'"action-begin"')
        os.kill(pid, signal.SIGHUP)
        os.close(reading)
        os.kill(pid, signal.SIGHUP)
        take_signal(pid, signal.SIGHUP)
        go_on(slow)
        assert wait(pid) == 1
    assert ended(slow.run)
    assert slow.outcomes() == {"n1": "changed", "n2": "not_attempted", "n3": "not_attempted"}


def test_r1_a_second_ctrl_c_kills_an_apply_and_a_hang_up_does_not_count(slow: CommandRig) -> None:
    with started(applying(slow)) as (pid, _):
        at(slow.run, b'"action-begin"')
        os.kill(pid, signal.SIGHUP)
        os.kill(pid, signal.SIGINT)
        take_signal(pid, signal.SIGINT)  # two that come together are one
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
        os.kill(pid, signal.SIGINT)
        assert wait(pid) == 130
    assert not ended(slow.run) and slow.report().code == 3


def test_r1_a_rollback_whose_reader_is_gone_continues(slow: CommandRig) -> None:
    go_on(slow)
    assert slow.apply().code == 0
    (slow.project / "go-on").unlink()
    words = ["rollback", slow.run, "--settle", "0", "--parallel", "1"]
    with started(words, terminal=True) as (pid, reading):
        at(slow.run, b'"step-reverting"')
        os.close(reading)
        take_signal(pid, signal.SIGHUP)
        go_on(slow)
        assert wait(pid) == 1
    assert ended(slow.run)
    assert slow.outcomes() == {"n1": "rolled_back", "n2": "not_attempted", "n3": "not_attempted"}


@pytest.mark.parametrize("kind", ["xterm", "dumb"])
def test_r1_check_writes_its_report_even_if_the_terminal_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Progress is drawn on a terminal that closes; the report still goes to its file.

    On a dumb one at the end only: what hangs up then comes after the run.
    """
    monkeypatch.setenv("TERM", kind)
    told = tmp_path / "told.json"
    words = ["check", "@local", "127.0.0.9", "-b", "generic", "--format", f"json:{told}"]
    with started([*words, "--project", tmp_path], terminal=True) as (pid, reading):
        os.read(reading, 1)
        os.close(reading)
        assert wait(pid) in (1, 3, 130)
    assert len(json.loads(told.read_text())["hosts"]) == 2
