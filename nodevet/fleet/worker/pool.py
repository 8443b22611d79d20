"""A relay whose shards are tasks of a Dask pool: `pool.py ADDRESS [RESOURCE]`, orders in.

Dask runs a task again whose worker is lost, so that no host is lost with it; the controller takes
one answer for each host. Its own process keeps Dask's threads out of the controller.
"""

import logging
import os
import queue
import select
import sys
import time
from itertools import count
from typing import Any

from msgspec import structs

from nodevet.fleet import FleetError
from nodevet.fleet.protocol import framing
from nodevet.fleet.protocol.framing import BatchOrder, FrameReader
from nodevet.fleet.protocol.greeting import greeting, write_greeting
from nodevet.fleet.worker import task
from nodevet.fleet.worker.relay import LONELY, READ, STDIN, lost, write
from nodevet.printable import brief

CONNECT = 10  # seconds
LEAST_SLOTS = 16  # orders that may wait: pools grow with what waits
TICK = 1.0


class DaskRelay:
    """The tasks that were asked of a pool, and the two pipes to the one who gives orders."""

    def __init__(self, client: Any, resource: str) -> None:
        self._client = client
        self._resources = {resource: 1} if resource else None
        self._reader = FrameReader(framing.INPUT_LIMIT)
        self._tasks: dict[str, tuple[Any, BatchOrder]] = {}
        self._done: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._ids = count()
        self._wakes, self._wake = os.pipe()
        self._heard = time.monotonic()

    def serve(self) -> None:
        """Until the input ends. Raises FrameError, BrokenPipeError and FleetError."""
        self._meet()
        while self._hear():
            while not self._done.empty():
                self._tell(self._done.get())
            if time.monotonic() - self._heard > LONELY:
                raise FleetError("nothing was heard of the controller")
            if self._client.status not in ("running", "connecting"):
                raise FleetError("the scheduler is gone")

    def end(self) -> None:
        """What is not done is not wanted any more."""
        self._client.cancel([future for future, _ in self._tasks.values()], force=True)

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
                if "beat" in frame.head:
                    write(framing.write_frame({"beat": True}))
                else:
                    self._begin(framing.read_order(frame))
        return True

    def _begin(self, order: BatchOrder) -> None:
        key = f"nodevet-{os.getpid()}-{os.urandom(4).hex()}-{next(self._ids)}"
        future = self._client.submit(
            task.visit_shard,
            framing.write_order(order),
            greeting(),
            key=key,
            pure=False,
            resources=self._resources,
        )
        self._tasks[key] = future, order
        future.add_done_callback(self._note)

    def _note(self, future: Any) -> None:
        """Called by a thread of the client's."""
        self._done.put(future.key)
        os.write(self._wake, b"\n")

    def _tell(self, key: str) -> None:
        """Write what came of a task. Raises FleetError."""
        future, order = self._tasks.pop(key)
        if future.status == "cancelled":
            raise FleetError("the scheduler is gone, or dropped the task")
        try:
            frames: list[bytes] = future.result(timeout=CONNECT)
        except Exception as error:  # whatever was raised over there, its hosts have no answer
            frames = [lost(each.number, _in_words(error)) for each in order.targets]
        for frame in frames:
            write(frame)
        future.release()


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
    except (FleetError, ValueError, KeyError, TypeError) as error:
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
