"""The steps of a node that were verified before others: whether they hold, and if not, why."""

from collections.abc import Sequence
from functools import partial

from nodevet.evidence.document import Evidence
from nodevet.fix.model import Step
from nodevet.fix.rollout.ledger import Ledger
from nodevet.fix.rollout.session import BlindError, LostError
from nodevet.fix.rollout.step_run import Steps
from nodevet.fixing.result import Outcome, StepResult
from nodevet.resource import State, apart, kind_of, moved


def settings_of(result: StepResult) -> tuple[State, ...]:
    """What a step left that stays as it was set unless something else sets it."""
    return tuple(seen for seen in result.after if kind_of(seen.resource).is_setting)


class Earlier:
    """Every method but `settings` may raise LostError."""

    def __init__(self, ledger: Ledger, steps: Steps) -> None:
        self.ledger = ledger
        self.steps = steps

    def settings(self) -> tuple[State, ...]:
        """What written steps left their settings as."""
        results = self.ledger.results
        return tuple(
            seen for step in self.ledger.written() for seen in settings_of(results[step.id])
        )

    def probe(self) -> Evidence:
        """Fresh evidence. Raises BlindError."""
        return self.steps.session.steadily(lambda: self.steps.session.probe("after"))

    def before(self, step: Step, evidence: Evidence) -> Evidence:
        """Settings of earlier steps moved before this one was begun: those that no longer hold are
        reverted. The evidence is fresh."""
        written = self.ledger.written()
        try:
            evidence = self.probe()
        except BlindError as error:
            self.ledger.tell(written, f"cannot be verified: {error}", Outcome.UNKNOWN)
            return evidence
        self.reset(self.broken(written, evidence), f"before {step.id} was begun")
        return evidence

    def without_reverted(self) -> None:
        """Steps of this run were reverted: what no longer holds without them, or since their
        revert, is reverted too, until all that stays holds."""
        results, bad = self.ledger.results, (Outcome.FAILED, Outcome.ROLLBACK_FAILED)
        while left := self.ledger.written():
            ended = [results[step.id] for step in self.ledger.task.steps if step.id in results]
            gone = [each.id for each in ended if each.outcome in bad and each.ran]
            if not gone:
                return
            told = f"does not hold without {', '.join(gone)}"
            try:
                evidence = self.probe()
            except BlindError as error:
                told, broken = f"cannot be verified after {', '.join(gone)}: {error}", left
            except LostError as error:
                why = f"cannot be verified after {', '.join(gone)}: {error}"
                self.ledger.tell(left, why, Outcome.UNKNOWN)
                raise
            else:
                if self.ledger.dark(evidence) or self.ledger.driverless(evidence):
                    return
                broken = self.broken(left, evidence)
            for step in reversed(broken):
                self.revert(step, told)
            if not broken:
                return

    def broken(self, written: Sequence[Step], evidence: Evidence) -> list[Step]:
        """Those of which the check no longer says ok. Whether one holds whose subject is gone is
        not known, which is entered."""
        broken = []
        for step in written:
            after = self.ledger.results[step.id].after
            if missing := self.steps.context.gone(step, evidence):
                self.ledger.tell([step], missing, Outcome.UNKNOWN)
            elif self.steps.verifier.verdict(step, evidence, after).why:
                broken.append(step)
        return broken

    def reset(self, broken: Sequence[Step], when: str) -> None:
        """Revert steps whose settings something else has set."""
        session = self.steps.session
        for step in reversed(broken):
            settings, told = settings_of(self.ledger.results[step.id]), ""
            try:
                now = session.steadily(partial(session.look, [seen.resource for seen in settings]))
                told = "; ".join(
                    f"{then.resource.label} {apart(then, at)}" for then, at in moved(settings, now)
                )
            except BlindError as error:
                told = str(error)
            why = "does not stay as it was set" + (f": {told}" if told else "")
            self.revert(step, f"{why}: something else set it {when}")

    def revert(self, step: Step, why: str) -> None:
        results = self.ledger.results
        results[step.id] = self.steps.revert(step, results[step.id], why)
