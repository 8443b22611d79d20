"""The operations of apply on nodes: `Executor` and its errors.

nodevet.fleet.controller.ssh_executor implements it over SSH.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from nodevet.fleet.protocol.framing import ActResult
from nodevet.resource import AnyAction, Resource, State


class WorkError(Exception):
    """A call without a result; `why` is for people.

    `status`: unreachable (no session), timeout (no answer in time), lost (the session is gone,
    or was never opened), failed (the node's answer is an error). After lost and timeout, the host
    has no session until `open`.
    """

    def __init__(self, status: str, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


class LockedError(Exception):
    """Another holds the node's lock: `who`, `since` (ISO 8601, by the node's clock).

    Or the lock is free, but a process that was started under it still runs: `running`.
    """

    def __init__(self, who: str, since: str, running: str = "") -> None:
        text = f"locked by {who}" + (f" since {since}" if since else "")
        super().__init__(f"{text}; one of its commands still runs: {running}" if running else text)
        self.who = who
        self.since = since
        self.running = running


class Executor(Protocol):
    """One session per host, blocking, safe to call from several threads for different hosts.

    Every call raises WorkError if the session is lost or the node does not answer in time.
    """

    def open(self, host: str) -> None: ...

    def lock(self, host: str, who: str) -> None:
        """Take the lock until `close` or the end of the session. Raises LockedError."""

    def probe(self, host: str) -> bytes:
        """The evidence document."""

    def look(self, host: str, resources: Sequence[Resource]) -> tuple[State, ...]:
        """The state of each resource, in their order."""

    def managers(self, host: str, resources: Sequence[Resource]) -> Mapping[str, tuple[str, ...]]:
        """Who else would set each resource: label -> places, `unit x.service (file:line)`."""

    def act(self, host: str, action: AnyAction) -> ActResult:
        """After a WorkError nobody knows whether the action was done."""

    def reboot(self, host: str, *, seconds: float, left: str = "") -> str:
        """The new boot id, in a new session without a lock. `left`: the boot that something else
        ends; empty: nodevet reboots the node."""

    def close(self, host: str) -> None: ...
