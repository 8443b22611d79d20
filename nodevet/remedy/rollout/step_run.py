"""One step on one node: write, let the check decide, put back what it does not agree with."""

import time
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from nodevet.evidence.document import Evidence
from nodevet.fleet.executor import WorkError
from nodevet.model import NODE
from nodevet.remedy.journal.journal import (
    ActionBegin,
    ActionEnd,
    ActionUnknown,
    JournalError,
    StepFailed,
    StepLooked,
    StepReverted,
    StepReverting,
    StepState,
    StepVerified,
)
from nodevet.remedy.model import Step
from nodevet.remedy.rollout.clearance import Clearance, RefusedError
from nodevet.remedy.rollout.compare import StepContext, StepStatus
from nodevet.remedy.rollout.left import parted
from nodevet.remedy.rollout.session import BlindError, LostError, NodeSession
from nodevet.remedy.rollout.step_results import begin, recalled
from nodevet.resource import (
    RestoreError,
    State,
    apart,
    holds,
    kind_of,
    moved,
    restarts,
    restore,
    same,
    unnamed,
)
from nodevet.result import Outcome, Ran, Refusal, StepResult, said


class MovedError(Exception):
    """Settings of earlier steps are no longer what they were; nothing was written."""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a step holds. `why` says why not; then `evidence` may be missing.

    `gone`: nobody can tell, for what it is about is not there any more.
    """

    why: str = ""
    gone: bool = False
    after: tuple[State, ...] = ()
    evidence: Evidence | None = None
    pending: bool = False
    verdicts: Mapping[str, str] = {}


class Steps:
    """The steps of one node, each at a time."""

    def __init__(self, session: NodeSession, context: StepContext, clearance: Clearance) -> None:
        self.session = session
        self.context = context
        self.clearance = clearance
        self.begun: set[str] = set()  # steps with an action that was, or may have been, sent
        self.witness: tuple[State, ...] = ()
        """What was watched, right after the last action of the last step; empty: not looked at."""

    # --- before -----------------------------------------------------------------------------

    def status(self, step: Step, evidence: Evidence) -> StepStatus:
        """What is to be done about a step. Raises RefusedError."""
        status, why = self.context.compare(step, evidence)
        if status is StepStatus.STALE:
            raise RefusedError(Refusal.STALE, f"{step.id}: {why}")
        return status

    def unmanaged(self, steps: Sequence[Step]) -> None:
        """Raises RefusedError where something else on the node sets what these steps touch."""
        resources = tuple(dict.fromkeys(resource for step in steps for resource in step.resources))
        try:
            owners = self.session.executor.managers(self.session.host, resources)
        except WorkError as error:
            raise RefusedError(Refusal.UNREACHABLE, str(error)) from error
        others = [f"{label}: {', '.join(who)}" for label, who in sorted(owners.items()) if who]
        if others:
            raise RefusedError(Refusal.MANAGER, f"set elsewhere too: {'; '.join(others)}")

    def earlier(self, step: Step) -> tuple[State, ...]:
        """As `as_planned`. Raises RefusedError where something else on the node sets it too."""
        before = self.as_planned(step)
        self.unmanaged([step])
        return before

    def as_planned(self, step: Step) -> tuple[State, ...]:
        """What a step touches, as it is now.

        Raises RefusedError where that is not what it was when planned, or cannot be put back.
        """
        if stray := ", ".join(each.label for each in unnamed(step.actions, step.resources)):
            raise RefusedError(
                Refusal.PRECONDITION, f"{step.id}: it would change what it does not name: {stray}"
            )
        try:
            before = self.session.look(step.resources)
            restore(*before, actions=step.actions)
        except WorkError as error:
            raise RefusedError(Refusal.UNREACHABLE, f"{step.id}: {error}") from error
        except (BlindError, RestoreError) as error:
            raise RefusedError(
                Refusal.PRECONDITION, f"{step.id}: there is no way back: {error}"
            ) from error
        planned = {seen.resource: seen for seen in step.before}
        for seen in before:
            then = planned.get(seen.resource)
            if then is not None and not same(then, seen):
                told = f"{seen.resource.label} {apart(then, seen)} when planned"
                raise RefusedError(Refusal.STALE, f"{step.id}: {told}")
        return before

    # --- the step ---------------------------------------------------------------------------

    def carry_out(
        self, step: Step, evidence: Evidence, watched: Sequence[State] = ()
    ) -> tuple[StepResult, Evidence]:
        """A step from compare to verified. Raises RefusedError; after that nothing was written.

        `watched` are settings of earlier steps, as these left them. Raises MovedError where one is
        another by now.
        """
        self.witness = ()
        status = self.status(step, evidence)
        if status is StepStatus.UNCHANGED:
            verdicts = self.verdicts(step, evidence)
            return begin(step, outcome=Outcome.UNCHANGED, verdicts=verdicts), evidence
        if status is StepStatus.PENDING:
            why = f"set already, in force after a {step.effective}"
            return begin(step, outcome=Outcome.PENDING, why=why), evidence
        before = self.earlier(step)
        self.clearance.step(step, evidence)
        if moved(watched, self._watch(watched)):
            raise MovedError
        self.session.journal.write(StepLooked(step=step.id, seen=before))
        try:
            return self._acted(step, begin(step, before=before), evidence, watched)
        except JournalError as error:
            if step.id not in self.begun:
                raise
            return self._unwritten(step, begin(step, before=before), str(error)), evidence

    def _acted(
        self, step: Step, result: StepResult, evidence: Evidence, watched: Sequence[State]
    ) -> tuple[StepResult, Evidence]:
        """Its actions, each journaled before, and the check. Raises JournalError."""
        ran: list[Ran] = []
        for number, action in enumerate(step.actions):
            self.session.journal.write(ActionBegin(step=step.id, action=number))
            self.begun.add(step.id)
            try:
                acted = self.session.executor.act(self.session.host, action)
            except WorkError as error:
                why = str(error)
                self.session.journal.write(ActionUnknown(step=step.id, action=number, why=why))
                ran.append(Ran(action=action, ok=None))
                result = replace(result, ran=tuple(ran))
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
            ran.append(Ran(action=action, ok=acted.ok, code=acted.code, output=acted.output))
            result = replace(result, ran=tuple(ran))
            if not acted.ok:
                why = f"{action.label}: {said(acted.code, acted.output)}"
                return self.revert(step, result, why), evidence
        self.witness = self._watch(watched)
        return self._judged(step, result, evidence)

    def _unwritten(self, step: Step, result: StepResult, why: str) -> StepResult:
        """A step in hand when the journal could not be written any more: reverted, which is all
        that may be done then. The journal leaves it in doubt, so a resumed run looks at it."""
        try:
            left = self.session.steadily(lambda: self.session.restore(result.before, step.actions))
        except LostError as error:
            return replace(result, outcome=Outcome.UNKNOWN, why=f"{why}; {error}")
        except BlindError as error:
            left = [str(error)]
        if left:
            told = f"{why}; it could not be put back: {'; '.join(left)}"
            return replace(result, outcome=Outcome.ROLLBACK_FAILED, why=told)
        told = f"{why}; the step was reverted"
        return replace(result, outcome=Outcome.FAILED, why=told, after=result.before)

    def _watch(self, watched: Sequence[State]) -> tuple[State, ...]:
        """What watched settings are now; nothing where the node does not say so at once: later
        would be too late to tell who moved them."""
        try:
            return self.session.look([seen.resource for seen in watched]) if watched else ()
        except (WorkError, BlindError):  # whoever asks next learns that, too
            return ()

    def _judged(
        self,
        step: Step,
        result: StepResult,
        evidence: Evidence,
        unheard: StepState | None = None,
    ) -> tuple[StepResult, Evidence]:
        """The check decides; what it does not agree with is put back.

        `unheard` is what the journal says of a step where nobody knows whether a command took
        place: one that did not has not failed.
        """
        try:
            held = self.held(step)
        except LostError as error:
            return replace(result, outcome=Outcome.UNKNOWN, why=str(error)), evidence
        result = replace(result, after=held.after, verdicts=held.verdicts)
        if held.gone:
            told = replace(result, outcome=Outcome.UNKNOWN, why=held.why)
            return told, held.evidence or evidence
        if held.why:
            back = self.revert(step, result, held.why, unheard, again=unheard is not None)
            return back, held.evidence or evidence
        self.session.journal.write(
            StepVerified(step=step.id, verdicts=held.verdicts, pending=held.pending)
        )
        outcome = Outcome.PENDING if held.pending else Outcome.CHANGED
        why = f"in force after a {step.effective}" if held.pending else result.why
        return replace(result, outcome=outcome, why=why), held.evidence or evidence

    def held(self, step: Step) -> Verification:
        """Whether a step that was written holds, also a moment later. Raises LostError."""
        try:
            return self.session.steadily(lambda: self._held(step))
        except BlindError as error:
            return Verification(why=f"cannot be verified: {error}")

    def _held(self, step: Step) -> Verification:
        first = self.session.look(step.resources)
        self.session.journal.write(StepLooked(step=step.id, seen=first))  # what the step left
        time.sleep(self.session.terms.settle)
        after = self.session.look(step.resources)
        if any(not same(one, two) for one, two in zip(first, after, strict=True)):
            self.session.journal.write(StepLooked(step=step.id, seen=after))
        evidence = self.session.probe("after")
        if why := self.context.gone(step, evidence):
            return Verification(why=why, gone=True, after=after, evidence=evidence)
        lost = [
            one.resource.label
            for one, two in zip(first, after, strict=True)
            if kind_of(one.resource).is_setting and not same(one, two)
        ]
        if lost:
            why = f"does not stay as it was set: {', '.join(lost)}"
            return Verification(why=why, after=after, evidence=evidence)
        held = self.verdict(step, evidence, after)
        if held.gone or not restarts(step.actions):
            return held
        limit = time.monotonic() + self.session.terms.boot_settle
        while held.why and time.monotonic() < limit:  # until it is on its GPUs again
            time.sleep(max(0.05, self.session.terms.settle))
            held = self.verdict(step, self.session.probe("after"), after)
        return held

    def left(self, step: Step) -> tuple[State, ...]:
        """What a step's touches are now, for the journal; empty where the node does not say.

        A rollback goes by it. Raises LostError.
        """
        try:
            seen = self.session.steadily(lambda: self.session.look(step.resources))
        except BlindError:
            return ()
        self.session.journal.write(StepLooked(step=step.id, seen=seen))
        return seen

    def verdict(self, step: Step, evidence: Evidence, after: tuple[State, ...]) -> Verification:
        """What the check says of a step on this evidence."""
        why = self.context.verdict(step, evidence)
        held = Verification(after=after, evidence=evidence, verdicts=self.verdicts(step, evidence))
        if not why:
            return held
        if self.context.gone(step, evidence):
            return replace(held, why=why, gone=True)
        if step.effective != "now" and self._in_place(step, evidence, after):
            return replace(held, pending=True)
        return replace(held, why=f"the check says: {why}")

    def verdicts(self, step: Step, evidence: Evidence) -> dict[str, str]:
        """What the step's check says of each subject."""
        return {
            finding.subject.label or NODE.kind: finding.verdict.value
            for finding in self.context.ask(step.fix, evidence)
        }

    def _in_place(self, step: Step, evidence: Evidence, after: tuple[State, ...]) -> bool:
        """Whether what comes into force later is set: as the check would say then, or, of what
        the evidence does not show before a reboot, as the node shows it."""
        if any(kind_of(each).waits(each, evidence) is not None for each in step.resources):
            return self.context.waits(step, evidence)
        last = {action.resource or action: action for action in step.actions}
        return all(holds(action, after) is not False for action in last.values())

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
        """Put a step back and prove it: at once, or, where `then` is what the journal says of an
        earlier controller's step, all of it that nobody changed since. `again`: it did not fail;
        once it is put back it is untouched, and may be begun anew."""
        journal = self.session.journal
        if not again:
            journal.write(StepFailed(step=step.id, why=why))
        journal.write(StepReverting(step=step.id, again=again))
        try:
            left = self.session.steadily(lambda: self._restore(step, result, then))
        except LostError as error:
            told = f"{why}; while it was put back: {error}"
            return replace(result, outcome=Outcome.UNKNOWN, why=told)
        except BlindError as error:
            left = [str(error)]
        journal.write(StepReverted(step=step.id, ok=not left, why="; ".join(left) or why))
        if left:
            told = f"{why}; it could not be put back: {'; '.join(left)}"
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
    ) -> tuple[StepResult, Evidence]:
        try:
            self.session.reenter()
        except LostError as error:
            return replace(result, outcome=Outcome.UNKNOWN, why=f"{why}; {error}"), evidence
        return self.resolve(step, result, done, f"the session was lost ({why})", evidence)

    def resolve(
        self,
        step: Step,
        result: StepResult,
        done: set[int],
        why: str,
        evidence: Evidence,
        then: StepState | None = None,
    ) -> tuple[StepResult, Evidence]:
        """A step that was left in the middle: done where all of it is in place, else put back as
        `revert` does, and then untouched where `then` says that a controller ended there.

        `done` are the actions that are known to have succeeded. Of the first other one, a
        command, the check tells whether it took place; one after it was never begun.
        """
        time.sleep(self.session.terms.settle)  # what was begun may still run
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
        """A step that an earlier controller left in doubt, or did not have judged.

        Untouched: it was interrupted, and is put back.
        """
        why = state.why or "the controller ended in the middle of it"
        result = recalled(step, state)
        if missing := self.context.gone(step, evidence):
            return replace(result, outcome=Outcome.UNKNOWN, why=f"{why}; {missing}"), evidence
        if state.rolling_back or state.stage.value == "failed":
            again = state.rolling_back and state.again
            return self.revert(step, result, why, state, again=again), evidence
        return self.resolve(step, result, set(state.done), why, evidence, state)
