"""A relay whose shards are tasks of a Dask pool: `pool.py ADDRESS [RESOURCE]`, orders on stdin.

Answers arrive host by host through a queue of the pool. If a worker is lost, another task visits
its unanswered hosts. The relay is a process of its own, to keep Dask's threads out of the
controller.
"""

import logging
import os
import queue
import select
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import msgspec
from msgspec import structs

from nodevet.base import typed
from nodevet.base.printable import brief
from nodevet.fleet.model import FleetError
from nodevet.fleet.protocol import framing
from nodevet.fleet.protocol.framing import BatchOrder, FrameReader, LostHost
from nodevet.fleet.protocol.greeting import greeting, write_greeting
from nodevet.fleet.worker import task
from nodevet.fleet.worker.relay import LONELY, READ, STDIN, lost_frame, orders, write

CONNECT = 10  # seconds
LEAST_SLOTS = 16  # orders that may wait: pools grow with the number of waiting tasks
TICK = 1.0
TRIES = 3  # workers that may be lost with one host

MALFORMED = "a worker of the pool wrote a malformed answer"

Pairs = Iterable[tuple[int, bytes]]  # a host's number and its frame


@dataclass
class PoolTask:
    """One task of the pool, and its unanswered hosts."""

    future: Any
    order: BatchOrder
    unanswered: set[int]
    tries: int


class DaskRelay:
    """The tasks in a pool, and the pipes to the controller."""

    def __init__(self, client: Any, resource: str) -> None:
        from distributed import Queue

        self._client = client
        self._resources = {resource: 1} if resource else None
        self._reader = FrameReader(framing.INPUT_LIMIT)
        self._tasks: dict[str, PoolTask] = {}
        self._answers: Any = Queue(client=client, maxsize=task.MOST_WAITING)  # type: ignore[no-untyped-call]
        self._task_of: dict[int, str] = {}  # by host
        self._inbox: queue.SimpleQueue[Pairs | str | FleetError] = queue.SimpleQueue()
        self._room = threading.Semaphore(task.MOST_WAITING)
        self._ids = count()
        self._wake_in, self._wake_out = os.pipe()
        self._last_heard = time.monotonic()
        self._over = False

    def serve(self) -> None:
        """Serve until the input ends. Raises FrameError, BrokenPipeError and FleetError."""
        self._greet()
        threading.Thread(target=self._listen, daemon=True).start()
        while self._receive():
            while not self._inbox.empty():
                self._take(self._inbox.get())
            if time.monotonic() - self._last_heard > LONELY:
                raise FleetError("the controller is silent")
            if self._client.status not in ("running", "connecting"):
                raise FleetError("the scheduler is gone")

    def end(self) -> None:
        """Cancel the unfinished tasks."""
        self._over = True
        self._client.cancel([pool_task.future for pool_task in self._tasks.values()], force=True)
        self._answers.close()

    def _greet(self) -> None:
        """Greet for the pool, unless one of its workers is unfit. Raises FleetError."""
        own = greeting()
        reasons = self._client.run(task.unfit_here, own, on_error="return")
        for worker, why in reasons.items():
            if why:
                raise FleetError(f"worker {brief(worker)} {_error_text(why)}")
        slots = sum(self._client.nthreads().values())
        write(write_greeting(structs.replace(own, cpus=max(LEAST_SLOTS, slots))))

    def _receive(self) -> bool:
        ready, _, _ = select.select([STDIN, self._wake_in], [], [], TICK)
        if self._wake_in in ready:
            os.read(self._wake_in, READ)
        if STDIN in ready:
            chunk = os.read(STDIN, READ)
            if not chunk:
                return False
            self._last_heard = time.monotonic()
            for order in orders(self._reader, chunk):
                self._begin(order)
        return True

    def _begin(self, order: BatchOrder, tries: int = 1) -> None:
        key = f"nodevet-{os.getpid()}-{os.urandom(4).hex()}-{next(self._ids)}"
        future = self._client.submit(
            task.visit_shard,
            framing.write_order(order),
            greeting(),
            self._answers.name,
            key=key,
            pure=False,
            resources=self._resources,
        )
        numbers = {target.number for target in order.targets}
        self._tasks[key] = PoolTask(future, order, numbers, tries)
        self._task_of.update(dict.fromkeys(numbers, key))
        future.add_done_callback(self._note)

    def _note(self, future: Any) -> None:
        """Note the end of a task; runs in a thread of the client."""
        self._inbox.put(future.key)
        os.write(self._wake_out, b"\n")

    def _listen(self) -> None:
        """Receive messages of tasks as they come, as long as there is room; runs in a thread."""
        while not self._over:
            self._room.acquire()
            item: Pairs | FleetError
            try:
                item = _pairs(self._answers.get())
            except Exception as error:  # any error ends the queue
                item = FleetError(f"the scheduler is gone: {_error_text(error)}")
            self._inbox.put(item)
            os.write(self._wake_out, b"\n")
            if isinstance(item, FleetError):
                return

    def _take(self, item: Pairs | str | FleetError) -> None:
        """Raises FleetError."""
        if isinstance(item, FleetError):
            raise item
        if isinstance(item, str):
            self._finish_task(item)
        else:
            self._room.release()
            self._answer(item)

    def _answer(self, pairs: Pairs) -> None:
        """Write the frames of unanswered hosts."""
        for number, frame in pairs:
            key = self._task_of.pop(number, None)
            if key is None:
                continue
            is_valid = _is_answer(number, frame, self._tasks[key].order.body_limit)
            write(frame if is_valid else lost_frame(number, MALFORMED))
            numbers = self._tasks[key].unanswered
            numbers.discard(number)
            if not numbers:
                self._tasks.pop(key).future.release()

    def _finish_task(self, key: str) -> None:
        """Handle the end of a task. A finished one has sent an answer for each host, or its answers
        are on their way. Raises FleetError."""
        pool_task = self._tasks.get(key)
        if pool_task is None or pool_task.future.status == "finished":
            return
        if pool_task.future.status == "cancelled":
            raise FleetError("the scheduler is gone, or dropped the task")
        error = pool_task.future.exception(timeout=CONNECT)
        if not isinstance(error, task.BegunBeforeError):
            self._lose(pool_task, _error_text(error))
        elif pool_task.tries == TRIES:
            self._lose(pool_task, f"was visited by {TRIES} workers of the pool that were lost")
        else:
            del self._tasks[key]
            order, numbers = pool_task.order, pool_task.unanswered
            targets = tuple(target for target in order.targets if target.number in numbers)
            self._begin(replace(order, targets=targets), pool_task.tries + 1)

    def _lose(self, pool_task: PoolTask, why: str) -> None:
        self._answer([(number, lost_frame(number, why)) for number in pool_task.unanswered])


def _pairs(answer: object) -> Pairs | FleetError:
    """A task's message, or the error if it is malformed."""
    try:
        return typed.convert(answer, list[tuple[int, bytes]])
    except msgspec.ValidationError as error:
        return FleetError(f"{MALFORMED}: {brief(error, 200)}")


def _is_answer(number: int, text: bytes, limit: int) -> bool:
    """Whether a frame is an answer for this host."""
    try:
        frame = framing.read_frame(text, limit)
        notice = framing.read_notice(frame)
        if notice is None:
            return framing.read_outcome(frame)[0] == number
    except framing.FrameError:
        return False
    return isinstance(notice, LostHost) and notice.lost == number


def _error_text(error: object) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"has no {error.name}: install nodevet there"
    kind = f"{type(error).__name__}: " if isinstance(error, Exception) else ""
    return brief(f"{kind}{error}", 300)


def main() -> int:
    """Run the relay; returns the exit code."""
    address, resource = sys.argv[1], "".join(sys.argv[2:3])
    logging.disable(logging.CRITICAL)
    try:
        from distributed import Client
    except ImportError as error:
        return refuse(f"{error.name} is not installed: pip install 'nodevet[dask]'")
    try:
        client: Any = Client(address, timeout=CONNECT, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TypeError) as error:
        return refuse(f"no Dask scheduler at {address}: {_error_text(error)}")
    pool = DaskRelay(client, resource)
    try:
        pool.serve()
    except BrokenPipeError:
        return 1
    except (FleetError, framing.FrameError) as error:
        return refuse(str(error))
    finally:
        pool.end()
        client.close(timeout=5)
    return 0


def refuse(why: str) -> int:
    sys.stderr.write(f"{why}\n")
    sys.stderr.flush()
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
