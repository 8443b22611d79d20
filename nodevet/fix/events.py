"""What a run of fixes tells while it goes on: data for whoever watches it, and nothing more.

No part of a run waits for what is told, or depends on it: what fails in telling is lost.
"""

from collections.abc import Callable
from contextlib import suppress
from enum import Enum

import msgspec

from nodevet.fix.rollout.limits import Limits
from nodevet.fixing.result import HostResult


class Phase(str, Enum):
    """What is done on a host, in words."""

    CONNECTING = "connecting"
    READING = "reading the host"
    DRAINING = "running the drain hook"
    WRITING = "writing"
    SETTLING = "waiting to settle"
    VERIFYING = "verifying"
    REVERTING = "rolling back"
    REBOOTING = "rebooting"
    STARTING = "waiting for its services"
    LOST = "connection lost, trying again"


class RunBegun(msgspec.Struct, frozen=True, kw_only=True):
    """So many hosts are to be begun, or looked at again, within limits."""

    hosts: int
    limits: Limits


class HostBegun(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    canary: bool = False
    steps: tuple[str, ...] = ()  # their ids, in order


class Doing(msgspec.Struct, frozen=True, kw_only=True):
    """What begins on a host now. `seconds`: how long it takes, or may take at most."""

    host: str
    phase: Phase
    steps: tuple[str, ...] = ()  # the ids of those that it is about
    seconds: float | None = None
    why: str = ""


class HostEnded(msgspec.Struct, frozen=True, kw_only=True):
    """`may_fail`: so many more hosts may. `stopped`: why no further one is begun."""

    result: HostResult
    may_fail: int = 0
    stopped: str = ""


class Resting(msgspec.Struct, frozen=True, kw_only=True):
    """The pause between the canary and the rest begins."""

    seconds: float


Event = RunBegun | HostBegun | Doing | HostEnded | Resting
Heard = Callable[[Event], None]
"""Called from several threads; returns at once."""


def silent(event: Event) -> None:
    """Tells no one."""


def safely(heard: Heard) -> Heard:
    """`heard`, which ends nothing whatever goes wrong with it."""

    def told(event: Event) -> None:
        with suppress(Exception):
            heard(event)

    return told
