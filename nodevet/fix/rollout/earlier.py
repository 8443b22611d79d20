"""Earlier steps of a node that were verified: whether they still hold, and if not, why."""

from collections.abc import Sequence
from functools import partial

from nodevet.evidence.document import Evidence
from nodevet.fix.model import Step
from nodevet.fix.rollout.ledger import Ledger
from nodevet.fix.rollout.session import BlindError, LostError
from nodevet.fix.rollout.step_run import Steps
from nodevet.fixing.result import Outcome, StepResult
from nodevet.resource import State, changed_settings, describe_change, kind_of


def settings_of(result: StepResult) -> tuple[State, ...]:
    """The settings as a step left them, which stay so until something else sets them."""
    return tuple(state for state in result.after if kind_of(state.resource).is_setting)


class Earlier:
    """Every method but `settings` may raise LostError."""

    def __init__(self, ledger: Ledger, steps: Steps) -> None:
        self.ledger = ledger
        self.steps = steps

    def settings(self) -> tuple[State, ...]:
        """The settings of all written steps, as these left them."""
        results = self.ledger.results
        return tuple(
            state for step in self.ledger.written() for state in settings_of(results[step.id])
        )

    def probe(self) -> Evidence:
        """Fresh evidence. Raises BlindError."""
        return self.steps.session.retry_call(lambda: self.steps.session.probe("after"))

    def revert_broken(self, step: Step, evidence: Evidence) -> Evidence:
        """Settings of earlier steps changed before this step began: revert steps that no longer
        hold. Returns fresh evidence."""
        written = self.ledger.written()
        try:
            evidence = self.probe()
        except BlindError as error:
            self.ledger.tell(written, f"cannot be verified: {error}", Outcome.UNKNOWN)
            return evidence
        self.reset(self.broken_steps(written, evidence), f"before {step.id} was started")
        return evidence

    def without_reverted(self) -> None:
        """After steps were reverted, revert others that no longer hold without them, until all that
        remain hold."""
        results, failed_outcomes = self.ledger.results, (Outcome.FAILED, Outcome.ROLLBACK_FAILED)
        while written := self.ledger.written():
            ended_results = [
                results[step.id] for step in self.ledger.task.steps if step.id in results
            ]
            reverted = [
                result.id
                for result in ended_results
                if result.outcome in failed_outcomes and result.ran
            ]
            if not reverted:
                return
            reason = f"does not hold without {', '.join(reverted)}"
            try:
                evidence = self.probe()
            except BlindError as error:
                reason, broken = f"cannot be verified after {', '.join(reverted)}: {error}", written
            except LostError as error:
                why = f"cannot be verified after {', '.join(reverted)}: {error}"
                self.ledger.tell(written, why, Outcome.UNKNOWN)
                raise
            else:
                if self.ledger.dark(evidence) or self.ledger.driverless(evidence):
                    return
                broken = self.broken_steps(written, evidence)
            for step in reversed(broken):
                self.revert(step, reason)
            if not broken:
                return

    def broken_steps(self, written: Sequence[Step], evidence: Evidence) -> list[Step]:
        """The steps for which the check no longer says ok. A step whose subject is gone becomes
        unknown in the ledger."""
        broken = []
        for step in written:
            after = self.ledger.results[step.id].after
            if gone_text := self.steps.context.gone_text(step, evidence):
                self.ledger.tell([step], gone_text, Outcome.UNKNOWN)
            elif self.steps.verifier.verdict(step, evidence, after).why:
                broken.append(step)
        return broken

    def reset(self, broken: Sequence[Step], when: str) -> None:
        """Revert steps whose settings something else has changed."""
        session = self.steps.session
        for step in reversed(broken):
            settings, changes = settings_of(self.ledger.results[step.id]), ""
            try:
                current = session.retry_call(
                    partial(session.look, [state.resource for state in settings])
                )
                changes = "; ".join(
                    f"{state_before.resource.label} {describe_change(state_before, state_now)}"
                    for state_before, state_now in changed_settings(settings, current)
                )
            except BlindError as error:
                changes = str(error)
            why = "does not keep its new value" + (f": {changes}" if changes else "")
            self.revert(step, f"{why}: something else set it {when}")

    def revert(self, step: Step, why: str) -> None:
        results = self.ledger.results
        results[step.id] = self.steps.revert(step, results[step.id], why)
