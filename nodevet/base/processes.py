"""Spread work over the cores of this machine, in forked processes that share what this one read.

Results come in the order of the jobs. If a process is killed, another one takes its job, and the
caller's `on_killed` is called.
"""

import gc
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from multiprocessing import connection, get_context
from typing import Any, Generic, NamedTuple, TypeVar

Job = TypeVar("Job")
JobResult = TypeVar("JobResult")
Task = Callable[[Job], JobResult]
NOTHING = -1
TRIES = 2  # of a job whose process is killed
AHEAD = 3  # jobs of each process whose results wait for an earlier one


class KilledProcess(NamedTuple):
    """A process that ended before its job did."""

    pid: int
    why: str
    again: bool  # another process takes its job


def cores() -> int:
    """The cores that this process may use; 1 if the platform cannot spread work."""
    if sys.platform != "linux":
        return 1
    return len(os.sched_getaffinity(0))


def batches(hosts: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """Jobs of at most `size` hosts each."""
    return [tuple(hosts[at : at + size]) for at in range(0, len(hosts), size)]


def spread(
    make_task: Callable[[], Task[Job, JobResult]],
    jobs: Sequence[Job],
    *,
    processes: int,
    on_killed: Callable[[KilledProcess, Job], None],
    lost_result: Callable[[Job], JobResult],
) -> Generator[JobResult]:
    """The result of every job, in their order; without forking if one process is enough.

    Each process calls `make_task` once, and the task for each job. `on_killed` is called for a
    killed process; a job whose process is killed twice has `lost_result` of it as its result.
    Raises what a job raises.
    """
    if processes < 2 or len(jobs) < 2:
        yield from map(make_task(), jobs)
        return
    pool = _Pool(make_task, jobs, processes, on_killed, lost_result)
    try:
        yield from pool.results()
    finally:
        pool.end()


class _Process(Generic[Job, JobResult]):
    """A forked process, and the number of its job."""

    def __init__(
        self, make_task: Callable[[], Task[Job, JobResult]], others: Sequence[Any]
    ) -> None:
        """`others`: the pipes to the other processes. The new process closes its copies of them,
        so that each process ends with this one."""
        context = get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.job = NOTHING
        ours = (*others, self.pipe)
        self.child = context.Process(target=_serve, args=(make_task, theirs, ours), daemon=True)
        self.child.start()
        theirs.close()

    def send(self, number: int, job: Job) -> None:
        self.job = number
        self.pipe.send(job)

    def end(self) -> None:
        self.pipe.close()
        self.child.terminate()
        self.child.join()

    @property
    def exit_text(self) -> str:
        """How the process ended."""
        self.child.join()
        code = self.child.exitcode or 0
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"


def _serve(make_task: Callable[[], Task[Any, Any]], pipe: Any, inherited: Sequence[Any]) -> None:
    """Do jobs from `pipe` until it closes. An interrupt is for the parent process alone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in inherited:
        other.close()
    gc.freeze()  # a collection would copy the pages shared with the parent
    try:
        task = make_task()
        while True:
            job = pipe.recv()
            pipe.send((task(job), None))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except Exception as error:
        pipe.send((None, error))


class _Pool(Generic[Job, JobResult]):
    def __init__(
        self,
        make_task: Callable[[], Task[Job, JobResult]],
        jobs: Sequence[Job],
        processes: int,
        on_killed: Callable[[KilledProcess, Job], None],
        lost_result: Callable[[Job], JobResult],
    ) -> None:
        self._make_task, self._jobs = make_task, jobs
        self._on_killed, self._lost_result = on_killed, lost_result
        self._waiting = deque(range(len(jobs)))
        self._tries = [0] * len(jobs)
        self._done: dict[int, JobResult] = {}
        self._next = 0
        self._ahead = AHEAD * processes
        self._processes: list[_Process[Job, JobResult]] = []
        for _ in range(min(processes, len(jobs))):
            self._start()

    def results(self) -> Generator[JobResult]:
        while self._next < len(self._jobs):
            self._send_jobs()
            self._receive()
            while self._next in self._done:
                yield self._done.pop(self._next)
                self._next += 1

    def end(self) -> None:
        for process in self._processes:
            process.end()

    def _start(self) -> None:
        others = [process.pipe for process in self._processes]
        self._processes.append(_Process(self._make_task, others))

    def _send_jobs(self) -> None:
        end = self._next + self._ahead
        for process in self._processes:
            if process.job == NOTHING and self._waiting and self._waiting[0] < end:
                number = self._waiting.popleft()
                with suppress(BrokenPipeError, ConnectionResetError):  # _receive notices that
                    process.send(number, self._jobs[number])

    def _receive(self) -> None:
        busy = {process.pipe: process for process in self._processes if process.job != NOTHING}
        for pipe in connection.wait(list(busy)):
            process = busy[pipe]  # type: ignore[index]
            try:
                result, error = process.pipe.recv()
            except (EOFError, ConnectionResetError):
                self._replace(process)
                continue
            if error is not None:
                raise error
            self._done[process.job] = result
            process.job = NOTHING

    def _replace(self, process: _Process[Job, JobResult]) -> None:
        number = process.job
        pid, why = process.child.pid or 0, process.exit_text
        self._processes.remove(process)
        process.end()
        self._tries[number] += 1
        again = self._tries[number] < TRIES
        self._on_killed(KilledProcess(pid, why, again), self._jobs[number])
        if again:
            self._waiting.appendleft(number)
        else:
            self._done[number] = self._lost_result(self._jobs[number])
        self._start()
