"""The steps of a node that were written before another one: whether they hold, and if not, why."""

from collections.abc import Sequence
from functools import partial

from nodevet.evidence.document import Evidence
from nodevet.remedy.model import Step
from nodevet.remedy.rollout.ledger import WRITTEN, Ledger
from nodevet.remedy.rollout.session import BlindError
from nodevet.remedy.rollout.step_run import Steps
from nodevet.resource import State, apart, kind_of, moved
from nodevet.result import Outcome


class Earlier:
    """Every method may raise LostError."""

    def __init__(self, ledger: Ledger, steps: Steps) -> None:
        self.ledger = ledger
        self.steps = steps

    def settings(self) -> tuple[State, ...]:
        """What written steps left their settings as."""
        return tuple(seen for step in self.ledger.written() for seen in self._settings(step))

    def before(self, step: Step, evidence: Evidence) -> Evidence:
        """Settings of earlier steps moved before this one was begun: those that no longer hold are
        put back. The evidence is fresh."""
        written = self.ledger.written()
        try:
            evidence = self.steps.session.steadily(lambda: self.steps.session.probe("after"))
        except BlindError as error:
            self.ledger.tell(written, f"cannot be verified: {error}", Outcome.UNKNOWN)
            return evidence
        self._reset(self._broken(written, evidence), f"before {step.id} was begun")
        return evidence

    def after(self, last: Step, evidence: Evidence) -> None:
        """A step was written: which of those before it no longer hold.

        Where their settings were still the same right after its last action, something else has
        set them since: they are put back, and the step stays. Else the step undoes them: it is
        put back, and they too if need be.
        """
        if self.ledger.outcome(last) not in WRITTEN or self.ledger.dark(evidence):
            return
        broken = self._broken([s for s in self.ledger.written() if s is not last], evidence)
        apart = [step for step in broken if self._was_left_alone(step)]
        self._reset(apart, f"after {last.id} was written")
        if undone := [step for step in broken if step not in apart]:
            self._undone(last, undone)

    def _settings(self, step: Step) -> tuple[State, ...]:
        after = self.ledger.results[step.id].after
        return tuple(seen for seen in after if kind_of(seen.resource).is_setting)

    def _broken(self, written: Sequence[Step], evidence: Evidence) -> list[Step]:
        """Those of which the check no longer says ok. Of one whose subject is gone nobody can
        tell, which is entered."""
        broken = []
        for step in written:
            if missing := self.steps.context.gone(step, evidence):
                self.ledger.tell([step], missing, Outcome.UNKNOWN)
            elif self.steps.verdict(step, evidence, self.ledger.results[step.id].after).why:
                broken.append(step)
        return broken

    def _was_left_alone(self, step: Step) -> bool:
        """Whether a step's settings were still the same right after a later step was written."""
        settings, witness = self._settings(step), self.steps.witness
        known = {seen.resource for seen in witness if not seen.why}
        return (
            bool(settings)
            and known >= {seen.resource for seen in settings}
            and not moved(settings, witness)
        )

    def _reset(self, broken: Sequence[Step], when: str) -> None:
        """Put steps back whose settings something else has set."""
        session = self.steps.session
        for step in reversed(broken):
            settings, told = self._settings(step), ""
            try:
                now = session.steadily(partial(session.look, [seen.resource for seen in settings]))
                told = "; ".join(
                    f"{then.resource.label} {apart(then, at)}" for then, at in moved(settings, now)
                )
            except BlindError as error:
                told = str(error)
            why = "does not stay as it was set" + (f": {told}" if told else "")
            self._back(step, f"{why}: something else set it {when}")

    def _undone(self, last: Step, broken: Sequence[Step]) -> None:
        self._back(last, f"it undoes {', '.join(step.id for step in broken)}")
        try:
            evidence = self.steps.session.steadily(lambda: self.steps.session.probe("after"))
        except BlindError as error:
            told = f"cannot be verified after {last.id} was put back: {error}"
        else:
            told = f"undone by {last.id}"
            broken = self._broken(broken, evidence)
        for step in reversed(broken):
            self._back(step, told)

    def _back(self, step: Step, why: str) -> None:
        results = self.ledger.results
        results[step.id] = self.steps.revert(step, results[step.id], why)
