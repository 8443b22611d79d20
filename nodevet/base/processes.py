"""Work spread over the cores of this machine, by processes that share what was read before them.

Their results come in the order of the work. A process that is killed costs nothing: another one
does what it had, and who started all this is told.
"""

import gc
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Generator, Sequence
from multiprocessing import connection, get_context
from typing import Any, Generic, NamedTuple, TypeVar

Job = TypeVar("Job")
Done = TypeVar("Done")
Task = Callable[[Job], Done]
NOTHING = -1
TRIES = 2  # of a job whose process is killed
AHEAD = 3  # jobs of each process whose results wait for an earlier one


class Killed(NamedTuple):
    """A process that ended before its work did."""

    pid: int
    why: str
    again: bool  # another one does it


def cores() -> int:
    """That this process may use; 1 where work cannot be spread."""
    if sys.platform != "linux":
        return 1
    return len(os.sched_getaffinity(0))


def batches(hosts: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """Jobs of so many hosts each."""
    return [tuple(hosts[at : at + size]) for at in range(0, len(hosts), size)]


def spread(
    begin: Callable[[], Task[Job, Done]],
    jobs: Sequence[Job],
    *,
    processes: int,
    killed: Callable[[Killed, Job], None],
    lost: Callable[[Job], Done],
) -> Generator[Done]:
    """What comes of every job, in their order; in this process alone if it is one.

    `begin` makes of each process what does its jobs. `killed` hears of one that was; what its job
    comes to if that happens again is `lost`. What a job raises is raised here.
    """
    if processes < 2 or len(jobs) < 2:
        yield from map(begin(), jobs)
        return
    pool = _Pool(begin, jobs, processes, killed, lost)
    try:
        yield from pool.results()
    finally:
        pool.end()


class _Process(Generic[Job, Done]):
    """One of them, and which job it has."""

    def __init__(self, begin: Callable[[], Task[Job, Done]], others: Sequence[Any]) -> None:
        """`others`: the pipes to the other processes, of which it keeps no copy, so that each of
        them ends with this process."""
        context = get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.job = NOTHING  # its number
        ours = (*others, self.pipe)
        self.child = context.Process(target=_serve, args=(begin, theirs, ours), daemon=True)
        self.child.start()
        theirs.close()

    def give(self, number: int, job: Job) -> None:
        self.job = number
        self.pipe.send(job)

    def end(self) -> None:
        self.pipe.close()
        self.child.terminate()
        self.child.join()

    @property
    def why(self) -> str:
        """How it ended."""
        self.child.join()
        code = self.child.exitcode or 0
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with {code}"


def _serve(begin: Callable[[], Task[Any, Any]], pipe: Any, parents: Sequence[Any]) -> None:
    """Do what is asked for until nobody asks. An interrupt is for who started this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for each in parents:
        each.close()
    gc.freeze()  # what is shared is never looked through, nor copied by that
    try:
        task = begin()
        while True:
            job = pipe.recv()
            pipe.send((task(job), None))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except Exception as error:
        pipe.send((None, error))


class _Pool(Generic[Job, Done]):
    def __init__(
        self,
        begin: Callable[[], Task[Job, Done]],
        jobs: Sequence[Job],
        processes: int,
        killed: Callable[[Killed, Job], None],
        lost: Callable[[Job], Done],
    ) -> None:
        self._begin, self._jobs, self._killed, self._lost = begin, jobs, killed, lost
        self._left = deque(range(len(jobs)))
        self._tries = [0] * len(jobs)
        self._done: dict[int, Done] = {}
        self._next = 0
        self._ahead = AHEAD * processes
        many = min(processes, len(jobs))
        self._processes: list[_Process[Job, Done]] = []
        for _ in range(many):
            self._start()

    def results(self) -> Generator[Done]:
        while self._next < len(self._jobs):
            self._hand_out()
            self._hear()
            while self._next in self._done:
                yield self._done.pop(self._next)
                self._next += 1

    def end(self) -> None:
        for process in self._processes:
            process.end()

    def _start(self) -> None:
        others = [process.pipe for process in self._processes]
        self._processes.append(_Process(self._begin, others))

    def _hand_out(self) -> None:
        for process in self._processes:
            if process.job == NOTHING and self._left and self._left[0] < self._next + self._ahead:
                number = self._left.popleft()
                try:
                    process.give(number, self._jobs[number])
                except (BrokenPipeError, ConnectionResetError):
                    continue  # it is dead, which its pipe says, too

    def _hear(self) -> None:
        busy = {process.pipe: process for process in self._processes if process.job != NOTHING}
        for pipe in connection.wait(list(busy)):
            process = busy[pipe]  # type: ignore[index]
            try:
                done, error = process.pipe.recv()
            except (EOFError, ConnectionResetError):
                self._gone(process)
                continue
            if error is not None:
                raise error
            self._done[process.job] = done
            process.job = NOTHING

    def _gone(self, process: _Process[Job, Done]) -> None:
        number = process.job
        pid, why = process.child.pid or 0, process.why
        self._processes.remove(process)
        process.end()
        self._tries[number] += 1
        again = self._tries[number] < TRIES
        self._killed(Killed(pid, why, again), self._jobs[number])
        if again:
            self._left.appendleft(number)
        else:
            self._done[number] = self._lost(self._jobs[number])
        self._start()
