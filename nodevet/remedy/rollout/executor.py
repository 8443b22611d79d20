"""What apply asks of nodes. `nodevet.fleet.controller.executor.Worker` does it over SSH."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from nodevet.fleet.controller.executor import Acted, LockedError, WorkError
from nodevet.resource import AnyAction, Resource, State

__all__ = ["Acted", "Executor", "LockedError", "WorkError"]


class Executor(Protocol):
    """One session per host, blocking, safe to call from several threads for different hosts.

    Every call raises WorkError where the session is lost or the node does not answer in time.
    """

    def open(self, host: str) -> None: ...

    def lock(self, host: str, who: str) -> None:
        """Held until `close` or the end of the session. Raises LockedError."""

    def probe(self, host: str) -> bytes: ...

    def look(self, host: str, resources: Sequence[Resource]) -> tuple[State, ...]: ...

    def managers(
        self, host: str, resources: Sequence[Resource]
    ) -> Mapping[str, tuple[str, ...]]: ...

    def act(self, host: str, action: AnyAction) -> Acted:
        """A WorkError leaves open whether the action took place."""

    def reboot(self, host: str, *, seconds: float) -> str:
        """The new boot id, in a new session without a lock."""

    def close(self, host: str) -> None: ...
