"""Exactly one process is ended: by pid, start, user and job, with real processes and signals."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from nodevet.remote.look import look
from nodevet.resource import State, irreversible_effects, restore
from nodevet.resource.running_process import KIND, EndProcess

READY = "print(flush=True); import time; time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {READY}"
CGROUPS = [Path("/sys/fs/cgroup", name) for name in ("systemd", "unified", "")]
OTHER = os.getuid() + 1
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    begun: list[subprocess.Popen[str]] = []

    def process(program: str = READY) -> "subprocess.Popen[str]":
        made = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        begun.append(made)
        assert made.stdout and made.stdout.readline() == "\n"
        return made

    yield process
    for each in begun:
        each.kill()
        each.communicate()


def seen(pid: int) -> State:
    resource = EndProcess(pid=pid, started_s=1.0, uid=0, name="x").resource
    named = {"kind": resource.kind, "name": resource.name}
    (found,) = look({"root": "/", "resources": [named]})
    return State(resource=resource, **found)


def ending(pid: int) -> EndProcess:
    value = seen(pid).mapping
    return EndProcess(pid=pid, **value)


def do(action: EndProcess, seconds: float = 3) -> "subprocess.CompletedProcess[str]":
    command = action.command(seconds=seconds).get_raw_value()
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)


def test_sigterm_ends_a_process(start: Start) -> None:
    process = start()
    action, before = ending(process.pid), seen(process.pid)
    assert not KIND.holds(action, before)
    done = do(action)
    assert (done.returncode, done.stderr) == (0, "")
    assert process.wait() == -signal.SIGTERM
    after = seen(process.pid)
    assert KIND.holds(action, after) and KIND.has_ended(before, after)
    assert not KIND.is_same(before, after)
    assert list(irreversible_effects([action], [before], [after]).values()) == [
        f"end process {process.pid} ({action.name}, uid {os.getuid()}): cannot be undone"
    ]
    assert restore(before, actions=[action]) == ()
    assert do(action).returncode == 0, "the second time it has ended already"


def test_a_zombie_has_ended(start: Start) -> None:
    process = start()
    action = ending(process.pid)
    assert do(action).returncode == 0
    assert process.returncode is None and not seen(process.pid).exists


def test_sigkill_ends_a_process_that_ignores_sigterm(start: Start) -> None:
    process = start(STUBBORN)
    begun = time.monotonic()
    assert do(ending(process.pid)).returncode == 0
    assert time.monotonic() - begun >= 1 and process.wait() == -signal.SIGKILL


@pytest.mark.parametrize("by", [0.01, -0.01, 100])
def test_another_process_with_the_same_pid_is_not_touched(start: Start, by: float) -> None:
    process = start()
    action = ending(process.pid)
    done = do(replace(action, started_s=action.started_s + by))
    assert done.returncode == 0 and process.poll() is None
    assert KIND.holds(replace(action, started_s=action.started_s + by), seen(process.pid))


def test_a_process_of_another_user_is_not_touched(start: Start) -> None:
    process = start()
    done = do(replace(ending(process.pid), uid=OTHER))
    assert done.returncode == 1 and "its user is another one now" in done.stderr
    assert process.poll() is None


@pytest.mark.parametrize(("by", "ends"), [(0, True), (1, False), (None, False)])
def test_a_process_of_another_job_is_not_touched(start: Start, by: int | None, ends: bool) -> None:
    process = start()
    action, job = ending(process.pid), process.pid
    group = next(each for each in CGROUPS if (each / "cgroup.procs").exists()) / f"job_{job}"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(process.pid))
        done = do(replace(action, job=None if by is None else job + by))
        assert (done.returncode == 0) is ends
        assert ends or "control group of a job" in done.stderr
        assert (process.poll() is not None) is ends
    finally:
        process.kill()
        process.wait()
        group.rmdir()


def test_a_kernel_thread_is_not_touched() -> None:
    """Where the machine shows its kernel's threads."""
    named = {int(path.parent.name): path.read_text() for path in Path("/proc").glob("[0-9]*/stat")}
    threads = [
        pid
        for pid, stat in named.items()
        if int(stat.rsplit(")", 1)[1].split()[6]) & 0x200000 and pid > 2
    ]
    if not threads:
        pytest.skip("this machine shows no thread of the kernel")
    done = do(ending(threads[0]))
    assert done.returncode == 1 and "thread of the kernel" in done.stderr


def test_an_older_kernel_without_pidfds_is_refused(start: Start) -> None:
    """Nothing falls back to kill(2), which may reach another process."""
    process = start()
    command = ending(process.pid).command(seconds=3).get_raw_value()
    done = subprocess.run(
        ["sh", "-c", command.replace("OPEN, SEND = 434, 424", "OPEN, SEND = 9999, 9999")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "Function not implemented" in done.stderr
    assert process.poll() is None


def test_a_plan_shows_which_process_it_ends() -> None:
    action = EndProcess(pid=4711, started_s=12.5, uid=1000, name="e\x1b[2Jvil\n", job=42)
    assert list(KIND.diff([action], {})) == [
        r"-process 4711: e\x1b[2Jvil\n, uid 1000, of job 42, started 12.50 s after boot",
        "+process 4711: ended by SIGTERM, or SIGKILL; cannot be undone",
    ]
    assert re.fullmatch(r"[ -~]+", action.label)


@pytest.mark.parametrize("name", ["0", "-1", "1 2", "../1", "١", "12345678"])
def test_only_a_number_names_a_process(name: str) -> None:
    assert KIND.name_problem(name) and not KIND.name_problem("4711")
