"""Steps on one node: compare, write, verify and revert."""

import time
from functools import partial

import msgspec
from msgspec.structs import replace

from nodevet.base.printable import brief
from nodevet.evidence.document import Evidence
from nodevet.fix.events import Phase
from nodevet.fix.journal.journal import StepState
from nodevet.fix.journal.records import (
    ActionBegin,
    ActionEnd,
    ActionUnknown,
    StepFailed,
    StepLooked,
    StepReverted,
    StepReverting,
    StepVerified,
)
from nodevet.fix.model import Step
from nodevet.fix.rollout.clearance import Clearance, RefusedError
from nodevet.fix.rollout.compare import StepContext, StepStatus
from nodevet.fix.rollout.ledger import new_result, result_of_journal
from nodevet.fix.rollout.left import revertible_part
from nodevet.fix.rollout.session import BlindError, LostError, NodeSession
from nodevet.fix.rollout.verify import Verification, Verifier
from nodevet.fixing.result import Outcome, Ran, Refusal, StepResult, ending_text
from nodevet.fleet.executor import WorkError
from nodevet.resource import State, holds, irreversible_effects, missing, next_resort, one_way

ENDED = "the controller ended in the middle of it"
WITHDRAWN = "the check passes, but the plan is no longer approved, so nodevet reverts the step"
NOT_KEPT = "the check passes, but a setting of the step was changed or cannot be read"


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A step whose actions were begun. `ended`: its result is final; else it is to be verified."""

    step: Step
    result: StepResult
    evidence: Evidence
    ended: bool = False
    then: StepState | None = None  # by the journal, if an earlier controller wrote it


class Steps:
    """The steps of one node."""

    def __init__(self, session: NodeSession, context: StepContext, clearance: Clearance) -> None:
        self.session = session
        self.context = context
        self.clearance = clearance
        self.verifier = Verifier(session, context)
        self.begun: set[str] = set()  # steps with an action that was, or may have been, sent
        self._compared: tuple[Evidence | None, dict[str, StepStatus]] = (None, {})

    # --- before -----------------------------------------------------------------------------

    def status(self, step: Step, evidence: Evidence) -> StepStatus:
        """What to do about a step; compared only once on the same evidence.

        Raises RefusedError if it is stale.
        """
        if self._compared[0] is not evidence:
            self._compared = (evidence, {})
        statuses = self._compared[1]
        if step.id not in statuses:
            status, why = self.context.compare(step, evidence)
            if status is StepStatus.STALE:
                raise RefusedError(Refusal.STALE, f"{step.id}: {why}")
            statuses[step.id] = status
        return statuses[step.id]

    # --- the step ---------------------------------------------------------------------------

    def write(self, step: Step, before: tuple[State, ...], evidence: Evidence) -> Written:
        """Run the step's actions, each after its record in the journal. If one fails, the step is
        reverted; if its end is unknown, `resolve` decides. Raises JournalError."""
        self.session.tell(Phase.WRITING, step.id)
        self.session.journal.write(StepLooked(step=step.id, seen=before))
        result = new_result(step, before=before)
        for number, action in enumerate(step.actions):
            self.session.journal.write(ActionBegin(step=step.id, action=number))
            self.begun.add(step.id)
            try:
                acted = self.session.act(action)
            except WorkError as error:
                why = str(error)
                self.session.journal.write(ActionUnknown(step=step.id, action=number, why=why))
                result = replace(result, ran=(*result.ran, Ran(action=action, ok=None)))
                return self._resolve_lost(step, result, set(range(number)), why, evidence)
            self.session.journal.write(
                ActionEnd(
                    step=step.id,
                    action=number,
                    ok=acted.ok,
                    code=acted.code,
                    output=acted.output,
                )
            )
            ran = Ran(action=action, ok=acted.ok, code=acted.code, output=acted.output)
            result = replace(result, ran=(*result.ran, ran))
            if not acted.ok:
                why = f"{action.short_label}: {ending_text(acted.code, acted.output)}"
                reasons = (why, next_resort(step.actions[:number]))
                reverted = self.revert(step, result, "; ".join(filter(None, reasons)))
                return Written(step=step, result=reverted, evidence=evidence, ended=True)
        return Written(step=step, result=result, evidence=evidence)

    def revert_interrupted(self, step: Step, before: tuple[State, ...], why: str) -> StepResult:
        """Revert a step that was in progress when the journal failed, and nothing else. The journal
        has it as unknown, so a resumed run reads it."""
        result = new_result(step, before=before)
        try:
            differences = self.session.retry_call(lambda: self._restore_all(step, before))
        except LostError as error:
            return replace(result, outcome=Outcome.UNKNOWN, why=f"{why}; {error}")
        except BlindError as error:
            differences = [str(error)]
        if differences:
            reason = f"{why}; rollback failed: {'; '.join(differences)}"
            return replace(result, outcome=Outcome.ROLLBACK_FAILED, why=reason)
        reason = f"{why}; the step was reverted"
        return replace(result, outcome=Outcome.FAILED, why=reason, after=before)

    def record_verified(
        self, step: Step, result: StepResult, verification: Verification
    ) -> StepResult:
        """The result of a step that holds or is unknown; writes it to the journal."""
        result = replace(result, after=verification.after, verdicts=verification.verdicts)
        if verification.gone:
            return replace(result, outcome=Outcome.UNKNOWN, why=verification.why)
        self.session.journal.write(
            StepVerified(step=step.id, verdicts=verification.verdicts, pending=verification.pending)
        )
        outcome = Outcome.PENDING if verification.pending else Outcome.CHANGED
        why = f"effective after a {step.effective}" if verification.pending else result.why
        return replace(result, outcome=outcome, why=why)

    def _verify_alone(
        self,
        step: Step,
        result: StepResult,
        evidence: Evidence,
        record: StepState | None = None,
    ) -> tuple[StepResult, Evidence]:
        """Verify one step; the check decides, and a step that does not hold is reverted.

        `record`: the journal's, if it is unknown whether a command ran: then the step did not fail.
        """
        try:
            proof = self.verifier.verify([step])
        except LostError as error:
            return replace(result, outcome=Outcome.UNKNOWN, why=str(error)), evidence
        verification, evidence = proof.steps[step.id], proof.evidence or evidence
        if verification.gone or not verification.why:
            return self.record_verified(step, result, verification), evidence
        result = replace(result, after=verification.after, verdicts=verification.verdicts)
        was_interrupted = record is not None
        return self.revert(step, result, verification.why, record, again=was_interrupted), evidence

    def journal_states(self, step: Step) -> tuple[State, ...]:
        """The current states of a step's resources, written to the journal for a rollback; empty if
        the node does not report them. Raises LostError.
        """
        try:
            states = self.session.retry_call(lambda: self.session.look(step.resources))
        except BlindError:
            return ()
        self.session.journal.write(StepLooked(step=step.id, seen=states))
        return states

    # --- after ------------------------------------------------------------------------------

    def keep(self, step: Step, result: StepResult) -> StepResult:
        """Run what keeps a step at later boots, once its check passes after a reboot; each action
        is journaled first. Without success, or if the plan's approvals do not suffice any more, the
        step is reverted. If something else changed one of its settings, that one stays as it is.
        The step is unknown if the node is lost meanwhile."""
        try:
            return self._keep(step, result)
        except LostError as error:
            reason = f"while nodevet made it last for later boots: {error}"
            return replace(result, outcome=Outcome.UNKNOWN, why=reason)

    def _keep(self, step: Step, result: StepResult) -> StepResult:
        record = StepState(seen=result.before, after=result.after or None)
        if why := self.clearance.withdrawn():
            return self.revert(step, result, f"{WITHDRAWN} ({brief(why, 80)})", record)
        if self._is_foreign(step, record):
            return self.revert(step, result, NOT_KEPT, record)
        journal, why = self.session.journal, ""
        self.session.tell(Phase.WRITING, step.id)
        for number, action in enumerate(step.keep, len(step.actions)):
            journal.write(ActionBegin(step=step.id, action=number))
            try:
                acted = self.session.retry_call(partial(self.session.act, action))
            except BlindError as error:
                why = f"{action.short_label}: {error}"
                journal.write(ActionUnknown(step=step.id, action=number, why=why))
                break
            ran = Ran(action=action, ok=acted.ok, code=acted.code, output=acted.output)
            result = replace(result, ran=(*result.ran, ran))
            end = ActionEnd(
                step=step.id, action=number, ok=acted.ok, code=acted.code, output=acted.output
            )
            journal.write(end)
            if not acted.ok:
                why = f"{action.short_label}: {ending_text(acted.code, acted.output)}"
                break
        after = self.journal_states(step)
        why = why or "; ".join(
            f"{action.short_label}: it did not take effect"
            for action in step.keep
            if holds(action, after) is False
        )
        if why:
            return self.revert(step, result, f"the check passes, but it cannot be kept: {why}")
        journal.write(StepVerified(step=step.id, verdicts=result.verdicts))
        return replace(
            result, outcome=Outcome.VERIFIED_AFTER_REBOOT, why="", after=after or result.after
        )

    def _is_foreign(self, step: Step, record: StepState) -> bool:
        """Whether a setting of a step cannot be read, or was changed since. Raises LostError."""
        try:
            states = self.session.retry_call(lambda: self.session.look(step.resources))
        except BlindError:
            return True
        return bool(revertible_part(step, record, states).not_restored)

    def revert(
        self,
        step: Step,
        result: StepResult,
        why: str,
        record: StepState | None = None,
        *,
        again: bool = False,
    ) -> StepResult:
        """Revert a step, and verify that. `record`: of an earlier controller's step, of which only
        what nothing else changed is reverted. `again`: the step did not fail; after the revert it
        counts as not attempted, and may begin again."""
        journal = self.session.journal
        self.session.tell(Phase.REVERTING, step.id, why=why)
        if not again:
            journal.write(StepFailed(step=step.id, why=why))
        journal.write(StepReverting(step=step.id, again=again))
        try:
            differences = self.session.retry_call(lambda: self._restore(step, result, record))
        except LostError as error:
            reason = f"{why}; while it was reverted: {error}"
            return replace(result, outcome=Outcome.UNKNOWN, why=reason)
        except BlindError as error:
            differences = [str(error)]
        journal.write(
            StepReverted(step=step.id, ok=not differences, why="; ".join(differences) or why)
        )
        if differences:
            reason = f"{why}; rollback failed: {'; '.join(differences)}"
            return replace(result, outcome=Outcome.ROLLBACK_FAILED, why=reason)
        if again:
            return new_result(step)
        return replace(result, outcome=Outcome.FAILED, why=why, after=result.before)

    def _restore(self, step: Step, result: StepResult, record: StepState | None) -> list[str]:
        """Restore a step's resources. Returns the remaining differences in words."""
        if record is None or record.seen is None:
            return self._restore_all(step, result.before)
        current = self.session.look(step.resources)
        parts = revertible_part(step, record, current)
        gone = missing(step.actions, record.seen, current)
        return [
            *parts.not_restored,
            *gone.values(),
            *self.session.restore(parts.ours, parts.actions),
        ]

    def _restore_all(self, step: Step, before: tuple[State, ...]) -> list[str]:
        """Restore a step's resources to these states. Returns the remaining differences, and what
        is missing since nothing can undo it, in words."""
        is_one_way = bool(one_way(step.actions))
        current = self.session.look(step.resources) if is_one_way else ()
        gone = irreversible_effects(step.actions, before, current)
        ours = tuple(state for state in before if state.resource not in gone)
        missed = missing(step.actions, before, current)
        return [*missed.values(), *self.session.restore(ours, step.actions)]

    def _resolve_lost(
        self, step: Step, result: StepResult, done: set[int], why: str, evidence: Evidence
    ) -> Written:
        try:
            self.session.reenter()
        except LostError as error:
            result = replace(result, outcome=Outcome.UNKNOWN, why=f"{why}; {error}")
        else:
            reason = f"the session was lost ({why})"
            result, evidence = self.resolve(step, result, done, reason, evidence)
        return Written(step=step, result=result, evidence=evidence, ended=True)

    def resolve(
        self,
        step: Step,
        result: StepResult,
        done: set[int],
        why: str,
        evidence: Evidence,
        record: StepState | None = None,
    ) -> tuple[StepResult, Evidence]:
        """Resolve a step that was left in the middle: keep it if all its actions took effect, else
        revert it; with a `record` of an earlier controller it then counts as not attempted.

        `done`: the actions that are known to have succeeded. The first other action may be a
        command whose effect only the check shows; later ones never began.
        """
        settle = self.session.terms.settle
        self.session.tell(Phase.SETTLING, step.id, seconds=settle)
        time.sleep(settle)  # what was begun may still run
        try:
            current = self.session.retry_call(lambda: self.session.look(step.resources))
        except LostError as error:
            return replace(result, outcome=Outcome.UNKNOWN, why=f"{why}; {error}"), evidence
        except BlindError as error:
            return self.revert(step, result, f"{why}; {error}", record), evidence
        if (
            record is not None
            and record.seen is not None
            and revertible_part(step, record, current).not_restored
        ):
            return self.revert(step, result, why, record), evidence
        remaining = [number for number in range(len(step.actions)) if number not in done]
        missing = [
            number
            for number in remaining
            if not (
                holds(step.actions[number], current)
                or (holds(step.actions[number], current) is None and number == remaining[0])
            )
        ]
        if missing:
            labels = ", ".join(step.actions[number].short_label for number in missing)
            reason, again = f"{why} before all was done: {labels}", record is not None
            return self.revert(step, result, reason, record, again=again), evidence
        complete = replace(result, why=f"{why}; all of it was done")
        is_uncertain = any(holds(step.actions[number], current) is None for number in remaining)
        return self._verify_alone(step, complete, evidence, record if is_uncertain else None)

    def resume(
        self, step: Step, state: StepState, evidence: Evidence
    ) -> tuple[StepResult, Evidence]:
        """Resume a step whose outcome an earlier controller left unknown.

        If it was interrupted and is reverted, it counts as not attempted.
        """
        why = state.why or ENDED
        result = result_of_journal(step, state)
        if missing := self.context.gone_text(step, evidence):
            return replace(result, outcome=Outcome.UNKNOWN, why=f"{why}; {missing}"), evidence
        if state.rolling_back or state.stage.value == "failed":
            again = state.rolling_back and state.again
            return self.revert(step, result, why, state, again=again), evidence
        return self.resolve(step, result, set(state.done), why, evidence, state)
