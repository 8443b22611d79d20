"""Reaching nodes. With fixes/ the only importer of pyinfra, and only in the shard process.

`visit` goes to every host and yields how each visit ended. Importing this package
must stay cheap: the shard process does it before it patches gevent, and a
node-local run never needs more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nodevet.durations import elapsed

if TYPE_CHECKING:
    from nodevet.fleet.launchers import Engine
    from nodevet.model import Host, Status

HOST_KEYS = ("strict", "accept-new")


@dataclass(frozen=True)
class Options:
    """How to visit. Times in seconds, sizes in bytes. Raises ValueError for a contradiction."""

    parallel: int = 100  # hosts at the same time, over all shards
    connect_timeout: float = 10  # TCP, banner and key exchange, per hop
    deadline: float = 120  # a whole host: connect, run, read; see nodevet.remote.probe.settle
    probe_deadline: float | None = None  # what the probe is told; None: two thirds of the deadline
    ssh_config: Path | None = None  # None: ~/.ssh/config
    known_hosts: Path | None = None  # None: what ssh_config names, else ssh's own files
    host_keys: str = "strict"  # or accept-new: an unknown key is added, a changed one refused
    sudo: bool = False  # for every host; else as the inventory says
    max_output: int = 8 << 20  # of one node
    shards: int | None = None  # child processes; None: by number of hosts and CPUs
    sample: float = 0.0  # between two readings of the counters; both deadlines include it
    asks: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # see nodevet.run.asks
    asks_each: Callable[[Host], Mapping[str, Sequence[Any]]] | None = None  # of a host, instead
    engine: Engine | None = None  # what visits hosts; None: child processes of this one
    second_try: bool = False  # of hosts that were unreachable or timed out, at the end
    within: float | None = None  # all of it; what is not done by then is told as that

    def asked(self, host: Host) -> Mapping[str, Sequence[Any]]:
        """What the probe is asked for on a host."""
        return self.asks if self.asks_each is None else self.asks_each(host)

    def __post_init__(self) -> None:
        if self.host_keys not in HOST_KEYS:
            raise ValueError(f"host_keys is {self.host_keys!r}; it must be one of {HOST_KEYS}")
        for name in ("parallel", "connect_timeout", "deadline", "max_output"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above zero")
        if self.within is not None and self.within <= 0:
            raise ValueError(f"within is {self.within}; it must be above zero")
        if self.shards is not None and self.shards <= 0:
            raise ValueError(f"shards is {self.shards}; it must be above zero")
        if not 0 < self.probe_seconds < self.deadline:
            raise ValueError(
                f"probe_deadline is {elapsed(self.probe_seconds)}; "
                f"it must be above zero and below the deadline of {elapsed(self.deadline)}"
            )

    @property
    def probe_seconds(self) -> float:
        return self.deadline * 2 / 3 if self.probe_deadline is None else self.probe_deadline


@dataclass(frozen=True)
class Visit:
    """How the visit to one host ended. `evidence` is set when it was vetted, else `why`."""

    host: str
    status: Status
    why: str = ""
    evidence: bytes | None = None  # the JSON document
    seconds: float = 0.0
    at: float | None = None  # when it came in by this machine's clock, seconds since 1970 UTC
    again: bool = False  # whether another try may find it otherwise: no wrong key, no refused login
    first: str = ""  # of a second try: how the first one ended


GENTLER = 4  # times fewer hosts at once in the second try: what was too busy may be so still


def visit(hosts: Sequence[Host], options: Options) -> Generator[Visit]:
    """Visit every host and yield each exactly once, as it finishes.

    With `second_try` what may pass is tried once more when all others are done. Closing the
    iterator ends every child process; what was not yielded was not finished. Raises FleetError
    if no host can be visited at all.
    """
    until = math.inf if options.within is None else time.monotonic() + options.within
    left = {host.name: host for host in hosts}
    held: dict[str, Visit] = {}
    with closing(_pass(hosts, options, until)) as visits:
        for one in visits:
            if options.second_try and one.again:
                held[one.host] = one
                continue
            del left[one.host]
            yield one
    if held and time.monotonic() < until:
        gentle = replace(options, parallel=max(1, options.parallel // GENTLER))
        with closing(_pass([left[name] for name in held], gentle, until)) as visits:
            for one in visits:
                del left[one.host]
                yield replace(one, first=held.pop(one.host).why)
    for name in left:
        yield held[name] if name in held else _not_reached(name, options)


def _pass(hosts: Sequence[Host], options: Options, until: float) -> Generator[Visit]:
    from nodevet.fleet.controller.dispatcher import dispatch

    with closing(dispatch(hosts, options, until)) as visits:
        for one in visits:
            yield replace(one, at=time.time())


def _not_reached(name: str, options: Options) -> Visit:
    from nodevet.model import Status

    why = f"not done within {elapsed(options.within or 0)}, the deadline of the whole run"
    return Visit(name, Status.INTERRUPTED, why, at=time.time())


class FleetError(Exception):
    """No host can be visited; the message says why and what to do."""
