"""What apply asks of nodes. `nodevet.fleet.work.Worker` does it over SSH."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from nodevet.fix import File, Kernel, Run, Seen, Touch, Unit
from nodevet.fleet.work import Acted, LockedError, WorkError

__all__ = ["Acted", "Hands", "LockedError", "WorkError"]


class Hands(Protocol):
    """One session per host, blocking, safe to call from several threads for different hosts.

    Every call raises WorkError where the session is lost or the node does not answer in time.
    """

    def open(self, host: str) -> None: ...

    def lock(self, host: str, who: str) -> None:
        """Held until `close` or the end of the session. Raises LockedError."""

    def probe(self, host: str) -> bytes: ...

    def look(self, host: str, touches: Sequence[Touch]) -> tuple[Seen, ...]: ...

    def owners(self, host: str, touches: Sequence[Touch]) -> Mapping[str, tuple[str, ...]]: ...

    def act(self, host: str, action: File | Kernel | Unit | Run) -> Acted:
        """A WorkError leaves open whether the action took place."""

    def reboot(self, host: str, *, seconds: float) -> str:
        """The new boot id, in a new session without a lock."""

    def close(self, host: str) -> None: ...
