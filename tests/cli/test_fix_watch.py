"""What apply and rollback show while they go on, and that a broken terminal ends nothing."""

import io
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from nodevet.cli.display import Display, Screen
from nodevet.fix.events import Doing, HostBegun, HostEnded, Phase, Resting, RunBegun
from nodevet.fix.rollout.limits import Limits
from nodevet.fix.terminal import board as fix_board
from nodevet.fix.terminal.board import FixBoard
from nodevet.fix.terminal.watch import FixWatcher
from nodevet.fixing.result import HostResult, Outcome

STEPS = ("gpu4/a/1", "gpu4/cpu_governor/1", "gpu4/power_limit/1", "gpu4/d/1", "gpu4/e/1")
RUN = RunBegun(hosts=200, limits=Limits(canary=1, batch=10, max_fail=2))
CANARY = HostBegun(host="gpu4", canary=True, steps=STEPS)


def ended(host: str, outcome: Outcome, **rest: object) -> HostEnded:
    told = HostResult(host=host, outcome=outcome, seconds=54.2)
    return HostEnded(result=told, may_fail=2, **rest)  # type: ignore[arg-type]


def board(*events: tuple[float, object]) -> FixBoard:
    made = FixBoard(0.0)
    for now, event in events:
        made.take(event, now)  # type: ignore[arg-type]
    return made


def test_the_canary_is_named_with_its_step() -> None:
    doing = Doing(host="gpu4", phase=Phase.WRITING, steps=("gpu4/power_limit/1",))
    b = board((0, RUN), (1, CANARY), (2, doing))
    assert b.head(2.4) == "0 of 200 hosts done · 1 in progress · 2 more may fail · 2 s"
    assert b.rows(2.4, 8) == ["canary gpu4: 3/5 power_limit: writing"]
    assert b.rows(12, 8) == ["canary gpu4: 3/5 power_limit: writing, 10 s"]
    assert b.pulse(2.4) == f"{b.head(2.4)}; canary gpu4: 3/5 power_limit: writing"


@pytest.mark.parametrize(
    ("doing", "spent", "text"),
    [
        (Doing(host="gpu4", phase=Phase.SETTLING, steps=STEPS, seconds=5), 1,
         "steps 1-5 of 5: waiting to settle, 4 s left"),
        (Doing(host="gpu4", phase=Phase.REBOOTING, seconds=900), 61,
         "rebooting, 1 min 1 s, at most 15 min"),
        (Doing(host="gpu4", phase=Phase.DRAINING, seconds=1800), 0.2,
         "running the drain hook, at most 30 min"),
        (Doing(host="gpu4", phase=Phase.LOST, seconds=120, why="timed out\x1b"), 20,
         r"connection lost, trying again, gives up in about 1 min 40 s (timed out\x1b)"),
        (Doing(host="gpu4", phase=Phase.READING), 3, "reading the host, 3 s"),
    ],
)  # fmt: skip
def test_every_wait_says_how_long(doing: Doing, spent: float, text: str) -> None:
    b = board((0, RUN), (0, CANARY), (10, doing))
    assert b.rows(10 + spent, 8) == [f"canary gpu4: {text}"]


def test_the_board_counts_the_hosts_of_a_batch_and_lists_rare_phases_first() -> None:
    hosts = [HostBegun(host=f"n{number}", steps=("a/b/1",)) for number in range(6)]
    lost = Doing(host="n4", phase=Phase.LOST, seconds=60)
    b = board((0, RUN), *((n, host) for n, host in enumerate(hosts)), (7, lost))
    b.take(ended("n0", Outcome.CHANGED), 8)
    b.take(ended("n1", Outcome.UNKNOWN), 9)
    assert b.head(70).startswith(
        "2 of 200 hosts done: 1 changed, 1 unknown · 4 in progress · 2 more"
    )
    assert b.rows(9, 3) == [
        "n4: connection lost, trying again, gives up in about 58 s",
        "n2: started",
        "and 2 more hosts",
    ]
    b.take(ended("n2", Outcome.FAILED, stopped="3 nodes failed, but only 2 may"), 10)
    assert "3 nodes failed, but only 2 may: no more hosts are started" in b.head(10)


def test_the_pause_after_the_canary_is_reported() -> None:
    b = board((0, RUN), (0, CANARY), (1, ended("gpu4", Outcome.CHANGED)), (1, Resting(seconds=60)))
    assert b.waiting and "pause after the canary, 30 s left" in b.head(31)
    b.take(HostBegun(host="n1"), 62)
    assert "pause" not in b.head(62)


def test_a_log_has_a_line_for_each_host_and_each_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    err = io.StringIO()
    monkeypatch.setattr(sys, "stderr", err)
    with FixWatcher(Display(), every=0.1) as watcher:
        watcher.note("run runs/x-1")
        watcher.on_event(RUN)
        watcher.on_event(CANARY)
        wait(lambda: err.getvalue().count("canary gpu4") >= 2)
        watcher.on_event(ended("gpu4", Outcome.CHANGED))
        watcher.note_in_signal("nodevet starts no more nodes")
    lines = err.getvalue().splitlines()
    assert lines[:2] == ["nodevet: run runs/x-1", "gpu4  started (canary)"]
    assert lines[2].endswith("; canary gpu4: started")
    assert lines[-2:] == ["gpu4  changed  54 s", "nodevet: nodevet starts no more nodes"]


def test_the_board_is_redrawn_in_a_terminal_and_cleared_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    master, slave = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "60")
    with os.fdopen(slave, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with FixWatcher(Display(err=Screen(colour=True, width=60))) as watcher:
            watcher.on_event(RUN)
            watcher.on_event(CANARY)
            seen = until(master, b"canary gpu4: started")
            watcher.on_event(ended("gpu4", Outcome.FAILED))
        watcher.note_in_signal("late")
        seen += until(master, b"late")
    os.close(master)
    assert b"\x1b[33mgpu4  failed and rolled back  54 s" in seen
    assert seen.rindex(b"\x1b[2K") > seen.rindex(b"1 in progress"), "the live lines are erased"
    assert seen.count(b"\x1b[?25l") <= seen.count(b"\x1b[?25h"), "the cursor is there"


@pytest.mark.parametrize("closed", [True, False], ids=["gone", "full"])
def test_a_closed_or_full_pipe_does_not_delay_the_run(
    monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    read, write = os.pipe()
    if closed:
        os.close(read)
    with os.fdopen(write, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        watcher = FixWatcher(Display(), every=0.01)
        with watcher:
            began = time.monotonic()
            for number in range(5000):  # more than a pipe takes
                watcher.on_event(HostBegun(host=f"a-host-with-a-rather-long-name-{number}"))
            assert time.monotonic() - began < 100
            if not closed:
                os.set_blocking(read, False)
                seen = until(read, b"name-4999")
                assert seen.count(b"started") >= 5000
                os.close(read)


HANGS = """\
import time
from nodevet import cli
from nodevet.cli import group
from nodevet.cli.display import Display
from nodevet.fix.terminal.watch import FixWatcher
def run(*_, **__):
    with FixWatcher(Display()) as watcher:
        watcher.note("x" * 1000000)
        time.sleep(0.5)
        print("done", flush=True)
group.nodevet = run
group.nodevet.main = run
cli.main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_waiting_for_a_reader_can_be_interrupted(number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HANGS], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout and process.stderr
    with process.stdout, process.stderr:
        assert process.stdout.readline() == b"done\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(number)
        assert process.wait(120) == 130


def test_an_exception_while_drawing_does_not_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(host: HostBegun) -> str:
        raise ZeroDivisionError

    monkeypatch.setattr(fix_board, "begun_text", fails)
    with FixWatcher(Display()) as watcher:
        watcher.on_event(CANARY)
        watcher.on_event(ended("gpu4", Outcome.CHANGED))


def wait(for_what: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not for_what():
        assert time.monotonic() < end
        time.sleep(0.01)


def until(descriptor: int, text: bytes) -> bytes:
    """What is read until that comes."""
    seen = b""

    def there() -> bool:
        nonlocal seen
        with suppress(BlockingIOError):
            seen += os.read(descriptor, 65536)
        return text in seen

    wait(there)
    return seen
