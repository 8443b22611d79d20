"""The events of a run of fixes, for its listeners.

No part of a run waits for a handler of events, or depends on it: its errors are ignored.
"""

from collections.abc import Callable
from contextlib import suppress
from enum import Enum

import msgspec

from nodevet.fix.rollout.limits import Limits
from nodevet.fixing.result import HostResult


class Phase(str, Enum):
    """What nodevet does on a host, in words."""

    CONNECTING = "connecting"
    READING = "reading the host"
    DRAINING = "running the drain hook"
    WRITING = "writing"
    SETTLING = "waiting to settle"
    VERIFYING = "verifying"
    REVERTING = "rolling back"
    REBOOTING = "rebooting"
    SWITCHING = "switching off and on"
    STARTING = "waiting for its services"
    LOST = "connection lost, trying again"


class RunBegun(msgspec.Struct, frozen=True, kw_only=True):
    """A run begins, or resumes, a number of hosts within limits."""

    hosts: int
    limits: Limits


class HostBegun(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    canary: bool = False
    steps: tuple[str, ...] = ()  # their ids, in order


class Doing(msgspec.Struct, frozen=True, kw_only=True):
    """A phase begins on a host. `seconds`: how long it takes, or may take at most."""

    host: str
    phase: Phase
    steps: tuple[str, ...] = ()  # the ids of those that it is about
    seconds: float | None = None
    why: str = ""


class HostEnded(msgspec.Struct, frozen=True, kw_only=True):
    """`may_fail`: how many more hosts may fail. `stopped`: why the run starts no more hosts."""

    result: HostResult
    may_fail: int = 0
    stopped: str = ""


class Resting(msgspec.Struct, frozen=True, kw_only=True):
    """The pause between the canary and the other hosts begins."""

    seconds: float


Event = RunBegun | HostBegun | Doing | HostEnded | Resting
EventHandler = Callable[[Event], None]
"""Called from several threads; returns at once."""


def ignore_event(event: Event) -> None:
    """Ignores an event."""


def without_errors(on_event: EventHandler) -> EventHandler:
    """`on_event` without its exceptions."""

    def handle(event: Event) -> None:
        with suppress(Exception):
            on_event(event)

    return handle


class FixListener:
    """Receives the notes and events of an apply or a rollback."""

    def note(self, text: str) -> None:
        """A note for the person who started the run."""

    def note_in_signal(self, text: str) -> None:
        """Like `note`, called from the handler of a signal."""

    def on_event(self, event: Event) -> None:
        """An event of a host or of the run. Called from several threads; must return at once."""
