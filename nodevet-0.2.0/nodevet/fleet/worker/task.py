"""The task of a Dask worker: run one shard to its end, and put its answers into the pool's queue.

Dask runs a task again if its worker is lost. The second run finds that the task was begun before,
and visits no host: the relay submits another task for the unanswered hosts.
"""

import asyncio
import select
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from typing import Any

from nodevet.fleet.controller.shards import Shard
from nodevet.fleet.model import Visit
from nodevet.fleet.protocol import framing
from nodevet.fleet.protocol.greeting import Greeting, greeting, unfit_reason
from nodevet.fleet.worker.relay import check_paths, lost_host_frame, outcome_frame
from nodevet.model import Host

TICK = 1.0  # seconds between two checks for a cancelled task
FULL = 10.0  # seconds to wait for room in the queue; the scheduler logs each timeout as an error
LATE = (TimeoutError, asyncio.TimeoutError)  # two classes, up to Python 3.10
MOST_WAITING = 64  # messages that the relay has yet to read


class UnfitWorkerError(Exception):
    """This worker cannot visit hosts; the message says why."""


class BegunBeforeError(Exception):
    """The worker that began this task is lost."""


def unfit_here(controller: Greeting) -> str:
    """Why this worker cannot visit hosts for the controller, or ""."""
    return unfit_reason(greeting(), controller)


class Channel:
    """Sends a task's answers to the relay: lists of (host's number, frame)."""

    def __init__(self, queue: str) -> None:
        """Raises BegunBeforeError."""
        from distributed import Event, Queue, get_worker

        self._worker = get_worker()
        self._task = self._worker.get_current_task()
        self._begun_event: Any = Event(self._task)  # type: ignore[no-untyped-call]
        self._begin()
        self._queue: Any = Queue(queue, maxsize=MOST_WAITING)  # type: ignore[no-untyped-call]

    def _begin(self) -> None:
        if self._begun_event.is_set():
            self._begun_event.clear()
            raise BegunBeforeError
        self._begun_event.set()

    @property
    def is_wanted(self) -> bool:
        """Whether the relay still wants this task."""
        task = self._worker.state.tasks.get(self._task)
        return task is None or task.state != "cancelled"

    def put(self, visits: Iterable[Visit], frame: Callable[[Visit], bytes]) -> None:
        """Send answers; waits for room as long as the task is wanted."""
        pairs = [(int(visit.host), frame(visit)) for visit in visits]
        while pairs and self.is_wanted:
            with suppress(*LATE):
                self._queue.put(pairs, timeout=FULL)
                return

    def close(self) -> None:
        self._begun_event.clear()
        self._queue.close()


def visit_shard(text: bytes, controller: Greeting, queue: str) -> None:
    """Visit the hosts of an order, and put a frame for each into the queue as it is done.

    Raises UnfitWorkerError, FleetError and BegunBeforeError.
    """
    if why := unfit_here(controller):
        raise UnfitWorkerError(f"a worker {why}")
    order = check_paths(framing.read_order(framing.read_frame(text)))
    hosts = {target.number: Host(name=str(target.number)) for target in order.targets}
    with closing(Channel(queue)) as channel:
        _visit_all(Shard(order, hosts), channel)


def _visit_all(shard: Shard, channel: Channel) -> None:
    late = False
    try:
        while channel.is_wanted:
            late = shard.due <= time.monotonic()
            if late:
                break
            if not select.select([shard.child.output], [], [], TICK)[0]:
                continue
            chunk = shard.child.read()
            if not chunk:
                break
            channel.put(shard.take(chunk), outcome_frame)
    finally:
        if late or not channel.is_wanted:
            shard.child.kill()
        ending = shard.child.end()
    channel.put(shard.unfinished(ending, late=late), lost_host_frame)
