"""What apply asks of nodes: `Executor`, its results, and its errors.

nodevet.fleet.controller.ssh_executor does it over SSH.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from nodevet.resource import AnyAction, Resource, State


@dataclass(frozen=True)
class Acted:
    """How a command ended; `code` is 124 or 137 if it was ended because it took too long."""

    ok: bool
    code: int
    output: str  # the end of its stdout, then of its stderr; printable


class WorkError(Exception):
    """A call that came to no answer; `why` is for people.

    `status`: unreachable (no session), timeout (no answer in time), lost (the session is gone,
    or was never opened), failed (the node answers, but not what was asked). After lost, and
    after timeout, the host has no session until it is opened again.
    """

    def __init__(self, status: str, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


class LockedError(Exception):
    """The node's lock is held by another: `who`, `since` (ISO 8601, by the node's clock).

    Or it is free, and a process that was begun under it still runs: `running`.
    """

    def __init__(self, who: str, since: str, running: str = "") -> None:
        told = f"locked by {who}" + (f" since {since}" if since else "")
        super().__init__(f"{told}; one of its commands still runs: {running}" if running else told)
        self.who = who
        self.since = since
        self.running = running


class Executor(Protocol):
    """One session per host, blocking, safe to call from several threads for different hosts.

    Every call raises WorkError if the session is lost or the node does not answer in time.
    """

    def open(self, host: str) -> None: ...

    def lock(self, host: str, who: str) -> None:
        """Held until `close` or the end of the session. Raises LockedError."""

    def probe(self, host: str) -> bytes:
        """The evidence document."""

    def look(self, host: str, resources: Sequence[Resource]) -> tuple[State, ...]:
        """The state of each resource, in their order."""

    def managers(self, host: str, resources: Sequence[Resource]) -> Mapping[str, tuple[str, ...]]:
        """Who else would set each resource: label -> places, `unit x.service (file:line)`."""

    def act(self, host: str, action: AnyAction) -> Acted:
        """After a WorkError it is unknown whether the action took place."""

    def reboot(self, host: str, *, seconds: float) -> str:
        """The new boot id, in a new session without a lock."""

    def close(self, host: str) -> None: ...
