"""Whether steps that were written hold: two looks around the settle wait, a probe, the checks.

However many steps are asked of, the node waits once and is probed once.
"""

import time
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from nodevet.evidence.document import Evidence
from nodevet.fix.events import Phase
from nodevet.fix.journal.records import StepLooked
from nodevet.fix.model import Step
from nodevet.fix.rollout.compare import StepContext
from nodevet.fix.rollout.session import BlindError, NodeSession
from nodevet.model import NODE
from nodevet.resource import Resource, State, holds, kind_of, restarts, same

Looks = Mapping[Resource, State]


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a step holds. `why` says why not.

    `gone`: that is not known, for what it is about is not there any more.
    """

    why: str = ""
    gone: bool = False
    after: tuple[State, ...] = ()
    pending: bool = False
    verdicts: Mapping[str, str] = {}


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What was found of each step, by id. `evidence` is None if the node gave none that is usable.

    `witness` is what was looked at right after the last action; empty if that took another try.
    """

    steps: Mapping[str, Verification]
    evidence: Evidence | None = None
    witness: Looks = {}


class Verifier:
    """Of one node. Every method may raise LostError."""

    def __init__(self, session: NodeSession, context: StepContext) -> None:
        self.session = session
        self.context = context

    def verify(
        self,
        steps: Sequence[Step],
        left: Mapping[str, tuple[State, ...]] | None = None,
        watched: Sequence[Resource] = (),
    ) -> Verified:
        """Whether these steps hold, also after the settle wait.

        `left` is what was seen, and journaled, right after a step's last action; of a step that is
        not in it the first look is taken for that. `watched` is looked at with the first look.
        """
        witness: list[Looks] = []
        try:
            return self.session.steadily(lambda: self._verify(steps, left or {}, watched, witness))
        except BlindError as error:
            found = Verification(why=f"cannot be verified: {error}")
            return Verified(steps={step.id: found for step in steps}, witness=(witness or [{}])[0])

    def _verify(
        self,
        steps: Sequence[Step],
        left: Mapping[str, tuple[State, ...]],
        watched: Sequence[Resource],
        witness: list[Looks],
    ) -> Verified:
        touched = dict.fromkeys(resource for step in steps for resource in step.resources)
        try:
            first = self.session.at(dict.fromkeys([*touched, *watched]))
        except Exception:
            witness.append({})  # a later look is too late to tell what moved a setting
            raise
        witness.append(first)
        then = {step.id: left.get(step.id) or _of(step, first) for step in steps}
        for step in steps:
            if step.id not in left:
                self.session.journal.write(StepLooked(step=step.id, seen=then[step.id]))
        ids = [step.id for step in steps]
        self.session.tell(Phase.SETTLING, *ids, seconds=self.session.terms.settle)
        time.sleep(self.session.terms.settle)
        self.session.tell(Phase.VERIFYING, *ids)
        now = self.session.at(touched)
        for step in steps:
            if _other(then[step.id], _of(step, now)):
                self.session.journal.write(StepLooked(step=step.id, seen=_of(step, now)))
        evidence = self.session.probe("after")
        found = {
            step.id: self._found(step, then[step.id], _of(step, now), evidence) for step in steps
        }
        if len(steps) == 1 and restarts(steps[0].actions):
            found, evidence = self._restarted(steps[0], found, evidence)
        return Verified(steps=found, evidence=evidence, witness=witness[0])

    def _found(
        self, step: Step, then: Sequence[State], after: tuple[State, ...], evidence: Evidence
    ) -> Verification:
        if why := self.context.gone(step, evidence):
            return Verification(why=why, gone=True, after=after)
        lost = [
            seen.resource.label for seen in _other(then, after) if kind_of(seen.resource).is_setting
        ]
        if lost:
            return Verification(why=f"does not stay as it was set: {', '.join(lost)}", after=after)
        return self.verdict(step, evidence, after)

    def _restarted(
        self, step: Step, found: dict[str, Verification], evidence: Evidence
    ) -> tuple[dict[str, Verification], Evidence]:
        """A step that restarts a service, probed until that is on its GPUs again."""
        limit = time.monotonic() + self.session.terms.boot_settle
        self.session.tell(Phase.STARTING, step.id, seconds=self.session.terms.boot_settle)
        held = found[step.id]
        while held.why and held.verdicts and not held.gone and time.monotonic() < limit:
            time.sleep(max(0.05, self.session.terms.settle))
            evidence = self.session.probe("after")
            held = self.verdict(step, evidence, held.after)
        return {step.id: held}, evidence

    def verdict(self, step: Step, evidence: Evidence, after: tuple[State, ...]) -> Verification:
        """What the check says of a step on this evidence."""
        why = self.context.verdict(step, evidence)
        held = Verification(after=after, verdicts=self.verdicts(step, evidence))
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


def _of(step: Step, seen: Looks) -> tuple[State, ...]:
    return tuple(seen[resource] for resource in step.resources)


def _other(then: Sequence[State], now: Sequence[State]) -> list[State]:
    """What is another by now."""
    return [one for one, two in zip(then, now, strict=True) if not same(one, two)]
