"""One node's sequence: lock, probe, compare, write, verify, and reboot if requested."""

import time
from collections.abc import Sequence
from contextlib import closing, suppress

from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.fix.journal.account import host_end
from nodevet.fix.journal.journal import JournalError, JournalState
from nodevet.fix.journal.records import Proof
from nodevet.fix.model import Step
from nodevet.fix.rollout import before, preconditions
from nodevet.fix.rollout.batch import MovedError, StepBatch, batch_of
from nodevet.fix.rollout.boot import RebootProof
from nodevet.fix.rollout.clearance import Clearance, RefusedError, probe
from nodevet.fix.rollout.compare import StepContext, StepStatus
from nodevet.fix.rollout.earlier import Earlier
from nodevet.fix.rollout.ledger import BAD, KEPT, UNPROVEN, Ledger, NodeTask, new_result
from nodevet.fix.rollout.proofs import proofs
from nodevet.fix.rollout.resume import NodeResume, recall
from nodevet.fix.rollout.session import LostError, NodeSession
from nodevet.fix.rollout.step_run import Steps
from nodevet.fix.rollout.wake import enter_or_wake
from nodevet.fixing.model import Risk
from nodevet.fixing.result import HostResult, Outcome, Refusal, worst

__all__ = ["NodeApply", "NodeTask"]


class NodeApply:
    """One node of a run. `run` raises only what ends the whole run."""

    def __init__(self, task: NodeTask, session: NodeSession, context: StepContext | None) -> None:
        self.task = task
        self.session = session
        self.ledger = Ledger(task)
        self._clearance = Clearance.of_session(session, task.steps, task.closed, task.withdrawn)
        self._steps = Steps(session, context, self._clearance) if context else None
        self._asked: Evidence | None = None  # on which other managers were looked for
        self._rechecked: Step | None = None  # before which changed settings were judged again
        self._cleared: Evidence | None = None  # read when the node was last drained
        self._unseen: tuple[str, ...] = ()  # steps of an earlier controller, not read yet

    def run(self, earlier: JournalState | None = None) -> HostResult:
        """Run every step, in order, up to the first that is refused or fails.

        `earlier` is the state of a resumed run, from its journal.
        """
        started = time.monotonic()
        refusal, why, lost = None, "", ""
        if earlier is not None:
            recall(self.ledger, earlier)
            self.session.recall(earlier)
            self._unseen = tuple(s.id for s in self.task.steps if earlier.step(s.id).touched)
        with closing(self.session):  # it is locked until it is given back
            try:
                try:
                    self._run(earlier)
                except RefusedError as error:
                    refusal, why = error.refusal, str(error)
                self._revert_unproven()
            except (LostError, JournalError) as error:
                lost = str(error)
            result = self._result(refusal, why, lost, time.monotonic() - started)
            result = self.session.give_back(result)
        with suppress(JournalError):  # its words are in `lost`, or the file ends here
            given_back = bool(self.session.hook and self.session.hook.given_back)
            end = host_end(result, self._proofs(), given_back=given_back)
            self.session.journal.write(end)
        return result

    def _revert_unproven(self) -> None:
        """Revert steps that only a reboot proves, if there was none. Raises LostError."""
        if self._steps is None or self._unseen:
            return
        for step in reversed([step for step in self.ledger.written() if step.keep]):
            result = self.ledger.results[step.id]
            why = "; ".join(filter(None, (result.why, UNPROVEN)))
            self.ledger.results[step.id] = self._steps.revert(step, result, why)

    def _proofs(self) -> tuple[Proof, ...]:
        """The last verdicts of the steps' checks, if nothing was changed since."""
        if self._steps is None or self.session.reading is None:
            return ()
        return proofs(self.ledger, self._steps.context, self.session.reading)

    def _result(self, refusal: Refusal | None, why: str, lost: str, seconds: float) -> HostResult:
        results = self.ledger.results
        for step in self.task.steps:
            if lost and self._steps and step.id in self._steps.begun - results.keys():
                results[step.id] = new_result(step, outcome=Outcome.UNKNOWN, why=lost)
        steps = tuple(results.get(step.id) or new_result(step) for step in self.task.steps)
        outcome = worst(results.values())
        reasons = [step.why for step in steps if step.outcome is outcome and step.why]
        if lost and not results:
            outcome, reasons = Outcome.NOT_ATTEMPTED, [lost]
        elif lost and outcome is not Outcome.ROLLBACK_FAILED:
            outcome, reasons = Outcome.UNKNOWN, [lost, *reasons]
        elif refusal and self._unseen and outcome is not Outcome.ROLLBACK_FAILED:
            reasons = [f"{', '.join(self._unseen)}: not checked again: {why}", *reasons]
            outcome = Outcome.UNKNOWN  # what is there by now is unknown
        elif refusal and outcome in BAD:
            reasons = [*reasons, why]
        elif refusal:
            has_changes = any(step.outcome in KEPT and step.ran for step in steps)
            outcome, reasons = Outcome.PARTIAL if has_changes else Outcome.REFUSED, [why]
        if outcome in (Outcome.FAILED, Outcome.PARTIAL):
            reasons += [
                f"{step.id} is changed, and stays" for step in steps if step.outcome in KEPT
            ]
        return HostResult(
            host=self.task.host,
            outcome=outcome,
            why="; ".join(dict.fromkeys(reasons)),
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
            self._clearance.require_approval()
        if steps is None:
            why = "the baseline that the plan was made with is not found; name it with -b"
            raise RefusedError(Refusal.STALE, why)
        if not self.task.reboot and any(step.keep for step in self.task.steps):
            raise RefusedError(Refusal.PRECONDITION, f"{UNPROVEN}: apply the plan with its reboot")
        states = [earlier.step(step.id) for step in self.task.steps] if earlier else []
        if why := self.session.missing_content(state for state in states if state.touched):
            raise RefusedError(Refusal.PRECONDITION, why)
        boot = RebootProof(ledger, steps, self._clearance)
        enter_or_wake(self.session, self._clearance, earlier)
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
        """Run the first open step, with those that are verified together with it."""
        ledger, step = self.ledger, todo[0]
        if why := preconditions.node_mismatch(self.task.planned, evidence):  # it was lost
            raise RefusedError(Refusal.STALE, why)
        status = steps.status(step, evidence)
        if status is StepStatus.UNCHANGED:
            verdicts = steps.verifier.verdicts(step, evidence)
            ledger.results[step.id] = new_result(step, outcome=Outcome.UNCHANGED, verdicts=verdicts)
            return evidence
        if status is StepStatus.PENDING:
            why = f"set already, effective after a {step.effective}"
            ledger.results[step.id] = new_result(step, outcome=Outcome.PENDING, why=why)
            return evidence
        if step.risk.rank >= Risk.DRAIN.rank and evidence is not self._cleared:
            evidence = self._drained_again(step, evidence)
            if steps.status(step, evidence) is not StepStatus.GO:
                return evidence
        batch = batch_of(todo, self._statuses(steps, todo, evidence))
        if evidence is not self._asked:
            before.refuse_other_managers(steps.session, batch)
        earlier = Earlier(ledger, steps)
        watched = () if step is self._rechecked else earlier.settings()
        try:
            return StepBatch(ledger, steps).run(batch, evidence, watched)
        except MovedError:
            self._rechecked = step
            return earlier.revert_broken(step, evidence)

    def _drained_again(self, step: Step, evidence: Evidence) -> Evidence:
        """Fresh evidence of the node, which the drain hook confirms to be drained. Raises
        RefusedError."""
        self._cleared = self._clearance.node(
            evidence,
            lambda: probe(self.session, f"before-{step.fix}"),
            steps=[step],
            reboot=self.task.reboot,
        )
        return self._cleared

    @staticmethod
    def _statuses(steps: Steps, todo: Sequence[Step], evidence: Evidence) -> dict[str, StepStatus]:
        """The status of each step before the first stale one, which is compared in its turn."""
        statuses = {}
        for step in todo:
            try:
                statuses[step.id] = steps.status(step, evidence)
            except RefusedError:
                break
        return statuses

    def _first_look(self, earlier: JournalState | None) -> Evidence:
        """Fresh evidence of the planned node. Raises RefusedError.

        If a node that was begun has rebooted, the journal gets its new boot id later, once the
        steps are judged.
        """
        earlier_host = earlier.host(self.task.host) if earlier else None
        evidence = probe(self.session, "before" if earlier_host is None else "resumed")
        host = evidence[HostInfo].data
        # what was begun is looked at after a reboot too
        booted = host.boot_id if earlier_host is not None and host is not None else None
        if why := preconditions.node_mismatch(self.task.planned, evidence, booted=booted):
            raise RefusedError(Refusal.STALE, why)
        if host is not None and (earlier_host is None or earlier_host.boot_id == booted):
            self.session.write_begin(evidence)
        return evidence

    def _guarded(self, steps: Steps, evidence: Evidence) -> Evidence:
        """Check, before anything is written, that every step may run, and drain the node if needed.

        Raises RefusedError. Returns fresh evidence if the drain hook ran.
        """
        todo = self.ledger.open()
        if not todo:
            return evidence
        self._clearance.require_approval()
        if why := preconditions.node_mismatch(self.task.planned, evidence):
            raise RefusedError(Refusal.STALE, why)
        due = [step for step in todo if steps.status(step, evidence) is StepStatus.GO]
        if not due:
            return evidence
        if why := self.session.foreign_bmc(evidence):
            raise RefusedError(Refusal.PRECONDITION, why)
        before.refuse_other_managers(steps.session, due)
        self._asked = evidence
        if later := due[1:]:  # the first one is looked at as it begins
            resources = [resource for step in later[1:] for resource in step.resources]
            states = before.read_states(steps.session, later[0], resources)
            for step in later:
                before.require_planned_state(steps.session, step, states)
        cleared = self._clearance.node(
            evidence, lambda: probe(self.session, "before"), steps=due, reboot=self.task.reboot
        )
        self._cleared = cleared
        for step in todo if cleared is not evidence else ():
            steps.status(step, cleared)
        return cleared
