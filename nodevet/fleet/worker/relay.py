"""The program that a launcher starts elsewhere: nodevet-shard. Orders in, outcomes out.

It writes a greeting, starts a shard for each order on its standard input, and passes their outcomes
on. It ends with its shards if its input ends or the controller is silent for minutes.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import NoReturn

from nodevet.base.durations import elapsed
from nodevet.fleet.controller.shards import Shard, check_files, expand_user
from nodevet.fleet.model import FleetError, Visit
from nodevet.fleet.protocol import framing
from nodevet.fleet.protocol.framing import (
    BatchOrder,
    Beat,
    FrameError,
    FrameReader,
    LauncherRefusal,
    LostHost,
    VisitOutcome,
)
from nodevet.fleet.protocol.greeting import greeting, write_greeting
from nodevet.model import Host

LONELY = 300  # seconds without a sign of life from the controller
TICK = 5  # seconds
READ = 1 << 16
STDIN, STDOUT = 0, 1


class Relay:
    """The running shards, and the pipes to the controller."""

    def __init__(self) -> None:
        self._reader = FrameReader(framing.INPUT_LIMIT)
        self._shards: dict[int, Shard] = {}  # by the descriptor of their output
        self._last_heard = time.monotonic()

    def serve(self) -> None:
        """Serve until the input ends. Raises FrameError, BrokenPipeError and FleetError."""
        write(write_greeting(greeting()))
        while self._receive():
            now = time.monotonic()
            for shard in [candidate for candidate in self._shards.values() if candidate.due <= now]:
                shard.child.kill()
                self._lose(shard, late=True)
            if now - self._last_heard > LONELY:
                raise FleetError(f"the controller was silent for {elapsed(LONELY)}")

    def end(self) -> None:
        for shard in self._shards.values():
            shard.child.kill()
        for shard in self._shards.values():
            shard.child.end()

    def _receive(self) -> bool:
        """Wait for input or output of shards; False once the input has ended."""
        ready, _, _ = select.select([STDIN, *self._shards], [], [], TICK)
        for descriptor in ready:
            if descriptor == STDIN:
                chunk = os.read(STDIN, READ)
                if not chunk:
                    return False
                self._last_heard = time.monotonic()
                for order in orders(self._reader, chunk):
                    self._begin(order)
                continue
            shard = self._shards[descriptor]
            chunk = shard.child.read()
            if chunk:
                for visit in shard.take(chunk):
                    write(outcome_frame(visit))
            else:
                self._lose(shard, late=False)
        return True

    def _begin(self, order: BatchOrder) -> None:
        order = check_paths(order)
        numbers = {target.number: Host(name=str(target.number)) for target in order.targets}
        shard = Shard(order, numbers)
        self._shards[shard.child.output.fileno()] = shard

    def _lose(self, shard: Shard, *, late: bool) -> None:
        """Report the unanswered hosts of a shard that has ended."""
        del self._shards[shard.child.output.fileno()]
        for visit in shard.unfinished(shard.child.end(), late=late):
            write(lost_host_frame(visit))


def outcome_frame(visit: Visit) -> bytes:
    evidence = visit.evidence or b""
    outcome = VisitOutcome(
        visit.status, visit.why, evidence, visit.seconds, visit.again, visit.steps
    )
    return framing.write_outcome(int(visit.host), outcome)


def lost_host_frame(visit: Visit) -> bytes:
    return lost_frame(int(visit.host), visit.why)


def lost_frame(number: int, why: str) -> bytes:
    return framing.write_notice(LostHost(number, why))


def check_paths(order: BatchOrder) -> BatchOrder:
    """The order with each ~ replaced by a home folder of this machine. Raises FleetError if a named
    file is missing here, or if new keys cannot be stored."""

    def expanded(path: str | None) -> str | None:
        return None if path is None else str(expand_user(path))

    targets = tuple(replace(host, key_file=expanded(host.key_file)) for host in order.targets)
    order = replace(
        order,
        ssh_config=expanded(order.ssh_config),
        known_hosts=expanded(order.known_hosts),
        targets=targets,
    )
    check_files(order.ssh_config, order.known_hosts, accept_new=order.accept_new)
    return order


def orders(reader: FrameReader, chunk: bytes) -> Iterator[BatchOrder]:
    """The controller's orders; signs of its life are answered."""
    for frame in reader.take(chunk):
        if framing.read_notice(frame) is not None:
            write(framing.write_notice(Beat()))
        else:
            yield framing.read_order(frame)


def write(data: bytes) -> None:
    """Write a frame or the greeting to the controller."""
    rest = memoryview(data + b"\n")
    while rest:
        rest = rest[os.write(STDOUT, rest) :]


def exit_on_signal(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


def main() -> int:
    """Run the relay; returns the exit code. An error is the last line on standard error."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, exit_on_signal)
    relay = Relay()
    try:
        relay.serve()
    except BrokenPipeError:
        return 1
    except FleetError as error:
        write(framing.write_notice(LauncherRefusal(str(error))))
        return 1
    except FrameError as error:
        sys.stderr.write(f"malformed order: {error}\n")
        return 1
    finally:
        relay.end()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
