"""Steps on one node: what is asked before one is written, its actions, and how it is reverted."""

import time

import msgspec
from msgspec.structs import replace

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
from nodevet.fix.rollout.left import parted
from nodevet.fix.rollout.session import BlindError, LostError, NodeSession
from nodevet.fix.rollout.step_results import begin, recalled
from nodevet.fix.rollout.verify import Verification, Verifier
from nodevet.fixing.result import Outcome, Ran, Refusal, StepResult, said
from nodevet.fleet.executor import WorkError
from nodevet.resource import State, holds

ENDED = "the controller ended in the middle of it"


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
        """What is to be done about a step, compared once on the same evidence.

        Raises RefusedError if it is stale.
        """
        if self._compared[0] is not evidence:
            self._compared = (evidence, {})
        known = self._compared[1]
        if step.id not in known:
            status, why = self.context.compare(step, evidence)
            if status is StepStatus.STALE:
                raise RefusedError(Refusal.STALE, f"{step.id}: {why}")
            known[step.id] = status
        return known[step.id]

    # --- the step ---------------------------------------------------------------------------

    def write(self, step: Step, before: tuple[State, ...], evidence: Evidence) -> Written:
        """Its actions, each journaled before. One that fails is reverted; one whose end
        is unknown is resolved. Raises JournalError."""
        self.session.tell(Phase.WRITING, step.id)
        self.session.journal.write(StepLooked(step=step.id, seen=before))
        result = begin(step, before=before)
        for number, action in enumerate(step.actions):
            self.session.journal.write(ActionBegin(step=step.id, action=number))
            self.begun.add(step.id)
            try:
                acted = self.session.act(action)
            except WorkError as error:
                why = str(error)
                self.session.journal.write(ActionUnknown(step=step.id, action=number, why=why))
                result = replace(result, ran=(*result.ran, Ran(action=action, ok=None)))
                return self._lost(step, result, set(range(number)), why, evidence)
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
                why = f"{action.label}: {said(acted.code, acted.output)}"
                back = self.revert(step, result, why)
                return Written(step=step, result=back, evidence=evidence, ended=True)
        return Written(step=step, result=result, evidence=evidence)

    def unwritten(self, step: Step, before: tuple[State, ...], why: str) -> StepResult:
        """A step in hand when the journal could not be written any more: reverted, which is all
        that may be done then. By the journal it is unknown, so a resumed run looks at it."""
        result = begin(step, before=before)
        try:
            left = self.session.steadily(lambda: self.session.restore(before, step.actions))
        except LostError as error:
            return replace(result, outcome=Outcome.UNKNOWN, why=f"{why}; {error}")
        except BlindError as error:
            left = [str(error)]
        if left:
            told = f"{why}; rollback failed: {'; '.join(left)}"
            return replace(result, outcome=Outcome.ROLLBACK_FAILED, why=told)
        told = f"{why}; the step was reverted"
        return replace(result, outcome=Outcome.FAILED, why=told, after=before)

    def judged(self, step: Step, result: StepResult, held: Verification) -> StepResult:
        """A step that holds, or that is unknown, as the journal has it from now on."""
        result = replace(result, after=held.after, verdicts=held.verdicts)
        if held.gone:
            return replace(result, outcome=Outcome.UNKNOWN, why=held.why)
        self.session.journal.write(
            StepVerified(step=step.id, verdicts=held.verdicts, pending=held.pending)
        )
        outcome = Outcome.PENDING if held.pending else Outcome.CHANGED
        why = f"in force after a {step.effective}" if held.pending else result.why
        return replace(result, outcome=outcome, why=why)

    def _judged(
        self,
        step: Step,
        result: StepResult,
        evidence: Evidence,
        unheard: StepState | None = None,
    ) -> tuple[StepResult, Evidence]:
        """One step by itself: the check decides; what it does not agree with is reverted.

        `unheard` is what the journal says of a step if it is unknown whether a command took place:
        one that did not has not failed.
        """
        try:
            proof = self.verifier.verify([step])
        except LostError as error:
            return replace(result, outcome=Outcome.UNKNOWN, why=str(error)), evidence
        held, evidence = proof.steps[step.id], proof.evidence or evidence
        if held.gone or not held.why:
            return self.judged(step, result, held), evidence
        result = replace(result, after=held.after, verdicts=held.verdicts)
        again = unheard is not None
        return self.revert(step, result, held.why, unheard, again=again), evidence

    def left(self, step: Step) -> tuple[State, ...]:
        """What a step changed, as it is now, for the journal; empty if the node does not say.

        A rollback goes by it. Raises LostError.
        """
        try:
            seen = self.session.steadily(lambda: self.session.look(step.resources))
        except BlindError:
            return ()
        self.session.journal.write(StepLooked(step=step.id, seen=seen))
        return seen

    # --- after ------------------------------------------------------------------------------

    def revert(
        self,
        step: Step,
        result: StepResult,
        why: str,
        then: StepState | None = None,
        *,
        again: bool = False,
    ) -> StepResult:
        """Revert a step and verify that: at once, or, if `then` is what the journal says of an
        earlier controller's step, all of it that was not changed since. `again`: it did not fail;
        once it is reverted it is not attempted, and may be begun again."""
        journal = self.session.journal
        self.session.tell(Phase.REVERTING, step.id, why=why)
        if not again:
            journal.write(StepFailed(step=step.id, why=why))
        journal.write(StepReverting(step=step.id, again=again))
        try:
            left = self.session.steadily(lambda: self._restore(step, result, then))
        except LostError as error:
            told = f"{why}; while it was reverted: {error}"
            return replace(result, outcome=Outcome.UNKNOWN, why=told)
        except BlindError as error:
            left = [str(error)]
        journal.write(StepReverted(step=step.id, ok=not left, why="; ".join(left) or why))
        if left:
            told = f"{why}; rollback failed: {'; '.join(left)}"
            return replace(result, outcome=Outcome.ROLLBACK_FAILED, why=told)
        if again:
            return begin(step)
        return replace(result, outcome=Outcome.FAILED, why=why, after=result.before)

    def _restore(self, step: Step, result: StepResult, then: StepState | None) -> list[str]:
        """What is not as it was, in words."""
        if then is None or then.seen is None:
            return self.session.restore(result.before, step.actions)
        parts = parted(step, then, self.session.look(step.resources))
        return [*parts.told, *self.session.restore(parts.ours, parts.actions)]

    def _lost(
        self, step: Step, result: StepResult, done: set[int], why: str, evidence: Evidence
    ) -> Written:
        try:
            self.session.reenter()
        except LostError as error:
            result = replace(result, outcome=Outcome.UNKNOWN, why=f"{why}; {error}")
        else:
            told = f"the session was lost ({why})"
            result, evidence = self.resolve(step, result, done, told, evidence)
        return Written(step=step, result=result, evidence=evidence, ended=True)

    def resolve(
        self,
        step: Step,
        result: StepResult,
        done: set[int],
        why: str,
        evidence: Evidence,
        then: StepState | None = None,
    ) -> tuple[StepResult, Evidence]:
        """A step that was left in the middle: done if all of it is in place, else reverted as
        `revert` does, and then not attempted if `then` says that a controller ended there.

        `done` are the actions that are known to have succeeded. Of the first other one, a
        command, the check tells whether it took place; one after it was never begun.
        """
        settle = self.session.terms.settle
        self.session.tell(Phase.SETTLING, step.id, seconds=settle)
        time.sleep(settle)  # what was begun may still run
        try:
            now = self.session.steadily(lambda: self.session.look(step.resources))
        except LostError as error:
            return replace(result, outcome=Outcome.UNKNOWN, why=f"{why}; {error}"), evidence
        except BlindError as error:
            return self.revert(step, result, f"{why}; {error}", then), evidence
        if then is not None and then.seen is not None and parted(step, then, now).told:
            return self.revert(step, result, why, then), evidence
        open_ones = [number for number in range(len(step.actions)) if number not in done]
        missing = [
            number
            for number in open_ones
            if not (
                holds(step.actions[number], now)
                or (holds(step.actions[number], now) is None and number == open_ones[0])
            )
        ]
        if missing:
            named = ", ".join(step.actions[number].label for number in missing)
            cut, again = f"{why} before all was done: {named}", then is not None
            return self.revert(step, result, cut, then, again=again), evidence
        told = replace(result, why=f"{why}; all of it had taken place")
        unheard = any(holds(step.actions[number], now) is None for number in open_ones)
        return self._judged(step, told, evidence, then if unheard else None)

    def resume(
        self, step: Step, state: StepState, evidence: Evidence
    ) -> tuple[StepResult, Evidence]:
        """A step of which an earlier controller left the outcome unknown.

        Not attempted: it was interrupted, and is reverted.
        """
        why = state.why or ENDED
        result = recalled(step, state)
        if missing := self.context.gone(step, evidence):
            return replace(result, outcome=Outcome.UNKNOWN, why=f"{why}; {missing}"), evidence
        if state.rolling_back or state.stage.value == "failed":
            again = state.rolling_back and state.again
            return self.revert(step, result, why, state, again=again), evidence
        return self.resolve(step, result, set(state.done), why, evidence, state)
