"""The program that a launcher starts elsewhere: nodevet-shard. Orders in, outcomes out.

It greets, then starts a shard for each order on its standard input and passes on what they find.
It ends, and its shards with it, when its input ends or nobody was heard for minutes.
"""

import os
import select
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from nodevet.base.durations import elapsed
from nodevet.fleet.controller.shards import Shard, accept_keys, check_file, expanded
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

LONELY = 300  # seconds without a sign of the one who gives orders
TICK = 5  # seconds
READ = 1 << 16
STDIN, STDOUT = 0, 1


class Relay:
    """The shards at work here, and the two pipes to the one who gives orders."""

    def __init__(self) -> None:
        self._reader = FrameReader(framing.INPUT_LIMIT)
        self._shards: dict[int, Shard] = {}  # by the descriptor of their output
        self._heard = time.monotonic()

    def serve(self) -> None:
        """Until the input ends. Raises FrameError, BrokenPipeError and FleetError."""
        write(write_greeting(greeting()))
        while self._hear():
            now = time.monotonic()
            for shard in [one for one in self._shards.values() if one.due <= now]:
                shard.child.kill()
                self._lose(shard, late=True)
            if now - self._heard > LONELY:
                raise FleetError(f"nothing was heard of the controller for {elapsed(LONELY)}")

    def end(self) -> None:
        for shard in self._shards.values():
            shard.child.kill()
        for shard in self._shards.values():
            shard.child.end()

    def _hear(self) -> bool:
        """Wait for somebody to say something; False once the input has ended."""
        ready, _, _ = select.select([STDIN, *self._shards], [], [], TICK)
        for descriptor in ready:
            if descriptor == STDIN:
                chunk = os.read(STDIN, READ)
                if not chunk:
                    return False
                self._heard = time.monotonic()
                for frame in self._reader.take(chunk):
                    if framing.read_notice(frame) is not None:
                        write(framing.write_notice(Beat()))
                    else:
                        self._begin(framing.read_order(frame))
                continue
            shard = self._shards[descriptor]
            chunk = shard.child.read()
            if chunk:
                for visit in shard.take(chunk):
                    write(outcome(visit))
            else:
                self._lose(shard, late=False)
        return True

    def _begin(self, order: BatchOrder) -> None:
        order = at_home(order)
        usable(order)
        numbers = {target.number: Host(name=str(target.number)) for target in order.targets}
        shard = Shard(order, numbers)
        self._shards[shard.child.output.fileno()] = shard

    def _lose(self, shard: Shard, *, late: bool) -> None:
        """Say which hosts a shard that is gone has not answered for."""
        del self._shards[shard.child.output.fileno()]
        for visit in shard.unfinished(shard.child.end(), late=late):
            write(lost_host(visit))


def outcome(visit: Visit) -> bytes:
    told = VisitOutcome(visit.status, visit.why, visit.evidence or b"", visit.seconds, visit.again)
    return framing.write_outcome(int(visit.host), told)


def lost_host(visit: Visit) -> bytes:
    return lost(int(visit.host), visit.why)


def lost(number: int, why: str) -> bytes:
    return framing.write_notice(LostHost(number, why))


def usable(order: BatchOrder) -> None:
    """Raises FleetError if a file that was named is missing here, or new keys cannot be stored."""
    if order.accept_new:
        accept_keys(order.known_hosts)
    for name, path in (("ssh_config", order.ssh_config), ("known_hosts", order.known_hosts)):
        if path is not None:
            check_file(name, Path(path))


def at_home(order: BatchOrder) -> BatchOrder:
    """An order whose paths are of this machine: ~ is its user's."""

    def here(path: str | None) -> str | None:
        return None if path is None else str(expanded(path))

    return replace(
        order,
        ssh_config=here(order.ssh_config),
        known_hosts=here(order.known_hosts),
        targets=tuple(replace(one, key_file=here(one.key_file)) for one in order.targets),
    )


def write(data: bytes) -> None:
    """Write a frame, or the greeting, to the one who gives orders."""
    rest = memoryview(data + b"\n")
    while rest:
        rest = rest[os.write(STDOUT, rest) :]


def ended(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)


def main() -> int:
    """Its exit code; what went wrong is the last line on standard error."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, ended)
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
