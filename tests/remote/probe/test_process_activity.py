"""Threads and processes while they are watched: real ones, and files with odd bytes."""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from far_processes import children_of, sleeps, wait_for

from nodevet.evidence.process_activity import ProcessActivities
from nodevet.remote.probe import threads, watch
from nodevet.remote.probe.collectors import process_activity

ROW = (
    b"%d (%s) S 1 1 1 0 -1 0 0 0 2 0 7 8 1 2 20 0 3 0 99 1000 50 "
    b"1 2 3 4 5 6 7 8 9 10 11 0 0 17 4 0 0 6"
)


def collected(wish: dict[str, Any]) -> ProcessActivities:
    """What has no limit, or did not run, is null without a reason."""
    return msgspec.convert(process_activity.collect("/", wish), ProcessActivities)


def request(pids: dict[int, list[int]], seconds: float = 0.3) -> dict[str, Any]:
    gpus = [
        {
            "index": gpu,
            "minor_number": gpu,
            "processes": [{"pid": pid} for pid in pids if gpu in pids[pid]],
        }
        for gpu in range(2)
    ]
    wish = {"seconds": seconds, "interval": 0.5}
    return {"asks": {"process_activity": [wish]}, "found": {"gpu": {"data": {"gpus": gpus}}}}


@pytest.mark.parametrize("name", [b"a) R (b", b"two words", b"new\nline", b"\xff\xfe", b""])
def test_odd_names(name: bytes) -> None:
    found = threads.parse_stat_row(ROW % (5, name))
    assert found["name"] == name.decode("utf-8", "backslashreplace")
    assert (found["state"], found["parent"], found["user"], found["system"]) == ("S", 1, 7, 8)
    assert (found["threads"], found["started"], found["cpu"]) == (3, 99, 4)
    assert (found["children_user"], found["major_faults"], found["io_delay_ticks"]) == (1, 2, 6)


@pytest.mark.parametrize("data", [b"", b"5 (a) S 1", b"5 a S", b")5("])
def test_not_a_row_of_stat(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a process"):
        threads.parse_stat_row(data)


def folder_of_thread(tmp_path: Path) -> Path:
    place = tmp_path / "7"
    place.mkdir()
    (place / "stat").write_bytes(ROW % (7, b"t"))
    (place / "status").write_text("voluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t6\n")
    (place / "schedstat").write_text("1 2 3\n")
    (place / "wchan").write_text("do_epoll_wait")
    return place


def test_counters_of_a_thread_that_ended_are_unknown_and_not_zero(tmp_path: Path) -> None:
    place = folder_of_thread(tmp_path)
    thread = threads.WatchedThread(f"{tmp_path}/", 7)
    thread.look(True)
    (place / "stat").unlink()
    thread.look(True)
    told = thread.record(2)
    assert (told["states"], told["name"], told["user"], told["switches"]) == ("S-", "t", None, None)
    assert told["errors"]["user"] == "the thread ended"


def test_counters_that_vanish_are_not_zero(tmp_path: Path) -> None:
    place = folder_of_thread(tmp_path)
    thread = threads.WatchedThread(f"{tmp_path}/", 7)
    thread.look(True)
    for name in ("status", "schedstat"):
        (place / name).unlink()
    thread.look(True)
    told = thread.record(2)
    assert (told["user"], told["switches"], told["waited_ns"]) == ([7, 7], None, None)
    assert told["waits"] == {"do_epoll_wait": 2}


def test_the_cpu_of_a_thread_is_recorded_in_each_sample(tmp_path: Path) -> None:
    place = folder_of_thread(tmp_path)
    thread = threads.WatchedThread(f"{tmp_path}/", 7)
    for user, cpu in ((7, 4), (9, 4), (9, 4), (12, 1)):
        row = (ROW % (7, b"t")).split()
        row[13], row[38] = b"%d" % user, b"%d" % cpu
        (place / "stat").write_bytes(b" ".join(row))
        thread.look(True)
    thread.skip()
    thread.look_again(5.0)
    told = thread.record(6)
    assert told["ticks"] == [None, 15, 17, 17, 20, 20]
    assert told["cpus"] == [None, 4, 4, 4, 1, 1]
    assert (told["cpu"], told["errors"]["cpu"]) == (None, "it changed its CPU")


STATUS = "State:\t%s\nvoluntary_ctxt_switches:\t%d\nnonvoluntary_ctxt_switches:\t6\n"
NOT_SHOWN = "the kernel does not show this user where it sleeps"


def looked_at(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    states: str,
    statuses: Iterable[str],
    wchans: Iterable[str] = itertools.repeat("0"),
) -> dict[str, Any]:
    """The record of a thread whose status and wchan read so, one after the other."""
    place = folder_of_thread(tmp_path)
    thread = threads.WatchedThread(f"{tmp_path}/", 7)
    read, texts = threads.read_small, {"status": iter(statuses), "wchan": iter(wchans)}

    def read_next(path: str) -> bytes:
        name = path.rpartition("/")[2]
        return next(texts[name]).encode() if name in texts else read(path)

    monkeypatch.setattr(threads, "read_small", read_next)
    for state in states:
        (place / "stat").write_bytes((ROW % (7, b"t")).replace(b") S", b") %c" % ord(state)))
        thread.look(False)
    return thread.record(len(states))


def test_the_sleep_of_a_thread_that_ran_again_is_not_called_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeps_anew = (STATUS % ("S (sleeping)", number) for number in itertools.count())
    told = looked_at(tmp_path, monkeypatch, "RRRSRRRRSRRR", sleeps_anew)
    assert told["waits"] == {} and "waits" not in told["errors"]


def test_a_thread_that_always_runs_again_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = looked_at(tmp_path, monkeypatch, "SSRS", itertools.repeat(STATUS % ("R (running)", 5)))
    assert (told["waits"], told["errors"]["waits"]) == (None, threads.MISSED)


@pytest.mark.parametrize("state", ["S (sleeping)", "D (disk sleep)"])
def test_the_kernel_hides_where_a_thread_sleeps_if_it_sleeps_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    told = looked_at(tmp_path, monkeypatch, "RSSR", itertools.repeat(STATUS % (state, 5)))
    assert (told["waits"], told["errors"]["waits"]) == (None, NOT_SHOWN)


def test_where_a_thread_sleeps_is_read_once_more_if_it_ran_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = itertools.repeat(STATUS % ("R (running)", 5))
    wchans = ["0", "0", "anon_pipe_read", "0", "fuse_get_req"]
    told = looked_at(tmp_path, monkeypatch, "SRS", runs, wchans)
    assert told["waits"] == {"anon_pipe_read": 1, "fuse_get_req": 1}


def test_a_thread_that_ends_during_a_look_is_not_hidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended() -> Iterator[str]:
        raise ProcessLookupError(3, "No such process")
        yield ""

    told = looked_at(tmp_path, monkeypatch, "RRS", (), ended())
    assert "waits" not in told["errors"]


class Program:
    """A Python program that waits for a line, and works on."""

    def __init__(self, text: str) -> None:
        command = [sys.executable, "-c", f"print('ready', flush=True)\n{text}"]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.hear()

    def hear(self) -> None:
        """Wait until it is ready."""
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"

    def say(self) -> None:
        """Give it the line that it waits for."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def go_on(self) -> None:
        """Let it work until it is ready again."""
        self.say()
        self.hear()

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def program() -> Iterator[Callable[[str], Program]]:
    started: list[Program] = []

    def start(text: str) -> Program:
        started.append(Program(text))
        return started[-1]

    yield start
    for each in started:
        each.end()


def test_a_process_and_its_child_are_watched(program: Callable[[str], Program]) -> None:
    text = "import subprocess\nsubprocess.run(['sleep', '100'], stdout=subprocess.DEVNULL)"
    one = program(text)
    pid = one.process.pid
    wait_for(lambda: any(sleeps(child) for child in children_of(pid)))
    (child,) = children_of(pid)
    found = collected(request({pid: [1]}))
    assert found.complete is True
    assert found.processes is not None
    assert [(each.pid, each.gpus) for each in found.processes] == [(pid, (1,)), (child, ())]
    assert found.processes[0].uid == os.getuid()
    assert found.processes[0].threads_total == len(found.processes[0].threads) == 1
    assert set(found.processes[1].threads[0].states) <= {"S", "-"}
    subprocess.run(["kill", str(child)], check=True)


def test_a_process_that_exits_keeps_its_last_counts(
    program: Callable[[str], Program],
) -> None:
    one = program("input()")
    watched = process_activity.WatchedProcess("/", one.process.pid, [0])
    watched.count(0.0)
    watched.find_threads(10)
    for thread in watched.threads:
        thread.look(True)
    one.end()
    watched.count(7.0)
    for thread in watched.threads:
        thread.look(True, 7.0)
    told = watched.to_record(2)
    assert (told["seen_s"], told["ended_s"]) == (0.0, 7.0)
    assert None not in (told["user"], told["read_b"], told["command"])
    assert told["threads"][0]["user"] is None, "it was looked at once"
    assert told["errors"]["stack"] == "it ended"


def test_another_process_with_the_same_pid_is_not_counted(tmp_path: Path) -> None:
    place = tmp_path / "proc/7"
    place.mkdir(parents=True)
    (place / "stat").write_bytes(ROW % (7, b"old"))
    watched = process_activity.WatchedProcess(str(tmp_path.resolve()), 7, [0])
    watched.count()
    (place / "stat").write_bytes((ROW % (7000, b"new")).replace(b" 99 ", b" 555 "))
    watched.count(3.0)
    told = watched.to_record(2)
    assert (told["user"], told["command"], told["ended_s"]) == ([7, 7], "old", 3.0)
    assert told["errors"]["read_b"]
    assert watched.heir == 1


def processes_file(root: Path, pid: int, parent: int, started: int) -> None:
    place = root / f"proc/{pid}"
    place.mkdir(parents=True, exist_ok=True)
    row = (ROW % (pid, b"w")).replace(b" S 1 ", b" S %d " % parent)
    (place / "stat").write_bytes(row.replace(b" 99 ", b" %d " % started))


@pytest.mark.parametrize(("parent", "left_out"), [(7, 1), (1, 0)])
def test_a_descendant_that_reused_the_pid_of_a_process_is_reported(
    tmp_path: Path, parent: int, left_out: int
) -> None:
    processes_file(tmp_path, 7, 1, 99)
    processes_file(tmp_path, 8, 7, 99)
    gpus = {"gpu": {"data": {"gpus": [{"index": 0, "processes": [{"pid": 7}]}]}}}
    watched = process_activity.Watched(str(tmp_path.resolve()), gpus)
    for process in watched.processes:
        process.count(0.0)
    processes_file(tmp_path, 8, parent, 555)
    for process in watched.processes:
        process.count(1.0)
    assert [each.ended_s for each in watched.processes] == [None, 1.0]
    assert watched.heirs(watched.processes) == left_out


WORK = """
import os, sys, threading, time
def burn():
    end = time.thread_time() + 0.3
    while time.thread_time() < end: sum(range(1000))
def ready():
    print("ready", flush=True)
"""
GENERATIONS = (
    WORK
    + """
input()
if os.fork() == 0:
    burn()
    ready()
    input()  # it ends once it was seen
    os._exit(0)
os.wait()
if os.fork() == 0:
    code = "import time; print('ready', flush=True); time.sleep(100)"
    os.execv(sys.executable, [sys.executable, "-c", code])
os.wait()
"""
)
POOL = (
    WORK
    + """
gate, burnt = threading.Event(), threading.Semaphore(0)
def work():
    gate.wait()
    burn()
    burnt.release()
    time.sleep(100)
for _ in range(3): threading.Thread(target=work).start()
input()
gate.set()
threading.Thread(target=work).start()
for _ in range(4): burnt.acquire()
ready()
time.sleep(100)
"""
)
BECOMES = (
    WORK
    + """
input()
burn()
os.execv("/bin/sleep", ["sleep", "100"])
"""
)


class SteppedWatch(watch.Watch):
    """Looks that wait for steps instead of a clock: the first before all steps, one after each. A
    second passes between two of them, and none of them lacks CPU time."""

    steps: Sequence[Callable[[], object]] = ()

    def looks(self) -> Iterator[float]:
        for number, step in enumerate((lambda: None, *self.steps)):
            step()
            self.times.append(float(number))
            self.is_last = number == len(self.steps)
            yield self.times[-1]

    def spare_s(self) -> float:
        return 1.0


@pytest.fixture
def watched_between(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ProcessActivities]:
    def collect(one: Program, *steps: Callable[[], object]) -> ProcessActivities:
        monkeypatch.setattr(SteppedWatch, "steps", steps)
        monkeypatch.setattr(process_activity, "Watch", SteppedWatch)
        return collected(request({one.process.pid: [0]}))

    return collect


def nothing() -> None:
    """A step at which the program does nothing."""


def test_new_child_processes_are_watched_from_their_start(
    program: Callable[[str], Program], watched_between: Callable[..., ProcessActivities]
) -> None:
    one = program(GENERATIONS)
    found = watched_between(one, one.go_on, one.go_on, nothing)
    assert found.processes is not None
    root, *helpers = found.processes
    assert root.born_s is None and root.children_user is not None
    assert root.children_user[1] - root.children_user[0] >= 15, "the first one was waited for"
    alive = [each for each in helpers if each.ended_s is None]
    assert [each.parent for each in alive] == [root.pid]
    assert alive[0].born_s and alive[0].threads and alive[0].user and alive[0].user[0] == 0
    assert alive[0].threads[0].born_s and alive[0].threads[0].user
    assert (found.born, found.ended) == (2, 1)
    subprocess.run(["kill", str(alive[0].pid)], check=True)


def test_a_pool_that_begins_idle_is_followed_once_it_is_hot(
    program: Callable[[str], Program], watched_between: Callable[..., ProcessActivities]
) -> None:
    one = program(POOL)
    found = watched_between(one, nothing, one.go_on, nothing, nothing, nothing)
    assert found.processes is not None
    threads = found.processes[0].threads or ()
    hot = [each for each in threads if each.ticks and (each.ticks[-1] or 0) >= 20]
    assert len(hot) >= 3 and len(threads) == 5
    looked = [len(each.states.replace("-", "")) for each in hot if each.states]
    assert min(looked) > 3, "not at the first and the last look only"


def test_a_process_that_becomes_another_program_keeps_its_counts(
    program: Callable[[str], Program], watched_between: Callable[..., ProcessActivities]
) -> None:
    one = program(BECOMES)

    def becomes_sleep() -> None:
        one.say()
        wait_for(lambda: sleeps(one.process.pid))

    found = watched_between(one, becomes_sleep)
    assert found.processes is not None
    (process,) = found.processes
    assert (process.command, process.command_before) == ("sleep", Path(sys.executable).name)
    assert process.user and process.user[1] - process.user[0] >= 15 and process.ended_s is None


def test_no_process_is_named_for_an_invisible_gpu() -> None:
    found = collected(request({4_000_000: [0]}))
    assert (found.complete, found.processes) == (False, ())


def test_more_threads_than_are_watched(
    program: Callable[[str], Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that ran most are."""
    text = (
        "import threading, time\nmay = threading.Event()\n"
        "for _ in range(39): threading.Thread(target=may.wait, daemon=True).start()\n"
        "def spin():\n"
        "    while time.thread_time() < 0.1: sum(range(1000))\n"  # which lets other threads run
        "    print(threading.get_native_id(), flush=True)\n"
        "    while True: sum(range(1000))\n"
        "threading.Thread(target=spin, daemon=True).start()\nmay.wait()"
    )
    one = program(text)
    assert one.process.stdout is not None
    hot = int(one.process.stdout.readline())
    monkeypatch.setattr(process_activity, "THREADS", 10)
    found = collected(request({one.process.pid: [0]}))
    assert found.complete is False
    assert found.processes is not None
    process = found.processes[0]
    assert process.threads_total == 41
    tids = [thread.tid for thread in process.threads or ()]
    assert len(tids) == 10 and {hot, one.process.pid} <= set(tids)
    assert process.errors["threads"] == "31 of its threads were not watched"


def test_descendants_are_listed_after_their_parents_even_in_a_cycle() -> None:
    assert process_activity.with_descendants([5], {5: 1, 9: 5, 7: 9, 8: 1}) == [5, 9, 7]
    assert process_activity.with_descendants([5], {5: 6, 6: 5}) == [5, 6]


def test_pages_of_numa_maps() -> None:
    text = (
        "7f0 default anon=3 N0=2 N1=1 kernelpagesize_kB=4\n7f1 bind:1 N1=2 kernelpagesize_kB=2048\n"
    )
    assert process_activity.numa_pages(text) == {"0": 2, "1": 1 + 2 * 512}
