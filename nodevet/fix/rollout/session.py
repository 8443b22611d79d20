"""A session with one node, which may break and come back, and the journal of the run."""

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import TypeVar

import msgspec

from nodevet.base.errors import NothingDoneError, UserError
from nodevet.checking.bmc_identity import MachineIds, confirmed_ids, node_ids
from nodevet.evidence.document import Evidence, EvidenceError, decode
from nodevet.evidence.host import HostInfo
from nodevet.fix.events import Doing, EventHandler, Phase, ignore_event, without_errors
from nodevet.fix.journal.contents import ContentError
from nodevet.fix.journal.journal import HostBegin, Journal, JournalState, StepState
from nodevet.fix.journal.owner import uptime_s
from nodevet.fix.model import PlannedNode
from nodevet.fix.rollout.drain_hook import REBOOT, UNDRAIN, DrainHook
from nodevet.fix.rollout.power import REBOOT as ASKED_REBOOT
from nodevet.fix.rollout.power import NodePower
from nodevet.fix.rollout.preconditions import node_mismatch
from nodevet.fixing.result import SWITCHING, HostResult, Outcome, Refusal, ending_text
from nodevet.fleet.executor import Executor, LockedError, WorkError
from nodevet.fleet.protocol.framing import ActResult
from nodevet.resource import (
    AnyAction,
    Resource,
    RestoreError,
    State,
    content_sizes,
    describe_change,
    has_ended,
    is_same,
    kind_of,
    restore,
    to_stored,
    with_contents,
)

Answer = TypeVar("Answer")

GIVEN_BACK = frozenset(
    {
        Outcome.REFUSED,
        Outcome.NOT_ATTEMPTED,
        Outcome.ROLLED_BACK,
        Outcome.VERIFIED_AFTER_REBOOT,
        Outcome.CHANGED,
        Outcome.UNCHANGED,
    }
)
"""After these outcomes nothing is wrong with a node that nodevet brought about."""
UNENTERED = frozenset({Refusal.LOCKED, Refusal.UNREACHABLE})
STAYS = "stays drained"
QUICK = 10.0  # seconds, for a node that should answer at once
PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 30.0, 30.0)  # seconds, before each try to come back


class SessionTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Lock, times and hooks for all nodes of a run. Times in seconds."""

    who: str  # the text in a node's lock
    settle: float = 5.0  # before a setting is read again: whether something else reverts it
    reboot: bool = False  # reboot every changed node, and verify it again
    power_cycle: bool = False  # by switching it off and on
    reboot_seconds: float = 900.0
    boot_settle: float = 120.0  # after a reboot, until what starts at boot has set its settings
    drain_hook: str = ""
    drain_seconds: float = 1800.0
    plan: str = ""  # its id, for the hook
    run: str = ""  # which run of the plan this is, for the hook
    harmless: frozenset[str] = frozenset()  # who may hold the GPUs: --holders
    pauses: tuple[float, ...] = PAUSES


class LostError(Exception):
    """The node did not come back, so its state is unknown; the message says why."""


class BlindError(Exception):
    """The node answers, but its answer is not usable; the message says why."""


class TimedEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """Evidence, and when the controller asked for it and received it: ISO 8601 in UTC."""

    asked: str
    at: str
    evidence: Evidence


class NodeSession:
    """A node with its session. `keep` receives each evidence document with its name, `on_event`
    each phase that begins on the node."""

    def __init__(
        self,
        host: str,
        executor: Executor,
        journal: Journal,
        terms: SessionTerms,
        keep: Callable[[str, bytes], None],
        planned: PlannedNode,
        on_event: EventHandler = ignore_event,
        power: NodePower | None = None,
    ) -> None:
        self.host = host
        self.power = power
        self.planned = planned
        self.executor = executor
        self.journal = journal
        self.terms = terms
        self._keep = keep
        self._on_event = without_errors(on_event)
        self.hook = (
            DrainHook(terms.drain_hook, host, terms.drain_seconds, terms.plan, terms.run)
            if terms.drain_hook
            else None
        )
        self._lost = ""  # why the session is over
        self._is_locked = False  # by this session; another run may be at work on the node if not
        self._left = ""  # the boot that the drain hook or the BMC ends
        self.reading: TimedEvidence | None = None  # the last evidence, unless outdated by an action

    def tell(self, phase: Phase, *steps: str, seconds: float | None = None, why: str = "") -> None:
        """Report the phase that begins now, for the steps with these ids."""
        event = Doing(host=self.host, phase=phase, steps=steps, seconds=seconds, why=why)
        self._on_event(event)

    def enter(self) -> None:
        """Open a session and take the lock. Raises WorkError and LockedError."""
        self.executor.open(self.host)
        self.lock()

    def lock(self) -> None:
        """Lock the node. Raises WorkError and LockedError."""
        self.executor.lock(self.host, self.terms.who)
        self._is_locked = True

    def close(self) -> None:
        """End the session, and with it the lock."""
        self._is_locked = False
        with suppress(WorkError):
            self.executor.close(self.host)

    def reenter(self) -> None:
        """Open the session again after it broke, with a limited number of tries. Raises LostError,
        also if another machine answers; after that every call raises it.

        The node may still hold the lock for the old session. It may have rebooted: nodevet then
        still checks its started steps, but starts no others.
        """
        if self._lost:
            raise LostError(self._lost)
        self.reading = None
        why = ""
        for number, pause in enumerate(self.terms.pauses):
            self.tell(Phase.LOST, seconds=sum(self.terms.pauses[number:]), why=why)
            time.sleep(pause)
            self.close()
            try:
                self.enter()
                evidence = decode(self.executor.probe(self.host))
            except (WorkError, LockedError, EvidenceError) as error:
                why = str(error)
                continue
            host = evidence[HostInfo].data
            booted = host.boot_id if host else None
            if mismatch := node_mismatch(self.planned, evidence, booted=booted):
                raise self._left_alone(f"the session was lost, and then {mismatch}")
            return
        raise self._left_alone(f"the node could not be reached again: {why}")

    def _left_alone(self, why: str) -> LostError:
        """Close the session for good."""
        self._lost = why
        self.close()
        return LostError(why)

    def retry_call(self, call: Callable[[], Answer]) -> Answer:
        """`call`, which must be repeatable, again after each break of the session.

        Raises LostError, and BlindError if the node is reachable but never answers this call.
        """
        why = ""
        for _ in range(3):
            if self._lost:
                raise LostError(self._lost)
            try:
                return call()
            except WorkError as error:
                why = str(error)
                self.reenter()
        raise BlindError(f"three times in a row: {why}")

    def probe(self, name: str) -> Evidence:
        """Fresh evidence, kept as `name`. Raises WorkError, and BlindError if it is not valid."""
        self.reading = None
        asked_at = utc_now()
        document = self.executor.probe(self.host)
        received_at = utc_now()
        self._keep(name, document)
        try:
            evidence = decode(document)
        except EvidenceError as error:
            raise BlindError(str(error)) from error
        self.reading = TimedEvidence(asked=asked_at, at=received_at, evidence=evidence)
        return evidence

    def act(self, action: AnyAction) -> ActResult:
        """Run an action, which makes `reading` outdated. Raises WorkError."""
        self.reading = None
        return self.executor.act(self.host, action)

    def order_reboot(self, evidence: Evidence) -> str:
        """Let the BMC switch the node off and on if these are the terms, else let the drain hook
        reboot it if it can; why that was not begun, or empty. Raises LostError and JournalError."""
        host = evidence[HostInfo].data
        boot_id = (host and host.boot_id) or ""
        self._left = ""
        if self.terms.power_cycle:
            self._left = boot_id
            return self.cycle_power(boot_id, self._ids(evidence), runs=True)
        if boot_id:
            self._journal_request(boot_id, ASKED_REBOOT)
        if not (self.hook and REBOOT in (self.hook.offers or ()) and boot_id):
            return ""
        self._left = boot_id
        return self.hook.reboot()

    def foreign_bmc(self, evidence: Evidence) -> str:
        """Why its BMC may not switch the node of this evidence; empty if it may, or if these are
        not the terms."""
        if self.power is None or not self.terms.power_cycle:
            return ""
        try:
            return self.power.refusal(self.power.identity(self._ids(evidence)))
        except UserError as error:
            return str(error)

    def _ids(self, evidence: Evidence) -> MachineIds:
        """The ids of the plan that the node of this evidence still reports."""
        return confirmed_ids(self.planned.ids, node_ids(evidence))

    def cycle_power(self, boot_id: str, node: MachineIds, *, runs: bool) -> str:
        """Switch the node off and on by its BMC; why nothing was asked of the BMC, or empty.
        `node`: what identifies it. `runs`: the node answers. Raises LostError if the BMC was asked
        and does not end with the power on, and JournalError."""
        if self.power is None or not boot_id:
            return "the inventory names no BMC for it" if boot_id else "it does not name its boot"
        self.tell(Phase.SWITCHING)
        requests: list[str] = []

        def journal_request(what: str) -> None:
            requests.append(what)
            self._journal_request(boot_id, what)

        try:
            self.power.cycle(
                journal_request, node=node, runs=runs, rebooted=lambda: self.is_rebooted(boot_id)
            )
        except UserError as error:
            if not requests or isinstance(error, NothingDoneError):
                return f"not switched off: {error}"
            raise LostError(f"{SWITCHING}: {error}{self.power_text()}") from error
        return ""

    def is_rebooted(self, left: str) -> bool:
        """Whether the node answers at once, and in another boot than `left`. Ends the session, and
        with it the lock."""
        try:
            self.await_boot(left, QUICK)
        except WorkError:
            return False
        return True

    def switch_on(self, boot_id: str) -> bool:
        """Whether its BMC says that the node is off, and nodevet switched it on. Raises UserError
        and JournalError."""
        return self.power is not None and self.power.switch_on_if_off(
            lambda what: self._journal_request(boot_id, what), node=self.planned.ids
        )

    def power_text(self) -> str:
        """`; its BMC says that the power is on`; empty if the inventory names no BMC."""
        return f"; {self.power.text()}" if self.power else ""

    def _journal_request(self, boot_id: str, what: str) -> None:
        """Journal the next request to the node or its BMC. Raises JournalError."""
        self.journal.write(
            HostBegin(
                host=self.host,
                machine_id=self.planned.machine_id,
                boot_id=boot_id,
                asked=what,
                controller_s=uptime_s(),
            )
        )

    def reboot(self) -> str:
        """Reboot the node, unless something else was ordered to do so; its new boot id. Raises
        WorkError."""
        self.reading = None
        return self.await_boot(self._left, self.terms.reboot_seconds)

    def await_boot(self, left: str, seconds: float) -> str:
        """Wait for another boot than `left`, or reboot the node without it; returns the new boot
        id. Ends the lock. Raises WorkError."""
        self._is_locked = False
        return self.executor.reboot(self.host, seconds=seconds, left=left)

    def report_drain(self, evidence: Evidence) -> None:
        """Report that the drain hook runs now, and journal it. Raises JournalError."""
        self.tell(Phase.DRAINING, seconds=self.terms.drain_seconds)
        self.write_begin(evidence, hook=(self.hook and self.hook.offers) or ())

    def journal_drain(self, evidence: Evidence) -> None:
        """Journal what the drain hook offers. Raises JournalError."""
        if self.hook and self.hook.offers:
            self.write_begin(evidence, hook=self.hook.offers)

    def recall(self, earlier: JournalState) -> None:
        """Read from the journal of a resumed run that the drain hook has drained the node."""
        if self.hook and (host := earlier.host(self.host)):
            self.hook.offers = host.hook

    def give_back(
        self, result: HostResult, outcomes: Collection[Outcome] = GIVEN_BACK
    ) -> HostResult:
        """Let the drain hook give the node back after these outcomes, if no other run holds the
        node; the result says whether it stays drained."""
        if not self.hook or UNDRAIN not in (self.hook.offers or ()):
            return result
        why = self._kept_reason(result, outcomes) or self.hook.undrain()
        return msgspec.structs.replace(result, why="; ".join(filter(None, (result.why, why))))

    def _kept_reason(self, result: HostResult, outcomes: Collection[Outcome]) -> str:
        """Why the node stays drained; empty if it may be given back. Locks the node if this session
        has not."""
        if self._is_locked and result.outcome in outcomes:
            return ""
        if self._lost or result.refusal in UNENTERED or result.outcome not in outcomes:
            return STAYS
        try:
            self.enter()
        except (WorkError, LockedError) as error:
            return f"{STAYS}: {error}"
        return ""

    def write_begin(self, evidence: Evidence, *, hook: tuple[str, ...] | None = None) -> None:
        """Write down that this node begins, or where it stands. Raises JournalError."""
        if host := evidence[HostInfo].data:
            self.journal.write(
                HostBegin(
                    host=self.host,
                    machine_id=host.machine_id or "",
                    boot_id=host.boot_id or "",
                    uptime_s=host.uptime_s,
                    hook=hook,
                )
            )

    def look(self, resources: Sequence[Resource], *, restorable: bool = False) -> tuple[State, ...]:
        """The current states of these resources, in their order; keeps their contents in the run's
        folder. With `restorable` every content must be stored. Raises WorkError and BlindError."""
        by_resource = {state.resource: state for state in self.executor.look(self.host, resources)}
        missing_labels = [resource.label for resource in resources if resource not in by_resource]
        if missing_labels:
            raise BlindError(f"the node did not report: {', '.join(missing_labels)}")
        states, contents = to_stored(by_resource[resource] for resource in resources)
        for content in contents.values():
            try:
                self.journal.contents.put(content)
            except ContentError as error:
                if restorable:
                    raise BlindError(str(error)) from error
        return states

    def states_by_resource(
        self, resources: Iterable[Resource], *, restorable: bool = False
    ) -> dict[Resource, State]:
        """The current state of each resource. Raises as `look`."""
        return {
            state.resource: state for state in self.look(tuple(resources), restorable=restorable)
        }

    def restoring_actions(
        self, before: Sequence[State], actions: Sequence[AnyAction] = ()
    ) -> Sequence[AnyAction]:
        """The actions that restore these states. Raises RestoreError, also if a kept content is
        missing or changed."""
        try:
            states = with_contents(before, self.journal.contents.get)
        except ContentError as error:
            raise RestoreError(str(error)) from error
        return restore(*states, actions=actions)

    def restore(
        self, before: Sequence[State], actions: Sequence[AnyAction] = (), *, settle: bool = True
    ) -> list[str]:
        """Restore these states, read them again, and return the differences that remain, in words.

        Does so twice if needed: stopping a unit may change what was restored already. Without
        `settle` it does not wait before the last look; the caller must look again.
        Raises WorkError; may be repeated.
        """
        resources = tuple(state.resource for state in before)
        current = self.look(resources)
        differing, failures = _changed_states(before, current), list[str]()
        for is_second in (False, True):
            try:
                restoring = (
                    self.restoring_actions(_with_partners(differing, before), actions)
                    if differing
                    else ()
                )
            except RestoreError as error:
                return [str(error)]
            if not is_second:
                self._sweep(before, current)
            if not differing:
                return []
            failures = []
            for action in restoring:
                acted = self.act(action)
                if not acted.ok:
                    failures.append(
                        f"{action.short_label}: {ending_text(acted.code, acted.output)}"
                    )
            current = self.look(resources)
            if not (differing := _changed_states(before, current)):
                break
        if settle:
            time.sleep(self.terms.settle)
            current = self.look(resources)
        differences = _differences(before, current)
        return [*(failures if differences else ()), *differences.values()]

    def missing_content(self, steps: Iterable[StepState]) -> str:
        """Why these steps cannot be reverted: a kept content is missing or changed; empty if they
        can be."""
        before = [state for step in steps for state in step.seen or ()]
        try:
            self.journal.contents.check(content_sizes(before))
        except ContentError as error:
            return (
                f"{error}; nodevet writes nothing there: restore that file from a copy of the "
                "run's folder, or revert this host by hand"
            )
        return ""

    def compare_states(
        self, before: Sequence[State]
    ) -> tuple[dict[Resource, State], dict[Resource, str]]:
        """The current states, and how they differ from `before`, in words. Raises as `look`."""
        current = self.look(tuple(state.resource for state in before))
        return {state.resource: state for state in current}, _differences(before, current)

    def _sweep(self, before: Sequence[State], current: Sequence[State]) -> None:
        """Remove what actions left behind when the node crashed."""
        for state_before, state_now in zip(before, current, strict=True):
            for action in kind_of(state_before.resource).remove_leftovers(state_before, state_now):
                self.act(action)


def utc_now() -> str:
    """The current time as in the journal: ISO 8601 in UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def _changed_states(before: Sequence[State], current: Sequence[State]) -> list[State]:
    return [
        state_before
        for state_before, state_now in zip(before, current, strict=True)
        if not is_same(state_before, state_now) and not has_ended(state_before, state_now)
    ]


def _differences(before: Sequence[State], current: Sequence[State]) -> dict[Resource, str]:
    """The resources that are not as before, each with its difference in words."""
    by_resource = {state.resource: state for state in current}
    return {
        state.resource: f"{state.resource.label} "
        + describe_change(state, by_resource[state.resource])
        for state in _changed_states(before, current)
    }


def _with_partners(changed: Sequence[State], before: Sequence[State]) -> list[State]:
    """The changed states, with those that one command sets together with them."""
    resources = {state.resource for state in changed}
    for state in changed:
        resources.update(kind_of(state.resource).restored_with(state.resource))
    return [state for state in before if state.resource in resources]
