"""One node's sequence: lock, probe, compare, write, verify, and the reboot where it is wanted."""

import time
from collections.abc import Sequence
from contextlib import suppress

from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.fix.events import Phase
from nodevet.fix.journal.account import host_end
from nodevet.fix.journal.journal import HostBegin, JournalError, JournalState
from nodevet.fix.journal.records import Proof
from nodevet.fix.model import Step
from nodevet.fix.rollout import before, preconditions
from nodevet.fix.rollout.batch import MovedError, StepBatch, batch_of
from nodevet.fix.rollout.boot import RebootProof
from nodevet.fix.rollout.clearance import Clearance, RefusedError
from nodevet.fix.rollout.compare import StepContext, StepStatus
from nodevet.fix.rollout.earlier import Earlier
from nodevet.fix.rollout.ledger import BAD, KEPT, Ledger, NodeTask
from nodevet.fix.rollout.proofs import proofs
from nodevet.fix.rollout.resume import NodeResume, recall
from nodevet.fix.rollout.session import BlindError, LostError, NodeSession
from nodevet.fix.rollout.step_results import begin
from nodevet.fix.rollout.step_run import Steps
from nodevet.fixing.result import HostResult, Outcome, Refusal, worst
from nodevet.fleet.executor import LockedError, WorkError

__all__ = ["NodeApply", "NodeTask"]


class NodeApply:
    """One node of a run. `run` never raises but for what ends the whole run."""

    def __init__(self, task: NodeTask, session: NodeSession, context: StepContext | None) -> None:
        self.task = task
        self.session = session
        self.ledger = Ledger(task)
        self._clearance = Clearance(
            host=task.host,
            planned=task.planned,
            drain_hook=session.terms.drain_hook,
            drain_seconds=session.terms.drain_seconds,
            harmless=session.terms.harmless,
            closed=task.closed,
            services=preconditions.services_of(task.steps),
            draining=lambda: session.tell(Phase.DRAINING, seconds=session.terms.drain_seconds),
        )
        self._steps = Steps(session, context, self._clearance) if context else None
        self._asked: Evidence | None = None  # whose steps' managers were asked
        self._rechecked: Step | None = None  # before which moved settings were judged again
        self._unseen: tuple[str, ...] = ()  # steps that an earlier controller left, not looked at

    def run(self, earlier: JournalState | None = None) -> HostResult:
        """Every step, in order, up to the first that is refused or fails.

        `earlier` is what the journal says of a run that is resumed.
        """
        started = time.monotonic()
        refusal, why, lost = None, "", ""
        if earlier is not None:
            recall(self.ledger, earlier)
            self._unseen = tuple(s.id for s in self.task.steps if earlier.step(s.id).touched)
        try:
            self._run(earlier)
        except RefusedError as error:
            refusal, why = error.refusal, str(error)
        except (LostError, JournalError) as error:
            lost = str(error)
        finally:
            with suppress(WorkError):
                self.session.executor.close(self.task.host)
        result = self._result(refusal, why, lost, time.monotonic() - started)
        with suppress(JournalError):  # its words are in `lost`, or the file ends here
            self.session.journal.write(host_end(result, self._proofs()))
        return result

    def _proofs(self) -> tuple[Proof, ...]:
        """What the checks of the steps said last, if nothing was changed since."""
        if self._steps is None or self.session.reading is None:
            return ()
        return proofs(self.ledger, self._steps.context, self.session.reading)

    def _result(self, refusal: Refusal | None, why: str, lost: str, seconds: float) -> HostResult:
        results = self.ledger.results
        for step in self.task.steps:
            if lost and self._steps and step.id in self._steps.begun - results.keys():
                results[step.id] = begin(step, outcome=Outcome.UNKNOWN, why=lost)
        steps = tuple(results.get(step.id) or begin(step) for step in self.task.steps)
        outcome = worst(results.values())
        told = [step.why for step in steps if step.outcome is outcome and step.why]
        if lost and not results:
            outcome, told = Outcome.NOT_ATTEMPTED, [lost]
        elif lost and outcome is not Outcome.ROLLBACK_FAILED:
            outcome, told = Outcome.UNKNOWN, [lost, *told]
        elif refusal and self._unseen and outcome is not Outcome.ROLLBACK_FAILED:
            told = [f"{', '.join(self._unseen)}: not looked at again: {why}", *told]
            outcome = Outcome.UNKNOWN  # what is there by now is unknown
        elif refusal and outcome in BAD:
            told = [*told, why]
        elif refusal:
            stays = any(step.outcome in KEPT and step.ran for step in steps)
            outcome, told = Outcome.PARTIAL if stays else Outcome.REFUSED, [why]
        if outcome in (Outcome.FAILED, Outcome.PARTIAL):
            told += [f"{step.id} is changed, and stays" for step in steps if step.outcome in KEPT]
        return HostResult(
            host=self.task.host,
            outcome=outcome,
            why="; ".join(dict.fromkeys(told)),
            refusal=refusal if outcome in (Outcome.REFUSED, Outcome.PARTIAL) else None,
            canary=self.task.canary,
            rebooted=self.ledger.rebooted,
            seconds=round(seconds, 3),
            steps=steps,
        )

    # --- the sequence -------------------------------------------------------------------------

    def _run(self, earlier: JournalState | None) -> None:
        ledger, steps = self.ledger, self._steps
        if steps is None or not ledger.results:
            self._clearance.approved()
        if steps is None:
            why = "the baseline that the plan was made with is not found; name it with -b"
            raise RefusedError(Refusal.STALE, why)
        begun = [earlier.step(step.id) for step in self.task.steps] if earlier else []
        if why := self.session.unkept(state for state in begun if state.touched):
            raise RefusedError(Refusal.PRECONDITION, why)
        boot = RebootProof(ledger, steps, self._clearance)
        self._enter()
        evidence = self._first_look(earlier)
        if earlier is not None:
            evidence = NodeResume(ledger, steps, boot, earlier).run(evidence)
            self._unseen = ()
        if not ledger.stopped():
            evidence = self._guarded(steps, evidence)
        while not ledger.stopped() and (todo := ledger.open()):
            evidence = self._next(steps, todo, evidence)
        if ledger.stopped():
            Earlier(ledger, steps).without_reverted()
        elif self.task.reboot and ledger.written():
            boot.prove(evidence)

    def _next(self, steps: Steps, todo: Sequence[Step], evidence: Evidence) -> Evidence:
        """The first step that is open, with those that are verified together with it."""
        ledger, first = self.ledger, todo[0]
        if why := preconditions.other_node(self.task.planned, evidence):  # it was lost
            raise RefusedError(Refusal.STALE, why)
        status = steps.status(first, evidence)
        if status is StepStatus.UNCHANGED:
            verdicts = steps.verifier.verdicts(first, evidence)
            ledger.results[first.id] = begin(first, outcome=Outcome.UNCHANGED, verdicts=verdicts)
            return evidence
        if status is StepStatus.PENDING:
            why = f"set already, in force after a {first.effective}"
            ledger.results[first.id] = begin(first, outcome=Outcome.PENDING, why=why)
            return evidence
        batch = batch_of(todo, self._statuses(steps, todo, evidence))
        if evidence is not self._asked:
            before.unmanaged(steps.session, batch)
        earlier = Earlier(ledger, steps)
        watched = () if first is self._rechecked else earlier.settings()
        try:
            return StepBatch(ledger, steps).run(batch, evidence, watched)
        except MovedError:
            self._rechecked = first
            return earlier.before(first, evidence)

    @staticmethod
    def _statuses(steps: Steps, todo: Sequence[Step], evidence: Evidence) -> dict[str, StepStatus]:
        """Of the steps up to the first that is stale: it is compared again when its turn comes."""
        found = {}
        for step in todo:
            try:
                found[step.id] = steps.status(step, evidence)
            except RefusedError:
                break
        return found

    def _enter(self) -> None:
        self.session.tell(Phase.CONNECTING)
        try:
            self.session.enter()
        except LockedError as error:
            raise RefusedError(Refusal.LOCKED, str(error)) from error
        except WorkError as error:
            raise RefusedError(Refusal.UNREACHABLE, str(error)) from error

    def _first_look(self, earlier: JournalState | None) -> Evidence:
        """Fresh evidence of the node that was planned for. Raises RefusedError.

        The journal gets a new boot id of a node that was begun once it was judged by it.
        """
        known = earlier.host(self.task.host) if earlier else None
        evidence = self._probe("before" if known is None else "resumed")
        host = evidence[HostInfo].data
        # what was begun is looked at after a reboot too
        booted = host.boot_id if known is not None and host is not None else None
        if why := preconditions.other_node(self.task.planned, evidence, booted=booted):
            raise RefusedError(Refusal.STALE, why)
        if host is not None and (known is None or known.boot_id == booted):
            self.session.journal.write(
                HostBegin(
                    host=self.task.host,
                    machine_id=host.machine_id or "",
                    boot_id=host.boot_id or "",
                    uptime_s=host.uptime_s,
                )
            )
        return evidence

    def _probe(self, name: str) -> Evidence:
        self.session.tell(Phase.READING)
        try:
            return self.session.probe(name)
        except (WorkError, BlindError) as error:
            raise RefusedError(Refusal.UNREACHABLE, str(error)) from error

    def _guarded(self, steps: Steps, evidence: Evidence) -> Evidence:
        """Nothing is written before every step may run and the node is drained where it must be.

        Raises RefusedError. The evidence is fresh where the drain hook took its time.
        """
        todo = self.ledger.open()
        if not todo:
            return evidence
        self._clearance.approved()
        if why := preconditions.other_node(self.task.planned, evidence):
            raise RefusedError(Refusal.STALE, why)
        going = [step for step in todo if steps.status(step, evidence) is StepStatus.GO]
        if not going:
            return evidence
        before.unmanaged(steps.session, going)
        self._asked = evidence
        if later := going[1:]:  # the first one is looked at as it begins
            more = [resource for step in later[1:] for resource in step.resources]
            seen = before.look(steps.session, later[0], more)
            for step in later:
                before.as_planned(steps.session, step, seen)
        cleared = self._clearance.node(
            evidence, lambda: self._probe("before"), steps=going, reboot=self.task.reboot
        )
        for step in todo if cleared is not evidence else ():
            steps.status(step, cleared)
        return cleared
