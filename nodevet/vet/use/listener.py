"""Events of a use case. Each method does nothing; override those you need."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from nodevet.evidence.document import Evidence
from nodevet.model import HostReport
from nodevet.model.run import Run

_UPTIME = re.compile(r"\bup for [^,]*")


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """After an attempt: which of so many hosts have not passed, and why. Seconds."""

    reasons: Mapping[str, str]  # by host; printable
    hosts: int
    since: float  # the gate began
    next_in: float
    left: float  # until the gate gives up

    @property
    def gist(self) -> Mapping[str, str]:
        """The reasons without the parts that change with time."""
        return {host: _UPTIME.sub("", why) for host, why in self.reasons.items()}


Prepare = Callable[[HostReport, bytes | None, Evidence | None, str], Any]
"""What the store will write of a host: of its report, its evidence, and the id of the run."""


class VetListener:
    """Receives the progress of vetting hosts."""

    def preparing(self) -> Callable[[], Prepare] | None:
        """Makes, in a process that judges, what prepares there the rows of a host for the store."""
        return None

    def prepared(self, host: Any) -> None:
        """What `preparing` made of a host, whose report comes next."""

    def began(self, run: Run, hosts: tuple[str, ...]) -> None:
        """The run begins: the run without hosts, and the names of the hosts to come."""

    def visiting(self) -> None:
        """The first visit begins; a KeyboardInterrupt from here on ends the run early."""

    def decoded(self, host: str, evidence: Evidence) -> None:
        """A host's evidence, whose report comes next."""

    def took(self, host: HostReport) -> None:
        """A host's report; again if a later host changed it."""

    def took_packed(self, host: str, whole: Callable[[], HostReport]) -> None:
        """As `took`, of a report that `whole` unpacks."""
        self.took(whole())

    def advanced(self, host: str) -> None:
        """One more host is done."""

    def waiting(self, waiting: Waiting) -> None:
        """A gate waits, and tries again what has not passed."""

    def visited(self) -> None:
        """The last visit ended; an interrupt from here on would lose the run."""

    def ended(self, run: Run) -> None:
        """The whole run."""

    def warned(self, text: str) -> None:
        """Something went wrong that does not end the run."""

    def noted(self, text: str) -> None:
        """A note about the run; its reader may have turned notes off."""
