"""What a Dask worker runs: one shard, to its end; what it finds goes into a queue of the pool's.

Dask runs a task again if its worker is lost. That run finds that the task was begun before, and
visits no host: the relay asks for the hosts that are left by another task.
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
from nodevet.fleet.protocol.greeting import Greeting, greeting, unfit
from nodevet.fleet.worker.relay import at_home, lost_host, outcome, usable
from nodevet.model import Host

TICK = 1.0  # seconds between two looks at whether it is still wanted
FULL = 10.0  # seconds that a queue may be full, which the scheduler notes as an error in its log
LATE = (TimeoutError, asyncio.TimeoutError)  # two, up to Python 3.10
MOST_WAITING = 64  # messages that the relay has yet to read; each is what was read at once


class UnfitWorkerError(Exception):
    """This worker cannot visit hosts; the message says why."""


class BegunBeforeError(Exception):
    """The worker that had begun with this task is lost."""


def fit(controller: Greeting) -> str:
    """Why this worker cannot visit hosts for the controller; empty if it can."""
    return unfit(greeting(), controller)


class Channel:
    """The way of a task's answers to the relay: lists of (host's number, frame)."""

    def __init__(self, queue: str) -> None:
        """Raises BegunBeforeError."""
        from distributed import Event, Queue, get_worker

        self._worker = get_worker()
        self._task = self._worker.get_current_task()
        self._begun: Any = Event(self._task)  # type: ignore[no-untyped-call]
        self._begin()
        self._queue: Any = Queue(queue, maxsize=MOST_WAITING)  # type: ignore[no-untyped-call]

    def _begin(self) -> None:
        if self._begun.is_set():
            self._begun.clear()
            raise BegunBeforeError
        self._begun.set()

    @property
    def wanted(self) -> bool:
        """Whether the relay still wants this task."""
        task = self._worker.state.tasks.get(self._task)
        return task is None or task.state != "cancelled"

    def put(self, visits: Iterable[Visit], frame: Callable[[Visit], bytes]) -> None:
        """Waits for room, as long as the task is wanted."""
        pairs = [(int(visit.host), frame(visit)) for visit in visits]
        while pairs and self.wanted:
            with suppress(*LATE):
                self._queue.put(pairs, timeout=FULL)
                return

    def close(self) -> None:
        self._begun.clear()
        self._queue.close()


def visit_shard(text: bytes, controller: Greeting, queue: str) -> None:
    """Visit the hosts of an order; a frame for each goes into the queue as it is done.

    Raises UnfitWorkerError, FleetError and BegunBeforeError.
    """
    if why := fit(controller):
        raise UnfitWorkerError(f"a worker {why}")
    order = at_home(framing.read_order(framing.read_frame(text)))
    usable(order)
    hosts = {each.number: Host(name=str(each.number)) for each in order.targets}
    with closing(Channel(queue)) as channel:
        _visit_all(Shard(order, hosts), channel)


def _visit_all(shard: Shard, channel: Channel) -> None:
    late = False
    try:
        while channel.wanted:
            late = shard.due <= time.monotonic()
            if late:
                break
            if not select.select([shard.child.output], [], [], TICK)[0]:
                continue
            chunk = shard.child.read()
            if not chunk:
                break
            channel.put(shard.take(chunk), outcome)
    finally:
        if late or not channel.wanted:
            shard.child.kill()
        ending = shard.child.end()
    channel.put(shard.unfinished(ending, late=late), lost_host)
