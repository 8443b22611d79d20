"""Whether written steps hold: two looks around the settle wait, a probe, the checks.

For any number of steps there is one wait and one probe.
"""

import time
from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from nodevet.checking.judge import WORST
from nodevet.evidence.document import Evidence
from nodevet.fix.events import Phase
from nodevet.fix.journal.records import StepLooked
from nodevet.fix.model import Step
from nodevet.fix.rollout.compare import StepContext
from nodevet.fix.rollout.session import BlindError, NodeSession
from nodevet.model import NODE
from nodevet.resource import Resource, State, holds, is_same, kind_of, next_resort, restarts

Looks = Mapping[Resource, State]


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a step holds. `why`: why not. `gone`: unknown, since its subject no longer exists."""

    why: str = ""
    gone: bool = False
    after: tuple[State, ...] = ()
    pending: bool = False
    verdicts: Mapping[str, str] = {}


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """The verification of each step, by id. `evidence` is None if the node returned none.

    `witness`: the states right after the last action; empty if that look took another try.
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

        `left`: states right after a step's last action, already in the journal; for other steps
        the first look counts as that. `watched`: further resources for the first look.
        """
        witness: list[Looks] = []
        try:
            return self.session.retry_call(
                lambda: self._verify(steps, left or {}, watched, witness)
            )
        except BlindError as error:
            failure = Verification(why=f"cannot be verified: {error}")
            return Verified(
                steps={step.id: failure for step in steps}, witness=(witness or [{}])[0]
            )

    def _verify(
        self,
        steps: Sequence[Step],
        left: Mapping[str, tuple[State, ...]],
        watched: Sequence[Resource],
        witness: list[Looks],
    ) -> Verified:
        resources = dict.fromkeys(resource for step in steps for resource in step.resources)
        try:
            first_look = self.session.states_by_resource(dict.fromkeys([*resources, *watched]))
        except Exception:
            witness.append({})  # a later look is too late to tell what moved a setting
            raise
        witness.append(first_look)
        states_left = {step.id: left.get(step.id) or _states_of(step, first_look) for step in steps}
        for step in steps:
            if step.id not in left:
                self.session.journal.write(StepLooked(step=step.id, seen=states_left[step.id]))
        ids = [step.id for step in steps]
        self.session.tell(Phase.SETTLING, *ids, seconds=self.session.terms.settle)
        time.sleep(self.session.terms.settle)
        self.session.tell(Phase.VERIFYING, *ids)
        second_look = self.session.states_by_resource(resources)
        for step in steps:
            if _changed_states(states_left[step.id], _states_of(step, second_look)):
                self.session.journal.write(
                    StepLooked(step=step.id, seen=_states_of(step, second_look))
                )
        evidence = self.session.probe("after")
        verifications = {
            step.id: self._verify_step(
                step, states_left[step.id], _states_of(step, second_look), evidence
            )
            for step in steps
        }
        if len(steps) == 1 and restarts(steps[0].actions):
            verifications, evidence = self._await_restart(steps[0], verifications, evidence)
        return Verified(steps=verifications, evidence=evidence, witness=witness[0])

    def _verify_step(
        self, step: Step, left: Sequence[State], after: tuple[State, ...], evidence: Evidence
    ) -> Verification:
        if why := self.context.gone_text(step, evidence):
            return Verification(why=why, gone=True, after=after)
        changed = [
            seen.resource.label
            for seen in _changed_states(left, after)
            if kind_of(seen.resource).is_setting
        ]
        if changed:
            return Verification(
                why=f"does not keep its new value: {', '.join(changed)}", after=after
            )
        if stopped := _stopped_again(step, after):
            return Verification(why=f"does not stay active: {', '.join(stopped)}", after=after)
        return self.verdict(step, evidence, after)

    def _await_restart(
        self, step: Step, verifications: dict[str, Verification], evidence: Evidence
    ) -> tuple[dict[str, Verification], Evidence]:
        """Probe after a step that restarts a service, until the service is on its GPUs again."""
        limit = time.monotonic() + self.session.terms.boot_settle
        self.session.tell(Phase.STARTING, step.id, seconds=self.session.terms.boot_settle)
        verification = verifications[step.id]
        while (
            verification.why
            and verification.verdicts
            and not verification.gone
            and time.monotonic() < limit
        ):
            time.sleep(max(0.05, self.session.terms.settle))
            evidence = self.session.probe("after")
            verification = self.verdict(step, evidence, verification.after)
        return {step.id: verification}, evidence

    def verdict(self, step: Step, evidence: Evidence, after: tuple[State, ...]) -> Verification:
        """The verification of a step by its check on this evidence."""
        why = self.context.verdict(step, evidence)
        verification = Verification(after=after, verdicts=self.verdicts(step, evidence))
        if not why:
            return verification
        if self.context.gone_text(step, evidence):
            return replace(verification, why=why, gone=True)
        if step.effective != "now" and self._in_place(step, evidence, after):
            return replace(verification, pending=True)
        reasons = (f"the check says: {why}", next_resort(step.actions))
        return replace(verification, why="; ".join(filter(None, reasons)))

    def verdicts(self, step: Step, evidence: Evidence) -> dict[str, str]:
        """The worst verdict of the step's check for each subject."""
        findings = self.context.ask(step.fix, evidence)
        return {
            finding.subject.label or NODE.kind: finding.verdict.value
            for finding in sorted(findings, key=lambda one: WORST.index(one.verdict), reverse=True)
        }

    def _in_place(self, step: Step, evidence: Evidence, after: tuple[State, ...]) -> bool:
        """Whether a change that comes into force later is set: by the check on the later evidence,
        or by the states if evidence before a reboot does not show it."""
        if any(
            kind_of(resource).is_pending(resource, evidence) is not None
            for resource in step.resources
        ):
            return self.context.waits(step, evidence)
        last_actions = {action.resource or action: action for action in step.actions}
        return all(holds(action, after) is not False for action in last_actions.values())


def _stopped_again(step: Step, after: Sequence[State]) -> list[str]:
    """The units that the step restarted and that do not run now; the check may judge only their
    settings."""
    last_actions = {action.resource: action for action in step.actions if action.resource}
    return [
        action.restarts
        for action in last_actions.values()
        if action.restarts and holds(action, after) is False
    ]


def _states_of(step: Step, states: Looks) -> tuple[State, ...]:
    return tuple(states[resource] for resource in step.resources)


def _changed_states(before: Sequence[State], current: Sequence[State]) -> list[State]:
    """The states that have changed."""
    return [
        state_before
        for state_before, state_now in zip(before, current, strict=True)
        if not is_same(state_before, state_now)
    ]
