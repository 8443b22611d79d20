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
from typing import Any, Generic, NamedTuple, TypeVar

Job = TypeVar("Job")
JobResult = TypeVar("JobResult")
Task = Callable[[Job], JobResult]
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
    workers: Workers[tuple[int, Job], JobResult] = Workers(
        lambda: _of_numbered(make_task()),
        min(processes, len(jobs)),
        on_killed=lambda killed, job: on_killed(killed, job[1]),
        lost_result=lambda job: lost_result(job[1]),
    )
    todo, done, ahead = deque(enumerate(jobs)), dict[int, JobResult](), AHEAD * processes
    try:
        for number in range(len(jobs)):
            while number not in done:
                while todo and todo[0][0] < number + ahead:
                    workers.put(todo.popleft())
                done |= {job[0]: result for job, result in workers.take(wait=True)}
            yield done.pop(number)
    finally:
        workers.end()


def _of_numbered(task: Task[Job, JobResult]) -> Task[tuple[int, Job], JobResult]:
    return lambda job: task(job[1])


class _Process(Generic[Job, JobResult]):
    """A forked process, and its job; None: it waits for one."""

    def __init__(
        self, make_task: Callable[[], Task[Job, JobResult]], others: Sequence[Any]
    ) -> None:
        """`others`: the pipes to the other processes. The new process closes its copies of them,
        so that each process ends with this one."""
        from multiprocessing import get_context  # a check of one host does not pay for it

        context = get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.job: Job | None = None
        self.tries = 0  # of its job
        ours = (*others, self.pipe)
        self.child = context.Process(target=_serve, args=(make_task, theirs, ours), daemon=True)
        self.child.start()
        theirs.close()

    def send(self, job: Job, tries: int) -> None:
        self.job, self.tries = job, tries
        with suppress(BrokenPipeError, ConnectionResetError):  # `Workers.take` notices that
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


class Workers(Generic[Job, JobResult]):
    """Forked processes that do one job each at a time; results come as they are done.

    See `spread`. No job may be None. `end` ends the processes.
    """

    def __init__(
        self,
        make_task: Callable[[], Task[Job, JobResult]],
        processes: int,
        *,
        on_killed: Callable[[KilledProcess, Job], None],
        lost_result: Callable[[Job], JobResult],
    ) -> None:
        self._make_task = make_task
        self._on_killed, self._lost_result = on_killed, lost_result
        self._waiting: deque[tuple[Job, int]] = deque()  # and how often it was tried
        self._processes: list[_Process[Job, JobResult]] = []
        for _ in range(processes):
            self._start()

    def put(self, job: Job) -> None:
        """Let the next idle process do this job."""
        self._waiting.append((job, 0))
        self._send_jobs()

    @property
    def unfinished(self) -> int:
        """The jobs whose results are still to be taken."""
        busy = sum(process.job is not None for process in self._processes)
        return len(self._waiting) + busy

    @property
    def pipes(self) -> list[Any]:
        """One of them is ready to be read when there is something to take."""
        return [process.pipe for process in self._processes]

    def take(self, *, wait: bool) -> list[tuple[Job, JobResult]]:
        """The results that are there, each with its job; waits for one or for the end of a process.

        Raises what a job raises."""
        from multiprocessing import connection

        results: list[tuple[Job, JobResult]] = []
        by_pipe = {process.pipe: process for process in self._processes}
        for pipe in connection.wait(list(by_pipe), None if wait else 0):
            process = by_pipe[pipe]  # type: ignore[index]
            try:
                result, error = process.pipe.recv()
            except (EOFError, ConnectionResetError):
                results += self._replace(process)
                continue
            if error is not None:
                raise error
            if process.job is not None:
                results.append((process.job, result))
            process.job = None
        self._send_jobs()
        return results

    def end(self) -> None:
        for process in self._processes:
            process.end()

    def _start(self) -> None:
        self._processes.append(_Process(self._make_task, self.pipes))

    def _send_jobs(self) -> None:
        for process in self._processes:
            if process.job is None and self._waiting:
                process.send(*self._waiting.popleft())

    def _replace(self, process: _Process[Job, JobResult]) -> list[tuple[Job, JobResult]]:
        """Start another process; returns the result of a job that is not tried again."""
        job, tries = process.job, process.tries + 1
        pid, why = process.child.pid or 0, process.exit_text
        self._processes.remove(process)
        process.end()
        self._start()
        if job is None:
            return []
        again = tries < TRIES
        self._on_killed(KilledProcess(pid, why, again), job)
        if not again:
            return [(job, self._lost_result(job))]
        self._waiting.appendleft((job, tries))
        return []
