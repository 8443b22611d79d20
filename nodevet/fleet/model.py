"""How to visit hosts, and how a visit ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from nodevet.base.durations import elapsed

if TYPE_CHECKING:
    from nodevet.fleet.launchers import Engine
    from nodevet.model import Host, Status

HOST_KEYS = ("strict", "accept-new")


OnSteps = Callable[[str, tuple[str, ...]], None]
"""Receives what SSH did on a host, step by step."""


class SideWork(Protocol):
    """Work that goes on during the visits."""

    @property
    def pipes(self) -> Sequence[Any]:
        """One of them is ready to be read when `take_ready` has something to do."""

    def take_ready(self) -> None:
        """Take the results that are there."""


@dataclass(frozen=True)
class Options:
    """How to visit hosts. Times in seconds, sizes in bytes. Raises ValueError if contradictory."""

    parallel: int = 100  # hosts at the same time, over all shards
    connect_timeout: float = 10  # TCP, banner and key exchange, per hop
    deadline: float = 120  # a whole host: connect, run, read; see nodevet.remote.probe.settle
    probe_deadline: float | None = None  # of the probe itself; None: two thirds of the deadline
    ssh_config: Path | None = None  # None: ~/.ssh/config
    known_hosts: Path | None = None  # None: the files that ssh_config names, else ssh's own
    host_keys: str = "strict"  # or accept-new: an unknown key is added, a changed one refused
    sudo: bool = False  # for every host; False: the inventory decides
    user: str | None = None  # for hosts whose user the inventory does not name; None: ssh_config's
    max_output: int = 8 << 20  # of one node
    shards: int | None = None  # child processes; None: by number of hosts and CPUs
    sample: float = 0.0  # between two readings of the counters; both deadlines include it
    asks: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # see nodevet.vet.use.asks
    asks_each: Callable[[Host], Mapping[str, Sequence[Any]]] | None = None  # by host, instead
    sections: tuple[str, ...] = ()  # that the probe reads; none: all of them
    engine: Engine | None = None  # visits the hosts; None: child processes of this process
    second_try: bool = False  # visit hosts again that were unreachable or timed out
    on_steps: OnSteps | None = None
    within: float | None = None  # of the whole run; later hosts are reported as not reached
    side_work: SideWork | None = None  # whose results are taken while no host answers

    def asks_for(self, host: Host) -> Mapping[str, Sequence[Any]]:
        """What the probe reads on a host beyond its defaults."""
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
    """How the visit to one host ended. `evidence` is set if it was vetted, else `why`."""

    host: str
    status: Status
    why: str = ""
    evidence: bytes | None = None  # the JSON document
    seconds: float = 0.0
    at: float | None = None  # its arrival by this machine's clock, seconds since 1970 UTC
    again: bool = False  # whether another try may succeed: no wrong key, no refused login
    steps: tuple[str, ...] = ()  # what SSH did, if Options.on_steps wants to know
    first: str = ""  # of a second try: how the first one ended


class FleetError(Exception):
    """No host can be visited; the message says why and what to do."""
