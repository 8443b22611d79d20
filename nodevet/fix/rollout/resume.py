"""Resumes one node that an earlier controller left: completes, reverts or restarts its steps."""

from collections.abc import Sequence

from msgspec.structs import replace

from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.fix.journal.journal import JournalState, Stage, StepState
from nodevet.fix.model import Step
from nodevet.fix.rollout.batch import StepBatch, is_verified_together
from nodevet.fix.rollout.boot import RebootProof, unhelped
from nodevet.fix.rollout.clearance import RefusedError
from nodevet.fix.rollout.ledger import (
    Ledger,
    keeping,
    leaves_nothing,
    of_packages,
    result_of_journal,
)
from nodevet.fix.rollout.left import revertible_part
from nodevet.fix.rollout.power import REBOOT
from nodevet.fix.rollout.session import BlindError
from nodevet.fix.rollout.step_run import ENDED, Steps, Written
from nodevet.fixing.result import Outcome, Refusal, StepResult
from nodevet.resource import Resource, State

BEGUN = (Stage.UNKNOWN, Stage.WRITTEN)


class NodeResume:
    """One node of a resumed run. `earlier`: its state from the journal."""

    def __init__(
        self, ledger: Ledger, steps: Steps, boot: RebootProof, earlier: JournalState
    ) -> None:
        self.ledger = ledger
        self.steps = steps
        self.boot = boot
        self.earlier = earlier

    @property
    def boot_request(self) -> str:
        """What ended the boot that the run began on, if the run asked for that: `reboot`, or the
        last request to its BMC. Else empty."""
        host = self.earlier.host(self.ledger.task.host)
        return host.asked if host else ""

    def run(self, evidence: Evidence) -> Evidence:
        """Complete or revert what was begun. Returns the new evidence. Raises LostError."""
        earlier_host = self.earlier.host(self.ledger.task.host)
        host = evidence[HostInfo].data
        rebooted = bool(earlier_host and host and earlier_host.boot_id != host.boot_id)
        self.ledger.rebooted = rebooted and bool(self.boot_request)
        todo = sorted(self.ledger.task.steps, key=of_packages, reverse=rebooted)
        verified = [s for s in todo if self.earlier.step(s.id).stage is Stage.VERIFIED]
        if rebooted and host and host.boot_id:
            failing, evidence = self.boot.failures_after_reboot(verified, host.boot_id, evidence)
        else:
            failing = {}
            for step in verified:
                if why := self.steps.context.verdict(step, evidence):
                    failing[step.id] = why
        complete = [
            step for step in todo if is_verified_together(step) and _is_complete(step, self.earlier)
        ]
        for step in todo:
            state = self.earlier.step(step.id)
            if step in verified:
                why = failing.get(step.id, "")
                self.ledger.results[step.id] = self._judge_verified(
                    step, evidence, why, rebooted=rebooted
                )
            elif keeping(step, state) and not state.rolling_back and state.stage in BEGUN:
                self.ledger.results[step.id] = self._finish_keep(step, evidence, state)
            elif state.touched and step not in complete:
                result, evidence = self.steps.resume(step, state, evidence)
                self.ledger.results[step.id] = result
        return self._open_reverted(self._verify_written(complete, evidence))

    def _verify_written(self, written: Sequence[Step], evidence: Evidence) -> Evidence:
        """Read and verify together the steps that were written completely but not verified. Leave
        alone what something else changed since."""
        if not written:
            return evidence
        steps, results = self.steps, self.ledger.results
        for step in written:
            steps.begun.add(step.id)
            del results[step.id]
        resources = dict.fromkeys(resource for step in written for resource in step.resources)
        problem, states = "", dict[Resource, State]()
        try:
            states = steps.session.retry_call(lambda: steps.session.states_by_resource(resources))
        except BlindError as error:
            problem = str(error)
        untouched = []
        for step in written:
            state = self.earlier.step(step.id)
            result = result_of_journal(step, state, why=f"{ENDED}; all of it was done")
            current = tuple(states[resource] for resource in step.resources) if states else ()
            if gone_text := steps.context.gone_text(step, evidence):
                why = f"{ENDED}; {gone_text}"
                results[step.id] = replace(result, outcome=Outcome.UNKNOWN, why=why)
            elif problem or revertible_part(step, state, current).not_restored:
                why = f"{ENDED}; {problem}" if problem else ENDED
                results[step.id] = steps.revert(step, result, why, state)
            else:
                untouched.append(Written(step=step, result=result, evidence=evidence, then=state))
        return StepBatch(self.ledger, steps).resume(untouched, evidence)

    def _open_reverted(self, evidence: Evidence) -> Evidence:
        """Open interrupted steps again that were reverted; all preconditions apply to them again.
        Returns fresh evidence then."""
        results = self.ledger.results
        reverted = [id for id, result in results.items() if result.outcome is Outcome.NOT_ATTEMPTED]
        for id in reverted:
            del results[id]
        if not reverted or self.ledger.stopped():
            return evidence
        try:
            return self.steps.session.retry_call(lambda: self.steps.session.probe("resumed"))
        except BlindError as error:
            raise RefusedError(Refusal.UNREACHABLE, str(error)) from error

    def _judge_verified(
        self, step: Step, evidence: Evidence, why: str, *, rebooted: bool
    ) -> StepResult:
        """The result of a step that was verified before; `why`: why it does not hold now."""
        ledger = self.ledger
        verdicts = self.steps.verifier.verdicts(step, evidence)
        result = replace(ledger.results[step.id], verdicts=verdicts)
        state = self.earlier.step(step.id)
        if not why and step.keep and not keeping(step, state):
            host = evidence[HostInfo].data
            proven = rebooted or bool(state.boot_id and host and host.boot_id != state.boot_id)
            return self._once_more(step, self.steps.keep(step, result)) if proven else result
        if not why:
            proven = rebooted or keeping(step, state)
            return replace(
                result, outcome=Outcome.VERIFIED_AFTER_REBOOT if proven else Outcome.CHANGED
            )
        if gone_text := self.steps.context.gone_text(step, evidence):
            return replace(result, outcome=Outcome.UNKNOWN, why=gone_text)
        later = step.effective != "now"
        if not rebooted and ledger.dark(evidence) and not of_packages(step):
            return replace(result, outcome=Outcome.PENDING if later else Outcome.CHANGED)
        if not rebooted and later:
            return self._still_pending(step, evidence)
        if rebooted and ledger.driverless(evidence) and not of_packages(step) and not step.keep:
            reason = "cannot be judged before one more reboot: the driver was reverted"
            return replace(result, outcome=Outcome.UNKNOWN, why=reason)
        reason = f"was verified earlier, and fails now: {why}"
        if rebooted and later and leaves_nothing(step):
            reason = unhelped(step, why, cycled=self.boot_request not in ("", REBOOT))
        reverted = self.steps.revert(step, result, reason, state)
        return self._once_more(step, reverted) if rebooted else reverted

    def _finish_keep(self, step: Step, evidence: Evidence, state: StepState) -> StepResult:
        """The result of a step for which an earlier controller ended while it kept it."""
        result = result_of_journal(step, state)
        if why := self.steps.context.verdict(step, evidence):
            reason = f"{ENDED}, and it fails now: {why}"
            return self._once_more(step, self.steps.revert(step, result, reason, state))
        verdicts = self.steps.verifier.verdicts(step, evidence)
        return self._once_more(step, self.steps.keep(step, replace(result, verdicts=verdicts)))

    @staticmethod
    def _once_more(step: Step, result: StepResult) -> StepResult:
        """The result, which says of a reverted step whether its revert needs a reboot."""
        if result.outcome is not Outcome.FAILED or step.effective == "now" or leaves_nothing(step):
            return result
        return replace(result, why=f"{result.why}; reverted, effective after one more reboot")

    def _still_pending(self, step: Step, evidence: Evidence) -> StepResult:
        """The result of a step that was set before and comes into force later."""
        result, session = self.ledger.results[step.id], self.steps.session
        try:
            after = session.retry_call(lambda: session.look(step.resources))
        except BlindError as error:
            return replace(result, outcome=Outcome.UNKNOWN, why=str(error))
        if self.steps.verifier.verdict(step, evidence, after).pending:
            return replace(result, outcome=Outcome.PENDING, after=after)
        record = self.earlier.step(step.id)
        return self.steps.revert(step, result, "was set earlier, and is not set now", record)


def _is_complete(step: Step, earlier: JournalState) -> bool:
    """Whether every action of a step ended well, and the step was not verified."""
    state = earlier.step(step.id)
    ended_actions = set(state.done) == set(range(len(step.actions)))
    return state.stage is Stage.WRITTEN and ended_actions and state.seen is not None


def recall(ledger: Ledger, earlier: JournalState) -> None:
    """Fill the ledger with results from the journal, until the node is read."""
    for step in ledger.task.steps:
        state = earlier.step(step.id)
        if state.stage is Stage.ROLLED_BACK:
            result = result_of_journal(step, state, outcome=Outcome.FAILED, why=state.why)
        elif state.stage is Stage.VERIFIED:
            result = result_of_journal(step, state, outcome=Outcome.CHANGED)
        elif state.touched:
            result = result_of_journal(step, state, outcome=Outcome.UNKNOWN, why=state.why)
        else:
            continue
        ledger.results[step.id] = result
