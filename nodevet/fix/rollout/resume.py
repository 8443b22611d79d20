"""What an earlier controller left on one node: looked at, completed, reverted, or begun again."""

from collections.abc import Sequence

from msgspec.structs import replace

from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.fix.journal.journal import JournalState, Stage
from nodevet.fix.model import Step
from nodevet.fix.rollout.batch import StepBatch, together
from nodevet.fix.rollout.boot import RebootProof
from nodevet.fix.rollout.clearance import RefusedError
from nodevet.fix.rollout.ledger import Ledger
from nodevet.fix.rollout.left import parted
from nodevet.fix.rollout.session import BlindError
from nodevet.fix.rollout.step_results import of_packages, recalled
from nodevet.fix.rollout.step_run import ENDED, Steps, Written
from nodevet.fixing.result import Outcome, Refusal, StepResult
from nodevet.resource import Resource, State


class NodeResume:
    """One node of a run that is taken up again. `earlier` is what the journal says of it."""

    def __init__(
        self, ledger: Ledger, steps: Steps, boot: RebootProof, earlier: JournalState
    ) -> None:
        self.ledger = ledger
        self.steps = steps
        self.boot = boot
        self.earlier = earlier

    def run(self, evidence: Evidence) -> Evidence:
        """What was begun is completed, or reverted; the evidence of then. Raises LostError."""
        known = self.earlier.host(self.ledger.task.host)
        host = evidence[HostInfo].data
        rebooted = bool(known and host and known.boot_id != host.boot_id)
        todo = sorted(self.ledger.task.steps, key=of_packages, reverse=rebooted)
        verified = [s for s in todo if self.earlier.step(s.id).stage is Stage.VERIFIED]
        if rebooted and host and host.boot_id:
            failing, evidence = self.boot.settled(verified, host.boot_id, evidence)
        else:
            failing = {}
            for step in verified:
                if why := self.steps.context.verdict(step, evidence):
                    failing[step.id] = why
        written = [step for step in todo if together(step) and _whole(step, self.earlier)]
        for step in todo:
            state = self.earlier.step(step.id)
            if step in verified:
                why = failing.get(step.id, "")
                self.ledger.results[step.id] = self._again(step, evidence, why, rebooted=rebooted)
            elif state.touched and step not in written:
                result, evidence = self.steps.resume(step, state, evidence)
                self.ledger.results[step.id] = result
        return self._opened(self._verified(written, evidence))

    def _verified(self, written: Sequence[Step], evidence: Evidence) -> Evidence:
        """Steps that were written to the end, one after the other, and not verified: looked at and
        verified together. What was changed since by something else is left."""
        if not written:
            return evidence
        steps, results = self.steps, self.ledger.results
        for step in written:
            steps.begun.add(step.id)
            del results[step.id]
        resources = dict.fromkeys(resource for step in written for resource in step.resources)
        blind, seen = "", dict[Resource, State]()
        try:
            seen = steps.session.steadily(lambda: steps.session.at(resources))
        except BlindError as error:
            blind = str(error)
        whole = []
        for step in written:
            state = self.earlier.step(step.id)
            result = recalled(step, state, why=f"{ENDED}; all of it had taken place")
            now = tuple(seen[resource] for resource in step.resources) if seen else ()
            if missing := steps.context.gone(step, evidence):
                why = f"{ENDED}; {missing}"
                results[step.id] = replace(result, outcome=Outcome.UNKNOWN, why=why)
            elif blind or parted(step, state, now).told:
                why = f"{ENDED}; {blind}" if blind else ENDED
                results[step.id] = steps.revert(step, result, why, state)
            else:
                whole.append(Written(step=step, result=result, evidence=evidence, then=state))
        return StepBatch(self.ledger, steps).resume(whole, evidence)

    def _opened(self, evidence: Evidence) -> Evidence:
        """Interrupted steps that were reverted are open again, under all that guards a first try;
        the evidence is fresh then."""
        results = self.ledger.results
        restore = [id for id, result in results.items() if result.outcome is Outcome.NOT_ATTEMPTED]
        for id in restore:
            del results[id]
        if not restore or self.ledger.stopped():
            return evidence
        try:
            return self.steps.session.steadily(lambda: self.steps.session.probe("resumed"))
        except BlindError as error:
            raise RefusedError(Refusal.UNREACHABLE, str(error)) from error

    def _again(self, step: Step, evidence: Evidence, why: str, *, rebooted: bool) -> StepResult:
        """A step that was verified before the controller ended; `why` it does not hold now."""
        ledger = self.ledger
        said = self.steps.verifier.verdicts(step, evidence)
        result = replace(ledger.results[step.id], verdicts=said)
        if not why:
            return replace(
                result, outcome=Outcome.VERIFIED_AFTER_REBOOT if rebooted else Outcome.CHANGED
            )
        if missing := self.steps.context.gone(step, evidence):
            return replace(result, outcome=Outcome.UNKNOWN, why=missing)
        later = step.effective != "now"
        if not rebooted and ledger.dark(evidence) and not of_packages(step):
            return replace(result, outcome=Outcome.PENDING if later else Outcome.CHANGED)
        if not rebooted and later:
            return self._still_pending(step, evidence)
        if rebooted and ledger.driverless(evidence) and not of_packages(step):
            told = "cannot be judged before one more reboot: the driver was reverted"
            return replace(result, outcome=Outcome.UNKNOWN, why=told)
        told, then = (
            f"was verified earlier, and does not hold now: {why}",
            self.earlier.step(step.id),
        )
        back = self.steps.revert(step, result, told, then)
        if later and rebooted and back.outcome is Outcome.FAILED:
            return replace(back, why=f"{back.why}; reverted, in force after one more reboot")
        return back

    def _still_pending(self, step: Step, evidence: Evidence) -> StepResult:
        """A step that was in place before the controller ended, and comes into force later."""
        result, session = self.ledger.results[step.id], self.steps.session
        try:
            after = session.steadily(lambda: session.look(step.resources))
        except BlindError as error:
            return replace(result, outcome=Outcome.UNKNOWN, why=str(error))
        if self.steps.verifier.verdict(step, evidence, after).pending:
            return replace(result, outcome=Outcome.PENDING, after=after)
        then = self.earlier.step(step.id)
        return self.steps.revert(step, result, "was set earlier, and is not set now", then)


def _whole(step: Step, earlier: JournalState) -> bool:
    """Whether every action of a step is known to have ended well, and it was not verified."""
    state = earlier.step(step.id)
    ended = set(state.done) == set(range(len(step.actions)))
    return state.stage is Stage.WRITTEN and ended and state.seen is not None


def recall(ledger: Ledger, earlier: JournalState) -> None:
    """What the journal says of each step, until the node is looked at."""
    for step in ledger.task.steps:
        state = earlier.step(step.id)
        if state.stage is Stage.ROLLED_BACK:
            result = recalled(step, state, outcome=Outcome.FAILED, why=state.why)
        elif state.stage is Stage.VERIFIED:
            result = recalled(step, state, outcome=Outcome.CHANGED)
        elif state.touched:
            result = recalled(step, state, outcome=Outcome.UNKNOWN, why=state.why)
        else:
            continue
        ledger.results[step.id] = result
