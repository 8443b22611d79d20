"""What a Dask worker runs: one shard, to its end; what it found comes back as frames.

A task may be run again if its worker is lost: it only reads.
"""

import select
import time

from nodevet.fleet.controller.shards import Shard
from nodevet.fleet.protocol import framing
from nodevet.fleet.protocol.greeting import Greeting, greeting, unfit
from nodevet.fleet.worker.relay import at_home, lost, outcome, usable
from nodevet.model import Host

TICK = 1.0  # seconds between two looks at whether it is still wanted
MOST = 256 << 20  # bytes of one task's result


class UnfitWorkerError(Exception):
    """This worker cannot visit hosts; the message says why."""


def fit(controller: Greeting) -> str:
    """Why this worker cannot visit hosts for the controller; empty if it can."""
    return unfit(greeting(), controller)


def visit_shard(text: bytes, controller: Greeting) -> list[bytes]:
    """Visit the hosts of an order; a frame for each.

    Raises UnfitWorkerError and FleetError.
    """
    if why := fit(controller):
        raise UnfitWorkerError(f"a worker {why}")
    order = at_home(framing.read_order(framing.read_frame(text)))
    usable(order)
    shard = Shard(order, {each.number: Host(name=str(each.number)) for each in order.targets})
    frames: list[bytes] = []
    size, late = 0, False
    try:
        while wanted() and size < MOST:
            late = shard.due <= time.monotonic()
            if late:
                break
            if not select.select([shard.child.output], [], [], TICK)[0]:
                continue
            chunk = shard.child.read()
            if not chunk:
                break
            size += len(chunk)
            frames += map(outcome, shard.take(chunk))
    finally:
        if late or size >= MOST or not wanted():
            shard.child.kill()
        ending = shard.child.end()
    return frames + [lost(int(it.host), it.why) for it in shard.unfinished(ending, late=late)]


def wanted() -> bool:
    """Whether somebody still waits for this task."""
    from distributed import get_worker

    worker = get_worker()
    task = worker.state.tasks.get(worker.get_current_task())
    return task is None or task.state != "cancelled"
