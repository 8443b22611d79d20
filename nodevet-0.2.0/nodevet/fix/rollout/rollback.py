"""Rolls a run back, node by node; does not touch what something else has changed since."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
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
from nodevet.fix.rollout.ledger import new_result, of_packages
from nodevet.fix.rollout.left import Revertible, revertible_part
from nodevet.fix.rollout.session import BlindError, LostError, NodeSession
from nodevet.fix.rollout.waits import pending_until
from nodevet.fix.rollout.wake import enter_or_wake
from nodevet.fixing.result import HostResult, Outcome, Refusal, StepResult, worst
from nodevet.fleet.executor import WorkError
from nodevet.resource import Resource, State, is_same

BACK = frozenset({Outcome.ROLLED_BACK, Outcome.PENDING})


class RollbackTask(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be reverted on one node."""

    host: str
    planned: PlannedNode
    steps: tuple[Step, ...]
    run: JournalState
    newer: Mapping[Resource, str] = {}  # resources that a newer run set -> that run
    closed: Callable[[bool], str] = lambda reboot: ""  # why nodevet may revert nothing now


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

    def run(self) -> HostResult:
        started = time.monotonic()
        refusal, why, lost = None, "", ""
        try:
            self.session.recall(self.back.run)
            self._run()
        except RefusedError as error:
            refusal, why = error.refusal, str(error)
        except (LostError, JournalError) as error:
            lost = str(error)
        finally:
            with suppress(WorkError):
                self.session.executor.close(self.back.host)
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
            outcome, reasons = Outcome.REFUSED, [why]
        for step in steps:  # what was unknown is, until it was looked at
            if step.outcome in UNKNOWN and step.outcome.rank < outcome.rank:
                outcome, reasons = step.outcome, [*reasons, step.why]
        result = HostResult(
            host=self.back.host,
            outcome=outcome,
            why="; ".join(dict.fromkeys(filter(None, reasons))),
            refusal=refusal if outcome is Outcome.REFUSED else None,
            seconds=round(time.monotonic() - started, 3),
            steps=steps,
        )
        result = self.session.give_back(result)
        with suppress(JournalError):
            given_back = bool(self.session.hook and self.session.hook.given_back)
            self.session.journal.write(host_end(result, given_back=given_back))
        return result

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
        if why := self.session.unkept(self.back.run.step(step.id) for step in steps):
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
        then all of them are unknown."""
        ways = [way for step in steps if (way := self._step(step))]
        restored = [state for way in ways for state in way.parts.ours]
        actions = [action for way in ways for action in way.parts.actions]
        problems, blind_reason = list[str](), ""
        evidence: Evidence | None = None
        differences: Mapping[Resource, str] = {}
        after: Mapping[Resource, State] = {}
        try:
            problems = self.session.steadily(
                lambda: self.session.restore(restored, actions, settle=False)
            )
            ids = [way.step.id for way in ways]
            self.session.tell(Phase.SETTLING, *ids, seconds=self.session.terms.settle)
            time.sleep(self.session.terms.settle)
            self.session.tell(Phase.VERIFYING, *ids)
            after, differences = self.session.steadily(lambda: self.session.left(restored))
            evidence = self.session.steadily(lambda: self.session.probe("rolled-back"))
        except BlindError as error:
            blind_reason = f"cannot be verified: {error}"
        for way in ways:
            resources = [state.resource for state in way.parts.ours]
            failing = [differences[resource] for resource in resources if resource in differences]
            failing += [*dict.fromkeys((*way.told, *problems))] if failing else []
            told = (*way.parts.told, *way.parts.one_way, *failing, blind_reason)
            why = "; ".join(filter(None, told))
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

    def _enter(self, steps: Sequence[Step]) -> Evidence:
        """Lock and probe the node, and check preconditions; a node that the run left switched off
        is switched on. Raises RefusedError."""
        clearance = Clearance.of_session(self.session, steps, self.back.closed)
        enter_or_wake(self.session, clearance, self.back.run)
        read = partial(probe, self.session, "before-rollback")
        evidence = read()
        host = evidence[HostInfo].data
        booted = host.boot_id if host else None  # it may have been rebooted since
        if why := preconditions.node_mismatch(self.back.planned, evidence, booted=booted):
            raise RefusedError(Refusal.STALE, why)
        evidence = clearance.node(evidence, read, steps=steps, reboot=False)
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
            current = self.session.steadily(lambda: self.session.look(step.resources))
        except BlindError as error:
            why = str(error)
            self._results[step.id] = new_result(step, outcome=Outcome.UNKNOWN, why=why)
            return None
        parts = without_newer(revertible_part(step, record, current), self.back.newer)
        self._results[step.id] = replace(self._results[step.id], before=current)
        self.session.journal.write(StepReverting(step=step.id, found=current))
        try:
            problems = self.session.steadily(
                lambda: self.session.restore(parts.ours, parts.actions, settle=False)
            )
        except BlindError as error:
            problems = [str(error)]
        return StepRollback(
            step=step,
            found=current,
            parts=parts,
            told=problems,
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
    told: list[str]  # actions that failed; the state may be right by now

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
