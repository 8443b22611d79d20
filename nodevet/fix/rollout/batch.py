"""Steps that are written one after the other and verified together: one settle wait for all.

Each is compared with a fresh look and journaled before it is written. That look shows, too, what
the steps before it left: it is the witness of which step moved a setting of another one.
"""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from nodevet.evidence.document import Evidence
from nodevet.fix.journal.journal import JournalError
from nodevet.fix.journal.records import StepLooked
from nodevet.fix.model import Step
from nodevet.fix.rollout.before import as_planned, look
from nodevet.fix.rollout.clearance import RefusedError
from nodevet.fix.rollout.compare import StepStatus
from nodevet.fix.rollout.earlier import Earlier, settings_of
from nodevet.fix.rollout.ledger import WRITTEN, Ledger
from nodevet.fix.rollout.session import BlindError, LostError
from nodevet.fix.rollout.step_results import of_packages
from nodevet.fix.rollout.step_run import Steps, Written
from nodevet.fix.rollout.verify import Looks, Verified
from nodevet.fixing.model import Risk
from nodevet.fixing.result import Outcome
from nodevet.resource import Resource, State, kind_of, may_change, moved, restarts


class MovedError(Exception):
    """Settings of earlier steps are no longer what they were; nothing was written."""


def together(step: Step) -> bool:
    """Whether a step may be verified with others: it is live, in force at once, and restarts
    nothing, so that what is on the node does not depend on when it is looked at."""
    return (
        step.risk is Risk.LIVE
        and step.effective == "now"
        and not (restarts(step.actions) or step.holders or of_packages(step))
    )


def batch_of(steps: Sequence[Step], status: Mapping[str, StepStatus]) -> tuple[Step, ...]:
    """The first of these steps, with those after it that may be verified together with it.

    `status` is that of each; one that is unchanged or pending is passed over, and compared again
    on evidence that was read after the batch. Two that change one resource are not in one batch.
    """
    first, *rest = steps
    batch, taken = [first], set(first.resources)
    for step in rest if together(first) else ():
        if not together(step) or not taken.isdisjoint(step.resources):
            break
        if status.get(step.id) is StepStatus.GO:
            batch.append(step)
            taken |= set(step.resources)
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
        """Write and verify; a later step that may not be written, or what moved meanwhile, ends
        the batch before it. The results are in the ledger.

        `watched` are settings of earlier steps, as these left them. Raises MovedError if one is
        another by now, and RefusedError, both if nothing was written; and JournalError.
        """
        hand: dict[str, tuple[State, ...]] = {}  # step -> what was there before it
        try:
            evidence = self._write(batch, evidence, watched, hand)
            return self.verify(evidence)
        except JournalError as error:
            known, begun = self._ledger.results, self._steps.begun
            steps = [step for step in batch if step.id in begun and step.id not in known]
            if not steps:
                raise
            for step in reversed(steps):
                result = self._steps.unwritten(step, hand[step.id], str(error))
                self._ledger.results[step.id] = result
            return evidence

    def resume(self, written: Sequence[Written], evidence: Evidence) -> Evidence:
        """Verify what an earlier controller wrote to the end and did not have judged."""
        self._open += written
        return self.verify(evidence)

    # --- written ------------------------------------------------------------------------------

    def _write(
        self,
        batch: Sequence[Step],
        evidence: Evidence,
        watched: Sequence[State],
        hand: dict[str, tuple[State, ...]],
    ) -> Evidence:
        for step in batch:
            try:
                seen = look(self._steps.session, step, self._about(watched))
                self._note(seen)
                before = as_planned(self._steps.session, step, seen)
                self._steps.clearance.step(step, evidence)
            except RefusedError:
                if self._open:  # it is met again once these are verified
                    return evidence
                raise
            if moved(watched, list(seen.values())):
                if self._open:
                    return evidence
                raise MovedError
            if any(self._moved(each.step, seen) for each in self._open):
                return evidence
            hand[step.id] = before
            written = self._steps.write(step, before, evidence)
            if written.ended:
                self._ledger.results[step.id] = written.result
                return written.evidence
            self._open.append(written)
        return evidence

    def _about(self, watched: Sequence[State]) -> list[Resource]:
        """What is looked at besides a step's own: settings of earlier ones, all of the last."""
        own = [
            resource
            for each in self._open
            for resource in each.step.resources
            if kind_of(resource).is_setting or each is self._open[-1]
        ]
        return [*(seen.resource for seen in watched), *own]

    def _note(self, seen: Looks) -> None:
        """What the last step left, as it was seen before the next one."""
        if self._open:
            last = self._open[-1].step
            self._looks[last.id] = seen
            self._left[last.id] = tuple(seen[resource] for resource in last.resources)
            journal = self._steps.session.journal
            journal.write(StepLooked(step=last.id, seen=self._left[last.id]))

    def _moved(self, step: Step, seen: Looks) -> bool:
        return bool(moved(self._left.get(step.id, ()), list(seen.values())))

    # --- verified -----------------------------------------------------------------------------

    def verify(self, evidence: Evidence) -> Evidence:
        """One settle wait, one look, one probe, and the check of each decides. What does not hold
        is reverted, what holds stays; the evidence of then."""
        if not self._open:
            return evidence
        results, earlier = self._ledger.results, self._ledger.written()
        watched = [seen.resource for seen in self._earlier.settings()]
        steps = [each.step for each in self._open]
        try:
            proof = self._steps.verifier.verify(steps, self._left, watched)
        except LostError as error:
            for each in self._open:
                told = replace(each.result, outcome=Outcome.UNKNOWN, why=str(error))
                results[each.step.id] = told
            return evidence
        evidence = proof.evidence or evidence
        self._looks[steps[-1].id] = proof.witness
        failed = [each for each in self._open if self._failed(each, proof)]
        for each in self._open:
            held = proof.steps[each.step.id]
            if each not in failed:
                results[each.step.id] = self._steps.judged(each.step, each.result, held)
        held_here = [step for step in steps if self._ledger.outcome(step) in WRITTEN]
        broken = []
        if held_here and not self._ledger.dark(evidence):
            broken = self._earlier.broken(earlier, evidence)
        return self._reverted(failed, broken, proof, evidence)

    @staticmethod
    def _failed(each: Written, proof: Verified) -> bool:
        held = proof.steps[each.step.id]
        return bool(held.why) and not held.gone

    def _reverted(
        self,
        failed: Sequence[Written],
        broken: Sequence[Step],
        proof: Verified,
        evidence: Evidence,
    ) -> Evidence:
        """What failed, and earlier steps that are broken, reverted with what undid them."""
        if not (failed or broken):
            return evidence
        undone: dict[str, list[Step]] = {}  # by the step that undid them
        for step in [each.step for each in failed] + list(broken):
            if culprit := self._culprit(step):
                undone.setdefault(culprit.id, []).append(step)
        victims = {step.id for steps in undone.values() for step in steps}
        apart = [step for step in broken if step.id not in victims]
        outside = {each.step.id: self._reset_outside(each.step) for each in failed}
        last = self._open[-1].step
        self._earlier.reset(apart, f"after {last.id} was written")
        by_id = {each.step.id: each for each in self._open}
        wrong = {each.step.id: proof.steps[each.step.id] for each in failed}
        for id in reversed(by_id):
            own = wrong[id].why + outside[id] if id in wrong and id not in victims else ""
            why = f"it undoes {', '.join(step.id for step in undone[id])}" if id in undone else ""
            if told := "; ".join(filter(None, (own, why))):
                self._revert(by_id[id], proof, told)
        for id, steps in undone.items():
            evidence = self._after(id, steps, by_id, proof, evidence)
        return evidence

    def _revert(self, each: Written, proof: Verified, why: str) -> None:
        found = proof.steps[each.step.id]
        result = replace(each.result, after=found.after, verdicts=found.verdicts)
        self._ledger.results[each.step.id] = self._steps.revert(each.step, result, why, each.then)

    def _after(
        self,
        id: str,
        steps: Sequence[Step],
        by_id: Mapping[str, Written],
        proof: Verified,
        evidence: Evidence,
    ) -> Evidence:
        """Steps that another one undid, once that is reverted: those that are still undone."""
        told = f"undone by {id}"
        results = self._ledger.results
        try:
            evidence = self._earlier.probe()
        except BlindError as error:
            told = f"cannot be verified after {id} was reverted: {error}"
            still = list(steps)
        else:
            for step in steps:
                if step.id in by_id and step.id not in results:
                    each = by_id[step.id]
                    after = self._steps.left(step) or proof.steps[step.id].after
                    held = self._steps.verifier.verdict(step, evidence, after)
                    if not held.why or held.gone:
                        results[step.id] = self._steps.judged(step, each.result, held)
            earlier = [step for step in steps if step.id in results]
            still = [step for step in steps if step.id not in results]
            still += self._earlier.broken(
                [step for step in earlier if self._ledger.outcome(step) in WRITTEN], evidence
            )
        for step in reversed(still):
            if step.id in by_id and step.id not in results:
                self._revert(by_id[step.id], proof, told)
            else:
                self._earlier.revert(step, told)
        return evidence

    def _culprit(self, step: Step) -> Step | None:
        """The step of the batch that has set the settings of an earlier one; None if they were
        moved by something else, as of one that cannot have written them."""
        found = self._seen_after(step)
        return found if found and self._can_undo(found, step) else None

    def _can_undo(self, later: Step, step: Step) -> bool:
        """Whether a step can have written what moved of an earlier one's settings, of which all may
        have if they were not read."""
        settings, seen = self._settings(step), [*self._looks.get(later.id, {}).values()]
        suspects = [then for then, _ in moved(settings, seen)] or settings
        return any(may_change(later.actions, later.resources, one.resource) for one in suspects)

    def _reset_outside(self, step: Step) -> str:
        """What else to say of a step whose settings moved and that no step can have moved."""
        found = self._seen_after(step)
        if found is None or self._can_undo(found, step):
            return ""
        return f": reset by something outside, not by {found.id}"

    def _seen_after(self, step: Step) -> Step | None:
        """The step of the batch right after whose last action the settings of an earlier one were
        another; None if none was."""
        mine = step.id in {each.step.id for each in self._open}
        settings = self._settings(step)
        after = [each.step for each in self._open]
        if mine:
            after = after[after.index(step) + 1 :]
        for one in after:
            seen = self._looks.get(one.id, {})
            known = {resource for resource, state in seen.items() if not state.why}
            if moved(settings, list(seen.values())):
                return one
            if not mine and not (settings and known >= {each.resource for each in settings}):
                return after[-1]  # not known to have been left alone
        return None

    def _settings(self, step: Step) -> tuple[State, ...]:
        result = self._ledger.results.get(step.id)
        if step.id in self._left:
            return tuple(seen for seen in self._left[step.id] if kind_of(seen.resource).is_setting)
        return settings_of(result) if result else ()
