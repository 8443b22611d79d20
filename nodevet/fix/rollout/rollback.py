"""Rolls a run back, node by node; does not touch what something else has changed since."""

import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from functools import partial

import msgspec
from msgspec.structs import replace

from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpus
from nodevet.evidence.host import HostInfo
from nodevet.fix.events import Phase
from nodevet.fix.journal.account import (
    NOT_ATTEMPTED,
    UNKNOWN,
    host_end,
    outcome_of_state,
    worst_of,
)
from nodevet.fix.journal.journal import (
    JournalError,
    JournalState,
    Stage,
    StepReverted,
    StepReverting,
    StepState,
)
from nodevet.fix.model import PlannedNode, Step
from nodevet.fix.rollout import preconditions
from nodevet.fix.rollout.clearance import Clearance, RefusedError, probe
from nodevet.fix.rollout.ledger import Closed, new_result, of_packages
from nodevet.fix.rollout.left import Revertible, revertible_part
from nodevet.fix.rollout.session import GIVEN_BACK, BlindError, LostError, NodeSession
from nodevet.fix.rollout.waits import pending_until
from nodevet.fix.rollout.wake import enter_or_wake
from nodevet.fixing.model import Risk
from nodevet.fixing.result import HostResult, Outcome, Refusal, StepResult, worst
from nodevet.resource import Resource, State, is_same

BACK = frozenset({Outcome.ROLLED_BACK, Outcome.PENDING})


class RollbackTask(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be reverted on one node."""

    host: str
    planned: PlannedNode
    steps: tuple[Step, ...]
    run: JournalState
    newer: Mapping[Resource, str] = {}  # resources that a newer run set -> that run
    closed: Closed = lambda reboot: ""


def steps_to_revert(steps: Sequence[Step], run: JournalState) -> tuple[Step, ...]:
    """The steps that left something on their nodes, last one first."""
    return tuple(step for step in reversed(steps) if run.step(step.id).touched)


def nothing_to_revert(host: str, steps: Sequence[Step], run: JournalState) -> HostResult:
    """The result of a node with nothing to revert, which is not visited."""
    was_reverted = any(run.step(step.id).stage is Stage.ROLLED_BACK for step in steps)
    why = "nothing is left to roll back" if was_reverted else NOT_ATTEMPTED
    unchanged = tuple(new_result(step) for step in steps)
    return HostResult(host=host, outcome=Outcome.UNCHANGED, why=why, steps=unchanged)


def contradictory_host(host: str, why: str) -> HostResult:
    """The result of a node that the journal contradicts, which is not visited."""
    return HostResult(host=host, outcome=Outcome.UNKNOWN, why=why)


class NodeRollback:
    """The rollback of one node. `run` raises only what ends the whole run."""

    def __init__(self, task: RollbackTask, session: NodeSession) -> None:
        self.back = task
        self.session = session
        self._results: dict[str, StepResult] = {}
        todo = steps_to_revert(task.steps, task.run)
        self._clearance = Clearance.of_session(session, todo, task.closed)
        self._entered: Evidence | None = None  # of the node, when it was last drained

    def run(self) -> HostResult:
        started = time.monotonic()
        host = self.back.run.host(self.back.host)
        # what made the run keep the node drained is still there after a refused rollback
        kept = {Outcome.REFUSED} if host and host.is_taken else set[Outcome]()
        with closing(self.session):  # it is locked until it is given back
            result = self.session.give_back(self._result(started), GIVEN_BACK - kept)
        with suppress(JournalError):
            given_back = bool(self.session.hook and self.session.hook.given_back)
            self.session.journal.write(host_end(result, given_back=given_back))
        return result

    def _result(self, started: float) -> HostResult:
        """Revert the steps; how that ended. `started`: when, by the monotonic clock."""
        refusal, why, lost = None, "", ""
        try:
            self.session.recall(self.back.run)
            self._run()
        except RefusedError as error:
            refusal, why = error.refusal, str(error)
        except (LostError, JournalError) as error:
            lost = str(error)
        steps = tuple(
            self._results.get(step.id) or self._standing(step) for step in self.back.steps
        )
        outcome = worst(self._results.values())
        reasons = [step.why for step in steps if step.outcome is outcome and step.why]
        has_returned = any(step_result.outcome in BACK for step_result in self._results.values())
        if outcome is Outcome.REFUSED and has_returned:
            outcome = Outcome.PARTIAL
        if lost or refusal is Refusal.UNREACHABLE:  # what is there by now is unknown
            outcome, reasons = worst_of(outcome, Outcome.UNKNOWN), [lost or why, *reasons]
        elif refusal:
            reasons = [*(reasons if outcome.rank < Outcome.PARTIAL.rank else ()), why]
            outcome = worst_of(outcome, Outcome.PARTIAL if has_returned else Outcome.REFUSED)
        for step in steps:  # what was unknown is, until it was looked at
            if step.outcome in UNKNOWN and step.outcome.rank < outcome.rank:
                outcome, reasons = step.outcome, [*reasons, step.why]
        return HostResult(
            host=self.back.host,
            outcome=outcome,
            why="; ".join(dict.fromkeys(filter(None, reasons))),
            refusal=refusal if outcome in (Outcome.REFUSED, Outcome.PARTIAL) else None,
            seconds=round(time.monotonic() - started, 3),
            steps=steps,
        )

    def _standing(self, step: Step) -> StepResult:
        """The result of a step that was not reached: an unknown outcome stays unknown."""
        state = self.back.run.step(step.id)
        outcome = outcome_of_state(state, "rollback")
        if outcome in UNKNOWN:
            return new_result(step, outcome=outcome, why=state.why)
        return new_result(step)

    def _run(self) -> None:
        steps = steps_to_revert(self.back.steps, self.back.run)
        if not steps:
            return
        if why := self.session.missing_content(self.back.run.step(step.id) for step in steps):
            raise RefusedError(Refusal.PRECONDITION, why)
        evidence = self._enter(steps)
        packages = [step for step in steps if of_packages(step)]
        other_steps = [step for step in steps if step not in packages]
        # a library that does not fit the loaded module says nothing of a GPU
        first_group, last_group = (
            (other_steps, packages) if evidence[Gpus].data else (packages, other_steps)
        )
        for group in filter(None, (first_group, last_group)):
            self._restore(group)
            if Outcome.UNKNOWN in {result.outcome for result in self._results.values()}:
                return

    def _restore(self, steps: Sequence[Step]) -> None:
        """Revert these steps one by one, then all of them once more, since one may have changed
        what was restored before it; settle, and read everything again. Raises LostError; until
        then all of them are unknown. Raises RefusedError once the steps before a refused one are
        verified."""
        ways, refused = self._reverted(steps)
        restored = [state for way in ways for state in way.parts.ours]
        actions = [action for way in ways for action in way.parts.actions]
        problems, blind_reason = list[str](), ""
        evidence: Evidence | None = None
        differences: Mapping[Resource, str] = {}
        after: Mapping[Resource, State] = {}
        try:
            problems = self.session.retry_call(
                lambda: self.session.restore(restored, actions, settle=False)
            )
            ids = [way.step.id for way in ways]
            self.session.tell(Phase.SETTLING, *ids, seconds=self.session.terms.settle)
            time.sleep(self.session.terms.settle)
            self.session.tell(Phase.VERIFYING, *ids)
            after, differences = self.session.retry_call(
                lambda: self.session.compare_states(restored)
            )
            evidence = self.session.retry_call(lambda: self.session.probe("rolled-back"))
        except BlindError as error:
            blind_reason = f"cannot be verified: {error}"
        for way in ways:
            resources = [state.resource for state in way.parts.ours]
            failing = [differences[resource] for resource in resources if resource in differences]
            if failing:
                failing = [*dict.fromkeys((*way.failed_actions, *problems, *failing))]
            reasons = (*way.parts.not_restored, *way.parts.one_way, *failing, blind_reason)
            why = "; ".join(filter(None, reasons))
            outcome = way.outcome(failing, blind_reason)
            current = tuple(after.get(state.resource, state) for state in way.found if after)
            record = StepReverted(step=way.step.id, ok=not why, why=why, seen=current)
            earlier = self.back.run.step(way.step.id)
            if evidence and not failing and (event := pending_until(way.step, earlier, evidence)):
                record = pending_record(record, earlier, event, evidence)
                outcome = Outcome.PENDING if record.ok else outcome
            self.session.journal.write(record)
            self._results[way.step.id] = replace(
                self._results[way.step.id], outcome=outcome, why=record.why, after=current
            )
        if refused:
            raise refused

    def _reverted(self, steps: Sequence[Step]) -> tuple[list["StepRollback"], RefusedError | None]:
        """The reverted steps, up to the first that may not begin, and why it may not. Raises
        LostError."""
        ways: list[StepRollback] = []
        for step in steps:
            try:
                self._drain_again(step)
            except RefusedError as error:
                return ways, error
            if way := self._step(step):
                ways.append(way)
        return ways, None

    def _drain_again(self, step: Step) -> None:
        """Before each later step that needs a drained node, let the drain hook confirm that nobody
        has resumed it. Raises RefusedError."""
        if self._entered and self._results and step.risk.rank >= Risk.DRAIN.rank:
            read = partial(probe, self.session, f"before-rollback-{step.fix}")
            self._entered = self._clearance.node(self._entered, read, steps=[step], reboot=False)

    def _enter(self, steps: Sequence[Step]) -> Evidence:
        """Lock and probe the node, and check preconditions; a node that the run left switched off
        is switched on. Raises RefusedError."""
        enter_or_wake(self.session, self._clearance, self.back.run)
        read = partial(probe, self.session, "before-rollback")
        evidence = read()
        host = evidence[HostInfo].data
        booted = host.boot_id if host else None  # it may have been rebooted since
        if why := preconditions.node_mismatch(self.back.planned, evidence, booted=booted):
            raise RefusedError(Refusal.STALE, why)
        evidence = self._clearance.node(evidence, read, steps=steps, reboot=False)
        self._entered = evidence
        self.session.write_begin(evidence)
        return evidence

    def _step(self, step: Step) -> "StepRollback | None":
        """Revert one step, without verifying it; None if it cannot be. Raises LostError."""
        record = self.back.run.step(step.id)
        self.session.tell(Phase.REVERTING, step.id)
        if record.seen is None:
            why = "the journal lacks its earlier value"
            self._results[step.id] = new_result(step, outcome=Outcome.UNKNOWN, why=why)
            return None
        why = "it was not checked after it was restored"
        self._results[step.id] = new_result(step, outcome=Outcome.UNKNOWN, why=why)
        try:
            current = self.session.retry_call(lambda: self.session.look(step.resources))
        except BlindError as error:
            why = str(error)
            self._results[step.id] = new_result(step, outcome=Outcome.UNKNOWN, why=why)
            return None
        parts = without_newer(revertible_part(step, record, current), self.back.newer)
        self._results[step.id] = replace(self._results[step.id], before=current)
        self.session.journal.write(StepReverting(step=step.id, found=current))
        try:
            problems = self.session.retry_call(
                lambda: self.session.restore(parts.ours, parts.actions, settle=False)
            )
        except BlindError as error:
            problems = [str(error)]
        return StepRollback(
            step=step,
            found=current,
            parts=parts,
            failed_actions=problems,
        )


def pending_record(
    record: StepReverted, record_of_step: StepState, pending_until: str, evidence: Evidence
) -> StepReverted:
    """The record of a reverted step that waits for `waits`, with boot id and uptime of the node."""
    host = evidence[HostInfo].data
    return replace(
        record,
        why="; ".join(filter(None, (record.why, f"reverted, effective after {pending_until}"))),
        waits=pending_until,
        boot_id=record_of_step.back_boot_id
        if record_of_step.waits
        else (host and host.boot_id) or "",
        uptime_s=record_of_step.back_uptime_s if record_of_step.waits else host and host.uptime_s,
    )


def without_newer(parts: Revertible, newer: Mapping[Resource, str]) -> Revertible:
    """Without resources that a newer run needs: a boot unit of both belongs to the newer run."""
    newer_resources = [state.resource for state in parts.ours if state.resource in newer]
    reasons = [
        f"{resource.label} is also of run {newer[resource]}, which is newer: roll that run back "
        f"first"
        for resource in newer_resources
    ]
    remaining = tuple(state for state in parts.ours if state.resource not in newer)
    return replace(parts, ours=remaining, foreign=(*parts.foreign, *reasons))


class StepRollback(msgspec.Struct, frozen=True, kw_only=True):
    """A step that is being reverted."""

    step: Step
    found: tuple[State, ...]  # states when the rollback began
    parts: Revertible
    failed_actions: list[str]  # in words; the state may be right by now

    def outcome(self, failing: Sequence[str], blind: str) -> Outcome:
        if blind or self.parts.unknown:
            return Outcome.UNKNOWN
        if failing:
            return Outcome.ROLLBACK_FAILED
        if not (self.parts.foreign or self.parts.one_way):
            return Outcome.ROLLED_BACK
        found_states = {state.resource: state for state in self.found}
        is_changed = any(
            not is_same(earlier, found_states[earlier.resource]) for earlier in self.parts.ours
        )
        return Outcome.PARTIAL if is_changed else Outcome.REFUSED
