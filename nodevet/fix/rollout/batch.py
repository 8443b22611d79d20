"""Steps that are written one after the other and verified together, with one settle wait for all.

Before each write nodevet reads the step's resources and writes them to the journal. It also reads
the settings of the steps before, which shows which step changed a setting of another one.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from nodevet.evidence.document import Evidence
from nodevet.fix.journal.journal import JournalError
from nodevet.fix.journal.records import StepLooked
from nodevet.fix.model import Step
from nodevet.fix.rollout.before import read_states, require_planned_state
from nodevet.fix.rollout.clearance import RefusedError
from nodevet.fix.rollout.compare import StepStatus
from nodevet.fix.rollout.earlier import Earlier, settings_of
from nodevet.fix.rollout.ledger import WRITTEN, Ledger, of_packages
from nodevet.fix.rollout.session import BlindError, LostError
from nodevet.fix.rollout.step_run import Steps, Written
from nodevet.fix.rollout.verify import Looks, Verified
from nodevet.fixing.model import Risk
from nodevet.fixing.result import Outcome
from nodevet.resource import Resource, State, changed_settings, kind_of, may_change, restarts


class MovedError(Exception):
    """Settings of earlier steps have changed; nothing was written."""


def is_verified_together(step: Step) -> bool:
    """Whether a step may be verified with others: it is live, in force at once, and restarts
    nothing, so the time of the look does not matter."""
    return (
        step.risk is Risk.LIVE
        and step.effective == "now"
        and not (restarts(step.actions) or step.holders or of_packages(step))
    )


def batch_of(steps: Sequence[Step], status: Mapping[str, StepStatus]) -> tuple[Step, ...]:
    """The first of these steps, with later ones that may be verified together with it.

    Steps whose `status` is unchanged or pending are skipped, and compared again after the batch.
    Two steps that change one resource are never in one batch.
    """
    first, *later = steps
    batch, resources = [first], set(first.resources)
    for step in later if is_verified_together(first) else ():
        if not is_verified_together(step) or not resources.isdisjoint(step.resources):
            break
        if status.get(step.id) is StepStatus.GO:
            batch.append(step)
            resources |= set(step.resources)
    return tuple(batch)


class StepBatch:
    """One batch on one node."""

    def __init__(self, ledger: Ledger, steps: Steps) -> None:
        self._ledger = ledger
        self._steps = steps
        self._earlier = Earlier(ledger, steps)
        self._open: list[Written] = []  # written, and not verified yet
        self._left: dict[str, tuple[State, ...]] = {}  # right after its last action, and journaled
        self._looks: dict[str, Looks] = {}  # by the step after whose last action it was

    def run(
        self, batch: Sequence[Step], evidence: Evidence, watched: Sequence[State] = ()
    ) -> Evidence:
        """Write and verify. The batch ends before a step that may not be written, or before a
        setting that changed meanwhile. The results are in the ledger.

        `watched` are settings of earlier steps, as these left them. Raises MovedError if one has
        changed, and RefusedError, both only if nothing was written; and JournalError.
        """
        states_before: dict[str, tuple[State, ...]] = {}  # step -> what was there before it
        try:
            evidence = self._write(batch, evidence, watched, states_before)
            return self.verify(evidence)
        except JournalError as error:
            results, begun_steps = self._ledger.results, self._steps.begun
            steps = [step for step in batch if step.id in begun_steps and step.id not in results]
            if not steps:
                raise
            for step in reversed(steps):
                result = self._steps.revert_interrupted(step, states_before[step.id], str(error))
                self._ledger.results[step.id] = result
            return evidence

    def resume(self, steps: Sequence[Written], evidence: Evidence) -> Evidence:
        """Verify steps that an earlier controller wrote completely but did not verify."""
        self._open += steps
        return self.verify(evidence)

    # --- written ------------------------------------------------------------------------------

    def _write(
        self,
        batch: Sequence[Step],
        evidence: Evidence,
        watched: Sequence[State],
        states_before: dict[str, tuple[State, ...]],
    ) -> Evidence:
        for step in batch:
            try:
                states = read_states(self._steps.session, step, self._watched_resources(watched))
                self._note(states)
                before = require_planned_state(self._steps.session, step, states)
                self._steps.clearance.step(step, evidence)
            except RefusedError:
                if self._open:  # it is met again once these are verified
                    return evidence
                raise
            if changed_settings(watched, list(states.values())):
                if self._open:
                    return evidence
                raise MovedError
            if any(self._has_moved(open_step.step, states) for open_step in self._open):
                return evidence
            states_before[step.id] = before
            step_written = self._steps.write(step, before, evidence)
            if step_written.ended:
                self._ledger.results[step.id] = step_written.result
                return step_written.evidence
            self._open.append(step_written)
        return evidence

    def _watched_resources(self, watched: Sequence[State]) -> list[Resource]:
        """What to read besides a step's own resources: settings of earlier steps, and all resources
        of the last one."""
        resources = [
            resource
            for written in self._open
            for resource in written.step.resources
            if kind_of(resource).is_setting or written is self._open[-1]
        ]
        return [*(state.resource for state in watched), *resources]

    def _note(self, states: Looks) -> None:
        """Record what the last step left, as read before the next one."""
        if self._open:
            last_step = self._open[-1].step
            self._looks[last_step.id] = states
            self._left[last_step.id] = tuple(states[resource] for resource in last_step.resources)
            journal = self._steps.session.journal
            journal.write(StepLooked(step=last_step.id, seen=self._left[last_step.id]))

    def _has_moved(self, step: Step, states: Looks) -> bool:
        return bool(changed_settings(self._left.get(step.id, ()), list(states.values())))

    # --- verified -----------------------------------------------------------------------------

    def verify(self, evidence: Evidence) -> Evidence:
        """Settle, read and probe once; the check of each step decides. Steps that do not hold are
        reverted. Returns the new evidence."""
        if not self._open:
            return evidence
        results, earlier = self._ledger.results, self._ledger.written()
        watched = [state.resource for state in self._earlier.settings()]
        steps = [written.step for written in self._open]
        try:
            proof = self._steps.verifier.verify(steps, self._left, watched)
        except LostError as error:
            for written in self._open:
                unknown = replace(written.result, outcome=Outcome.UNKNOWN, why=str(error))
                results[written.step.id] = unknown
            return evidence
        evidence = proof.evidence or evidence
        self._looks[steps[-1].id] = proof.witness
        failed = [written for written in self._open if self._has_failed(written, proof)]
        for written in self._open:
            verification = proof.steps[written.step.id]
            if written not in failed:
                results[written.step.id] = self._steps.record_verified(
                    written.step, written.result, verification
                )
        verified = [step for step in steps if self._ledger.outcome(step) in WRITTEN]
        broken = []
        if verified and not self._ledger.dark(evidence):
            broken = self._earlier.broken_steps(earlier, evidence)
        return self._revert_undone(failed, broken, proof, evidence)

    @staticmethod
    def _has_failed(written: Written, proof: Verified) -> bool:
        verification = proof.steps[written.step.id]
        return bool(verification.why) and not verification.gone

    def _revert_undone(
        self,
        failed_steps: Sequence[Written],
        broken: Sequence[Step],
        proof: Verified,
        evidence: Evidence,
    ) -> Evidence:
        """Revert failed steps, broken earlier steps, and the steps that undid them."""
        if not (failed_steps or broken):
            return evidence
        undone: dict[str, list[Step]] = {}  # by the step that undid them
        for step in [written.step for written in failed_steps] + list(broken):
            if culprit := self._culprit(step):
                undone.setdefault(culprit.id, []).append(step)
        victims = {step.id for steps in undone.values() for step in steps}
        independent = [step for step in broken if step.id not in victims]
        outside = {written.step.id: self._reset_outside(written.step) for written in failed_steps}
        last_step = self._open[-1].step
        self._earlier.reset(independent, f"after {last_step.id} was written")
        by_id = {written.step.id: written for written in self._open}
        failures = {written.step.id: proof.steps[written.step.id] for written in failed_steps}
        for id in reversed(by_id):
            own_reason = (
                failures[id].why + outside[id] if id in failures and id not in victims else ""
            )
            why = f"it undoes {', '.join(step.id for step in undone[id])}" if id in undone else ""
            if reason := "; ".join(filter(None, (own_reason, why))):
                self._revert(by_id[id], proof, reason)
        for id, steps in undone.items():
            evidence = self._judge_after_revert(id, steps, by_id, proof, evidence)
        return evidence

    def _revert(self, written: Written, proof: Verified, why: str) -> None:
        verification = proof.steps[written.step.id]
        result = replace(written.result, after=verification.after, verdicts=verification.verdicts)
        self._ledger.results[written.step.id] = self._steps.revert(
            written.step, result, why, written.then
        )

    def _judge_after_revert(
        self,
        id: str,
        steps: Sequence[Step],
        by_id: Mapping[str, Written],
        proof: Verified,
        evidence: Evidence,
    ) -> Evidence:
        """Judge steps again after the revert of the step that undid them."""
        reason = f"undone by {id}"
        results = self._ledger.results
        try:
            evidence = self._earlier.probe()
        except BlindError as error:
            reason = f"cannot be verified after {id} was reverted: {error}"
            still_undone = list(steps)
        else:
            for step in steps:
                if step.id in by_id and step.id not in results:
                    written = by_id[step.id]
                    after = self._steps.journal_states(step) or proof.steps[step.id].after
                    verification = self._steps.verifier.verdict(step, evidence, after)
                    if not verification.why or verification.gone:
                        results[step.id] = self._steps.record_verified(
                            step, written.result, verification
                        )
            earlier = [step for step in steps if step.id in results]
            still_undone = [step for step in steps if step.id not in results]
            still_undone += self._earlier.broken_steps(
                [step for step in earlier if self._ledger.outcome(step) in WRITTEN], evidence
            )
        for step in reversed(still_undone):
            if step.id in by_id and step.id not in results:
                self._revert(by_id[step.id], proof, reason)
            else:
                self._earlier.revert(step, reason)
        return evidence

    def _culprit(self, step: Step) -> Step | None:
        """The step of the batch that changed the settings of an earlier one; None if no step can
        have written them."""
        candidate = self._seen_after(step)
        return candidate if candidate and self._can_undo(candidate, step) else None

    def _can_undo(self, later: Step, step: Step) -> bool:
        """Whether a later step can have written the changed settings of an earlier one; all count
        as changed if they were not read."""
        settings, states = self._settings(step), [*self._looks.get(later.id, {}).values()]
        suspects = [state for state, _ in changed_settings(settings, states)] or settings
        return any(
            may_change(later.actions, later.resources, suspect.resource) for suspect in suspects
        )

    def _reset_outside(self, step: Step) -> str:
        """A remark for a step whose settings changed although no step can have written them."""
        candidate = self._seen_after(step)
        if candidate is None or self._can_undo(candidate, step):
            return ""
        return f": something else reset it, not {candidate.id}"

    def _seen_after(self, step: Step) -> Step | None:
        """The step of the batch after whose last action the settings of an earlier one had changed;
        None if there is none."""
        is_own = step.id in {written.step.id for written in self._open}
        settings = self._settings(step)
        after = [written.step for written in self._open]
        if is_own:
            after = after[after.index(step) + 1 :]
        for later_step in after:
            states = self._looks.get(later_step.id, {})
            readable = {resource for resource, state in states.items() if not state.why}
            if changed_settings(settings, list(states.values())):
                return later_step
            if not is_own and not (
                settings and readable >= {written.resource for written in settings}
            ):
                return after[-1]  # not known to have been left alone
        return None

    def _settings(self, step: Step) -> tuple[State, ...]:
        result = self._ledger.results.get(step.id)
        if step.id in self._left:
            return tuple(
                state for state in self._left[step.id] if kind_of(state.resource).is_setting
            )
        return settings_of(result) if result else ()
