"""Whether a node, or a step, may begin now, and whether the node may be rebooted.

Checked each time right before: approval and expiry, the drain hook, and users of the GPUs.
"""

from collections.abc import Callable, Collection, Sequence

import msgspec

from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.fix.events import Phase
from nodevet.fix.model import PlannedNode, Step
from nodevet.fix.plan.holders import harmless_pids
from nodevet.fix.rollout import preconditions
from nodevet.fix.rollout.drain_hook import DrainHook
from nodevet.fix.rollout.ledger import Closed, Withdrawn
from nodevet.fix.rollout.session import BlindError, NodeSession
from nodevet.fixing.model import Risk
from nodevet.fixing.result import Refusal
from nodevet.fleet.executor import LockedError, WorkError
from nodevet.resource import unit


class RefusedError(Exception):
    """nodevet may not do something, and has done no part of it."""

    def __init__(self, refusal: Refusal, why: str) -> None:
        super().__init__(why)
        self.refusal = refusal


class Clearance(msgspec.Struct, frozen=True, kw_only=True):
    """Of one node. `services`: what its steps are about, so their processes do not count as users.

    Every method raises RefusedError.
    """

    host: str
    planned: PlannedNode
    drain_hook: DrainHook | None
    closed: Closed
    services: Collection[str] = ()
    harmless: Collection[str] = ()  # those of --holders
    draining: Callable[[Evidence], None] = lambda evidence: None  # before the hook is run
    drained: Callable[[Evidence], None] = lambda evidence: None  # after it, however it ended
    withdrawn: Withdrawn = lambda: ""

    @classmethod
    def of_session(
        cls,
        session: NodeSession,
        steps: Sequence[Step],
        closed: Closed,
        withdrawn: Withdrawn = lambda: "",
    ) -> "Clearance":
        terms = session.terms
        if session.hook:
            session.hook.checks = tuple(dict.fromkeys(step.fix for step in steps))
        return cls(
            host=session.host,
            planned=session.planned,
            drain_hook=session.hook,
            harmless=terms.harmless,
            closed=closed,
            services=preconditions.services_of(steps),
            draining=session.report_drain,
            drained=session.journal_drain,
            withdrawn=withdrawn,
        )

    def require_approval(self, *, reboot: bool = False) -> None:
        """Refuse if the plan has expired or is no longer approved (`reboot`: for a reboot)."""
        if why := self.closed(reboot):
            raise RefusedError(Refusal.STALE, why)

    def step(self, step: Step, evidence: Evidence) -> None:
        """Refuse a step that may not begin, by current evidence of its node."""
        self.require_approval()
        self.require_unused_gpus(step, evidence)

    def require_unused_gpus(
        self, step: Step, evidence: Evidence, earlier: Sequence[Step] = ()
    ) -> None:
        """Refuse if something uses GPUs that the step's risk needs free, and neither this step nor
        an `earlier` one ends it."""
        ended = preconditions.ended_pids([*earlier, step], evidence)
        if busy := preconditions.busy_reason(step, evidence, self.services, self.harmless, ended):
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
        """Refuse if these steps may not begin on the node, or if it may not be rebooted.

        Drains the node if needed; then the returned evidence is fresh, from `probe`. A node that
        rebooted or changed its name after `evidence` counts as another one.
        """
        self.require_approval(reboot=reboot)
        if reboot or any(step.risk.rank >= Risk.DRAIN.rank for step in steps):
            evidence = self._drained(evidence, probe, steps)
            self.require_approval(reboot=reboot)  # the hook may have taken its time
        for number, step in enumerate(steps):
            self.require_unused_gpus(step, evidence, steps[:number])
        return evidence

    def _drained(
        self, evidence: Evidence, probe: Callable[[], Evidence], steps: Sequence[Step]
    ) -> Evidence:
        hook = self.drain_hook
        if hook is None:
            why = "the node must be drained first; set --drain-hook"
            raise RefusedError(Refusal.PRECONDITION, why)
        self.draining(evidence)
        why = hook.drain()
        self.drained(evidence)
        if why:
            raise RefusedError(Refusal.PRECONDITION, why)
        booted = data.boot_id if (data := evidence[HostInfo].data) else None
        evidence = probe()
        if why := preconditions.node_mismatch(self.planned, evidence, booted=booted):
            raise RefusedError(Refusal.STALE, why)
        spare = harmless_pids(evidence, self.harmless, monitors=True)
        spare |= preconditions.ended_pids(steps, evidence)
        stopped = {name for step in steps for name in unit.stopped_around(step.actions)}
        users = preconditions.users(
            evidence, (), nvml=False, services={*self.services, *stopped}, harmless=spare
        )
        if busy := "; ".join(users):
            reason = f"drain hook succeeded, but {busy}"
            raise RefusedError(Refusal.PRECONDITION, reason)
        return evidence


def enter(session: NodeSession) -> None:
    """Open the session and lock the node. Raises RefusedError."""
    session.tell(Phase.CONNECTING)
    try:
        session.enter()
    except LockedError as error:
        raise RefusedError(Refusal.LOCKED, str(error)) from error
    except WorkError as error:
        raise RefusedError(Refusal.UNREACHABLE, str(error)) from error


def probe(session: NodeSession, name: str) -> Evidence:
    """Fresh evidence, kept as `name`. Raises RefusedError."""
    session.tell(Phase.READING)
    try:
        return session.probe(name)
    except (WorkError, BlindError) as error:
        raise RefusedError(Refusal.UNREACHABLE, str(error)) from error
