"""Whether a node may be begun, a step of it, and whether it may be rebooted.

Asked here, right before it, each time, whatever led there: approval and expiry as of now, the
drain hook, and what uses the GPUs.
"""

from collections.abc import Callable, Collection, Sequence

import msgspec

from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.fix.model import PlannedNode, Step
from nodevet.fix.plan.holders import spared
from nodevet.fix.rollout import preconditions
from nodevet.fixing.model import Risk
from nodevet.fixing.result import Refusal

Closed = Callable[[bool], str]
"""Why no step may be begun now, or with True why the node may not be rebooted; else empty."""


class RefusedError(Exception):
    """What may not be done; nothing of it was."""

    def __init__(self, refusal: Refusal, why: str) -> None:
        super().__init__(why)
        self.refusal = refusal


class Clearance(msgspec.Struct, frozen=True, kw_only=True):
    """Of one node. `services` are those that its steps are about: what they run is no other use.

    Every method raises RefusedError.
    """

    host: str
    planned: PlannedNode
    drain_hook: str
    drain_seconds: float  # that the hook may take
    closed: Closed
    services: Collection[str] = ()
    harmless: Collection[str] = ()  # those of --holders
    draining: Callable[[], None] = lambda: None  # told before the drain hook is run

    def approved(self, *, reboot: bool = False) -> None:
        """The plan is open, not expired, and approved as of now; for a reboot, as one is."""
        if why := self.closed(reboot):
            raise RefusedError(Refusal.STALE, why)

    def step(self, step: Step, evidence: Evidence) -> None:
        """A step may begin, by evidence of now. Its node was drained where its risk asks for it."""
        self.approved()
        self.unused(step, evidence)

    def unused(self, step: Step, evidence: Evidence) -> None:
        """Nothing uses the GPUs that a step's risk wants free."""
        if busy := preconditions.occupied(step, evidence, self.services, self.harmless):
            raise RefusedError(
                Refusal.PRECONDITION, f"{step.id} is of risk {step.risk.value}: {busy}"
            )

    def node(
        self,
        evidence: Evidence,
        probe: Callable[[], Evidence],
        *,
        steps: Sequence[Step] = (),
        reboot: bool,
    ) -> Evidence:
        """These steps may be begun on a node, or it may be rebooted.

        The evidence is fresh where it was drained for that: `probe` reads it. A node that was
        rebooted, or changed its name, since the `evidence` of now is another one.
        """
        self.approved(reboot=reboot)
        if reboot or any(step.risk.rank >= Risk.DRAIN.rank for step in steps):
            evidence = self._drained(evidence, probe)
            self.approved(reboot=reboot)  # the hook may have taken its time
        for step in steps:
            self.unused(step, evidence)
        return evidence

    def _drained(self, evidence: Evidence, probe: Callable[[], Evidence]) -> Evidence:
        if not self.drain_hook:
            why = "the node must be drained first; set --drain-hook"
            raise RefusedError(Refusal.PRECONDITION, why)
        self.draining()
        if why := preconditions.drained(self.drain_hook, self.host, seconds=self.drain_seconds):
            raise RefusedError(Refusal.PRECONDITION, why)
        booted = data.boot_id if (data := evidence[HostInfo].data) else None
        evidence = probe()
        if why := preconditions.other_node(self.planned, evidence, booted=booted):
            raise RefusedError(Refusal.STALE, why)
        spare = spared(evidence, self.harmless, monitors=True)
        users = preconditions.users(evidence, (), nvml=False, services=self.services, spare=spare)
        if busy := "; ".join(users):
            told = f"drain hook succeeded, but {busy}"
            raise RefusedError(Refusal.PRECONDITION, told)
        return evidence
