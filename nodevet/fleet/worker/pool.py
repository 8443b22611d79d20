"""A relay whose shards are tasks of a Dask pool: `pool.py ADDRESS [RESOURCE]`, orders in.

Answers come host by host, through a queue of the pool's. If a worker is lost, another task visits
those hosts that it had not answered for. The relay's own process keeps Dask's threads out of the
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
from nodevet.fleet.protocol.framing import BatchOrder, Beat, FrameReader, LostHost
from nodevet.fleet.protocol.greeting import greeting, write_greeting
from nodevet.fleet.worker import task
from nodevet.fleet.worker.relay import LONELY, READ, STDIN, lost, write

CONNECT = 10  # seconds
LEAST_SLOTS = 16  # orders that may wait: pools grow with what waits
TICK = 1.0
TRIES = 3  # workers that one host may be lost with

MALFORMED = "a worker of the pool wrote a malformed answer"

Pairs = Iterable[tuple[int, bytes]]  # a host's number, and its frame


@dataclass
class PoolTask:
    """One task of the pool, and the hosts that it has yet to answer for."""

    future: Any
    order: BatchOrder
    left: set[int]
    tries: int


class DaskRelay:
    """The tasks that were asked of a pool, and the two pipes to the one who gives orders."""

    def __init__(self, client: Any, resource: str) -> None:
        from distributed import Queue

        self._client = client
        self._resources = {resource: 1} if resource else None
        self._reader = FrameReader(framing.INPUT_LIMIT)
        self._tasks: dict[str, PoolTask] = {}
        self._answers: Any = Queue(client=client, maxsize=task.MOST_WAITING)  # type: ignore[no-untyped-call]
        self._task_of: dict[int, str] = {}  # by host
        self._came: queue.SimpleQueue[Pairs | str | FleetError] = queue.SimpleQueue()
        self._room = threading.Semaphore(task.MOST_WAITING)
        self._ids = count()
        self._wakes, self._wake = os.pipe()
        self._heard = time.monotonic()
        self._over = False

    def serve(self) -> None:
        """Until the input ends. Raises FrameError, BrokenPipeError and FleetError."""
        self._meet()
        threading.Thread(target=self._listen, daemon=True).start()
        while self._hear():
            while not self._came.empty():
                self._take(self._came.get())
            if time.monotonic() - self._heard > LONELY:
                raise FleetError("nothing was heard of the controller")
            if self._client.status not in ("running", "connecting"):
                raise FleetError("the scheduler is gone")

    def end(self) -> None:
        """What is not done is not wanted any more."""
        self._over = True
        self._client.cancel([each.future for each in self._tasks.values()], force=True)
        self._answers.close()

    def _meet(self) -> None:
        """Greet for the pool, unless one of its workers is unfit. Raises FleetError."""
        here = greeting()
        told = self._client.run(task.fit, here, on_error="return")
        for worker, why in told.items():
            if why:
                raise FleetError(f"worker {brief(worker)} {_in_words(why)}")
        slots = sum(self._client.nthreads().values())
        write(write_greeting(structs.replace(here, cpus=max(LEAST_SLOTS, slots))))

    def _hear(self) -> bool:
        ready, _, _ = select.select([STDIN, self._wakes], [], [], TICK)
        if self._wakes in ready:
            os.read(self._wakes, READ)
        if STDIN in ready:
            chunk = os.read(STDIN, READ)
            if not chunk:
                return False
            self._heard = time.monotonic()
            for frame in self._reader.take(chunk):
                if framing.read_notice(frame) is not None:
                    write(framing.write_notice(Beat()))
                else:
                    self._begin(framing.read_order(frame))
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
        left = {each.number for each in order.targets}
        self._tasks[key] = PoolTask(future, order, left, tries)
        self._task_of.update(dict.fromkeys(left, key))
        future.add_done_callback(self._note)

    def _note(self, future: Any) -> None:
        """Called by a thread of the client's."""
        self._came.put(future.key)
        os.write(self._wake, b"\n")

    def _listen(self) -> None:
        """A thread: what tasks say, as it comes, and no more than has room."""
        while not self._over:
            self._room.acquire()
            told: Pairs | FleetError
            try:
                told = _pairs(self._answers.get())
            except Exception as error:  # whatever it is, nothing is heard any more
                told = FleetError(f"the scheduler is gone: {_in_words(error)}")
            self._came.put(told)
            os.write(self._wake, b"\n")
            if isinstance(told, FleetError):
                return

    def _take(self, told: Pairs | str | FleetError) -> None:
        """Raises FleetError."""
        if isinstance(told, FleetError):
            raise told
        if isinstance(told, str):
            self._ended(told)
        else:
            self._room.release()
            self._answer(told)

    def _answer(self, pairs: Pairs) -> None:
        """Write the frames of hosts that were not answered for yet."""
        for number, frame in pairs:
            key = self._task_of.pop(number, None)
            if key is None:
                continue
            answered = _is_answer(number, frame, self._tasks[key].order.body_limit)
            write(frame if answered else lost(number, MALFORMED))
            left = self._tasks[key].left
            left.discard(number)
            if not left:
                self._tasks.pop(key).future.release()

    def _ended(self, key: str) -> None:
        """A task is over; one that visited its hosts has said what came of each, or will have.

        Raises FleetError.
        """
        asked = self._tasks.get(key)
        if asked is None or asked.future.status == "finished":
            return
        if asked.future.status == "cancelled":
            raise FleetError("the scheduler is gone, or dropped the task")
        error = asked.future.exception(timeout=CONNECT)
        if not isinstance(error, task.BegunBeforeError):
            self._lose(asked, _in_words(error))
        elif asked.tries == TRIES:
            self._lose(asked, f"was being visited by {TRIES} workers of the pool that were lost")
        else:
            del self._tasks[key]
            targets = tuple(one for one in asked.order.targets if one.number in asked.left)
            self._begin(replace(asked.order, targets=targets), asked.tries + 1)

    def _lose(self, asked: PoolTask, why: str) -> None:
        self._answer([(number, lost(number, why)) for number in asked.left])


def _pairs(told: object) -> Pairs | FleetError:
    """What a task says, if it has the form of that."""
    try:
        return typed.convert(told, list[tuple[int, bytes]])
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


def _in_words(error: object) -> str:
    if isinstance(error, ModuleNotFoundError):
        return f"has no {error.name}: install nodevet there"
    kind = f"{type(error).__name__}: " if isinstance(error, Exception) else ""
    return brief(f"{kind}{error}", 300)


def main() -> int:
    """Its exit code; what went wrong is told in a frame behind the greeting."""
    address, resource = sys.argv[1], "".join(sys.argv[2:3])
    logging.disable(logging.CRITICAL)
    try:
        from distributed import Client
    except ImportError as error:
        return refuse(f"{error.name} is not installed: pip install 'nodevet[dask]'")
    try:
        client: Any = Client(address, timeout=CONNECT, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError, TypeError) as error:
        return refuse(f"no Dask scheduler at {address}: {_in_words(error)}")
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
