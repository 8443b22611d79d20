"""Rolling a run back, node by node: what has been changed since by anyone else is left alone."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

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
    min_of,
    of_state,
)
from nodevet.fix.journal.journal import (
    HostBegin,
    JournalError,
    JournalState,
    Stage,
    StepReverted,
    StepReverting,
    StepState,
)
from nodevet.fix.model import PlannedNode, Step
from nodevet.fix.rollout import preconditions
from nodevet.fix.rollout.clearance import Clearance, RefusedError
from nodevet.fix.rollout.left import Revertible, parted
from nodevet.fix.rollout.session import BlindError, LostError, NodeSession
from nodevet.fix.rollout.step_results import begin, of_packages
from nodevet.fix.rollout.waits import waits_for
from nodevet.fixing.result import HostResult, Outcome, Refusal, StepResult, worst
from nodevet.fleet.executor import LockedError, WorkError
from nodevet.resource import Resource, State, same

BACK = frozenset({Outcome.ROLLED_BACK, Outcome.PENDING})


class RollbackTask(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be reverted on one node."""

    host: str
    planned: PlannedNode
    steps: tuple[Step, ...]
    run: JournalState
    newer: Mapping[Resource, str] = {}  # what a newer run set, and that run
    closed: Callable[[bool], str] = lambda reboot: ""  # why nothing may be reverted now


def touched(steps: Sequence[Step], run: JournalState) -> tuple[Step, ...]:
    """The steps that left something on their nodes, in the order in which they are reverted."""
    return tuple(step for step in reversed(steps) if run.step(step.id).touched)


def nothing(host: str, steps: Sequence[Step], run: JournalState) -> HostResult:
    """A node where nothing is to be reverted; it is not visited."""
    back = any(run.step(step.id).stage is Stage.ROLLED_BACK for step in steps)
    why = "nothing is left to roll back" if back else NOT_ATTEMPTED
    unchanged = tuple(begin(step) for step in steps)
    return HostResult(host=host, outcome=Outcome.UNCHANGED, why=why, steps=unchanged)


def doubtful(host: str, why: str) -> HostResult:
    """A node whose journal cannot be right; it is not visited."""
    return HostResult(host=host, outcome=Outcome.UNKNOWN, why=why)


class NodeRollback:
    """The rollback of one node. `run` never raises but for what ends the whole run."""

    def __init__(self, back: RollbackTask, session: NodeSession) -> None:
        self.back = back
        self.session = session
        self._results: dict[str, StepResult] = {}

    def run(self) -> HostResult:
        started = time.monotonic()
        refusal, why, lost = None, "", ""
        try:
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
        told = [step.why for step in steps if step.outcome is outcome and step.why]
        returned = any(one.outcome in BACK for one in self._results.values())
        if outcome is Outcome.REFUSED and returned:
            outcome = Outcome.PARTIAL
        if lost or refusal is Refusal.UNREACHABLE:  # what is there by now is unknown
            outcome, told = min_of(outcome, Outcome.UNKNOWN), [lost or why, *told]
        elif refusal:
            outcome, told = Outcome.REFUSED, [why]
        for step in steps:  # what was unknown is, until it was looked at
            if step.outcome in UNKNOWN and step.outcome.rank < outcome.rank:
                outcome, told = step.outcome, [*told, step.why]
        result = HostResult(
            host=self.back.host,
            outcome=outcome,
            why="; ".join(dict.fromkeys(filter(None, told))),
            refusal=refusal if outcome is Outcome.REFUSED else None,
            seconds=round(time.monotonic() - started, 3),
            steps=steps,
        )
        with suppress(JournalError):
            self.session.journal.write(host_end(result))
        return result

    def _standing(self, step: Step) -> StepResult:
        """A step that was not reached: what was unknown stays unknown."""
        state = self.back.run.step(step.id)
        outcome = of_state(state, "rollback")
        if outcome in UNKNOWN:
            return begin(step, outcome=outcome, why=state.why)
        return begin(step)

    def _run(self) -> None:
        steps = touched(self.back.steps, self.back.run)
        if not steps:
            return
        if why := self.session.unkept(self.back.run.step(step.id) for step in steps):
            raise RefusedError(Refusal.PRECONDITION, why)
        evidence = self._enter(steps)
        packages = [step for step in steps if of_packages(step)]
        others = [step for step in steps if step not in packages]
        # a library that does not fit the loaded module says nothing of a GPU
        first, last = (others, packages) if evidence[Gpus].data else (packages, others)
        for group in filter(None, (first, last)):
            self._restore(group)
            if Outcome.UNKNOWN in {result.outcome for result in self._results.values()}:
                return

    def _restore(self, steps: Sequence[Step]) -> None:
        """These steps, all of them once more, for a later one may have changed what was restored
        before it, and after a while a last look. Raises LostError; until that look all of them
        are unknown."""
        ways = [way for step in steps if (way := self._step(step))]
        restored = [seen for way in ways for seen in way.parts.ours]
        actions = [action for way in ways for action in way.parts.actions]
        told, blind = list[str](), ""
        evidence: Evidence | None = None
        left: Mapping[Resource, str] = {}
        after: Mapping[Resource, State] = {}
        try:
            told = self.session.steadily(
                lambda: self.session.restore(restored, actions, settle=False)
            )
            ids = [way.step.id for way in ways]
            self.session.tell(Phase.SETTLING, *ids, seconds=self.session.terms.settle)
            time.sleep(self.session.terms.settle)
            self.session.tell(Phase.VERIFYING, *ids)
            after, left = self.session.steadily(lambda: self.session.left(restored))
            evidence = self.session.steadily(lambda: self.session.probe("rolled-back"))
        except BlindError as error:
            blind = f"cannot be verified: {error}"
        for way in ways:
            failing = [left[seen.resource] for seen in way.parts.ours if seen.resource in left]
            failing += [*dict.fromkeys((*way.told, *told))] if failing else []
            why = "; ".join([*way.parts.told, *failing, *([blind] if blind else [])])
            outcome = way.outcome(failing, blind)
            now = tuple(after.get(seen.resource, seen) for seen in way.found) if after else ()
            record = StepReverted(step=way.step.id, ok=not why, why=why, seen=now)
            then = self.back.run.step(way.step.id)
            if evidence and not failing and (waits := waits_for(way.step, then, evidence)):
                record = waiting(record, then, waits, evidence)
                outcome = Outcome.PENDING if record.ok else outcome
            self.session.journal.write(record)
            self._results[way.step.id] = replace(
                self._results[way.step.id], outcome=outcome, why=record.why, after=now
            )

    def _enter(self, steps: Sequence[Step]) -> Evidence:
        """Lock, probe, and whatever guards the steps of their risk. Raises RefusedError."""
        self.session.tell(Phase.CONNECTING)
        try:
            self.session.enter()
        except LockedError as error:
            raise RefusedError(Refusal.LOCKED, str(error)) from error
        except WorkError as error:
            raise RefusedError(Refusal.UNREACHABLE, str(error)) from error
        evidence = self._probe()
        host = evidence[HostInfo].data
        booted = host.boot_id if host else None  # it may have been rebooted since
        if why := preconditions.other_node(self.back.planned, evidence, booted=booted):
            raise RefusedError(Refusal.STALE, why)
        clearance = Clearance(
            host=self.back.host,
            planned=self.back.planned,
            drain_hook=self.session.terms.drain_hook,
            drain_seconds=self.session.terms.drain_seconds,
            harmless=self.session.terms.harmless,
            closed=self.back.closed,
            services=preconditions.services_of(steps),
            draining=lambda: self.session.tell(
                Phase.DRAINING, seconds=self.session.terms.drain_seconds
            ),
        )
        evidence = clearance.node(evidence, self._probe, steps=steps, reboot=False)
        self.session.journal.write(
            HostBegin(
                host=self.back.host,
                machine_id=self.back.planned.machine_id,
                boot_id=booted or "",
                uptime_s=host.uptime_s if host else None,
            )
        )
        return evidence

    def _probe(self) -> Evidence:
        self.session.tell(Phase.READING)
        try:
            return self.session.probe("before-rollback")
        except (WorkError, BlindError) as error:
            raise RefusedError(Refusal.UNREACHABLE, str(error)) from error

    def _step(self, step: Step) -> "_Way | None":
        """One step reverted, which is not verified yet; None if it cannot be. Raises LostError."""
        then = self.back.run.step(step.id)
        self.session.tell(Phase.REVERTING, step.id)
        if then.seen is None:
            why = "the journal does not say what it was"
            self._results[step.id] = begin(step, outcome=Outcome.UNKNOWN, why=why)
            return None
        why = "it was not looked at after it was restored"
        self._results[step.id] = begin(step, outcome=Outcome.UNKNOWN, why=why)
        try:
            now = self.session.steadily(lambda: self.session.look(step.resources))
        except BlindError as error:
            why = str(error)
            self._results[step.id] = begin(step, outcome=Outcome.UNKNOWN, why=why)
            return None
        parts = kept_from(parted(step, then, now), self.back.newer)
        self._results[step.id] = replace(self._results[step.id], before=now)
        self.session.journal.write(StepReverting(step=step.id, found=now))
        try:
            told = self.session.steadily(
                lambda: self.session.restore(parts.ours, parts.actions, settle=False)
            )
        except BlindError as error:
            told = [str(error)]
        return _Way(
            step=step,
            found=now,
            parts=parts,
            told=told,
        )


def waiting(record: StepReverted, then: StepState, waits: str, evidence: Evidence) -> StepReverted:
    """A step that was reverted and is in force later; the node as it was when that was done."""
    host = evidence[HostInfo].data
    return replace(
        record,
        why="; ".join(filter(None, (record.why, f"reverted, in force after {waits}"))),
        waits=waits,
        boot_id=then.back_boot_id if then.waits else (host and host.boot_id) or "",
        uptime_s=then.back_uptime_s if then.waits else host and host.uptime_s,
    )


def kept_from(parts: Revertible, newer: Mapping[Resource, str]) -> Revertible:
    """Without what a newer run needs: a boot unit that both have belongs to the newest."""
    taken = [seen.resource for seen in parts.ours if seen.resource in newer]
    told = [
        f"{resource.label} is also of run {newer[resource]}, which is newer, and is left to "
        "that: roll that back first"
        for resource in taken
    ]
    mine = tuple(seen for seen in parts.ours if seen.resource not in newer)
    return replace(parts, ours=mine, foreign=(*parts.foreign, *told))


class _Way(msgspec.Struct, frozen=True, kw_only=True):
    """A step that is being reverted."""

    step: Step
    found: tuple[State, ...]  # when the rollback came
    parts: Revertible
    told: list[str]  # what did not go well; it may be right by now

    def outcome(self, failing: Sequence[str], blind: str) -> Outcome:
        if blind or self.parts.unknown:
            return Outcome.UNKNOWN
        if failing:
            return Outcome.ROLLBACK_FAILED
        if not self.parts.foreign:
            return Outcome.ROLLED_BACK
        found = {seen.resource: seen for seen in self.found}
        changed = any(not same(was, found[was.resource]) for was in self.parts.ours)
        return Outcome.PARTIAL if changed else Outcome.REFUSED
