"""One node that is worked on: its session, which may be lost and come back, and its journal."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import TypeVar

import msgspec

from nodevet.evidence.document import Evidence, EvidenceError, decode
from nodevet.evidence.host import HostInfo
from nodevet.fix.events import Doing, Heard, Phase, safely, silent
from nodevet.fix.journal.contents import ContentError
from nodevet.fix.journal.journal import Journal, StepState
from nodevet.fix.model import PlannedNode
from nodevet.fix.rollout.preconditions import other_node
from nodevet.fixing.result import said
from nodevet.fleet.executor import Executor, LockedError, WorkError
from nodevet.fleet.protocol.framing import ActResult
from nodevet.resource import (
    AnyAction,
    Resource,
    RestoreError,
    State,
    apart,
    ended,
    filled,
    kept,
    kind_of,
    named,
    restore,
    same,
)

Answer = TypeVar("Answer")

PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 30.0, 30.0)  # seconds, before each try to come back


class SessionTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How nodes are worked on. Times in seconds."""

    who: str  # what the lock on a node says
    settle: float = 5.0  # a setting that something else takes back does not live so long
    reboot: bool = False  # every node that was changed is rebooted, and must still be right
    reboot_seconds: float = 900.0
    boot_settle: float = 120.0  # after a reboot, until what starts at boot has set its settings
    drain_hook: str = ""
    drain_seconds: float = 1800.0
    harmless: frozenset[str] = frozenset()  # who may hold the GPUs: --holders
    pauses: tuple[float, ...] = PAUSES


class LostError(Exception):
    """The node did not come back; the message says why. What is on it is not known."""


class BlindError(Exception):
    """The node answers, and what it says cannot be used; the message says why."""


class TimedEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """Evidence, and when it was read by the controller's clock: ISO 8601 in UTC."""

    asked: str
    at: str  # when it had come
    evidence: Evidence


class NodeSession:
    """A node with its session. `keep` takes each evidence document with a name for it; `heard`
    what begins on the node."""

    def __init__(
        self,
        host: str,
        executor: Executor,
        journal: Journal,
        terms: SessionTerms,
        keep: Callable[[str, bytes], None],
        planned: PlannedNode,
        heard: Heard = silent,
    ) -> None:
        self.host = host
        self.planned = planned
        self.executor = executor
        self.journal = journal
        self.terms = terms
        self._keep = keep
        self._heard = safely(heard)
        self._lost = ""  # why nothing is asked of the node any more
        self.reading: TimedEvidence | None = None  # the last, unless something was changed since

    def tell(self, phase: Phase, *steps: str, seconds: float | None = None, why: str = "") -> None:
        """Tell whoever watches what begins now, of the steps with these ids."""
        told = Doing(host=self.host, phase=phase, steps=steps, seconds=seconds, why=why)
        self._heard(told)

    def enter(self) -> None:
        """Open a session and take the lock. Raises WorkError and LockedError."""
        self.executor.open(self.host)
        self.executor.lock(self.host, self.terms.who)

    def reenter(self) -> None:
        """Come back after the session was lost: bounded tries. Raises LostError, also if another
        machine answers by now: nothing may be written there, whatever is called after that.

        The node may go on holding the lock for the session that it has not missed yet. It may have
        been rebooted: what was begun is looked at after that, too, and nothing else is begun.
        """
        if self._lost:
            raise LostError(self._lost)
        self.reading = None
        why = ""
        for number, pause in enumerate(self.terms.pauses):
            self.tell(Phase.LOST, seconds=sum(self.terms.pauses[number:]), why=why)
            time.sleep(pause)
            with suppress(WorkError):
                self.executor.close(self.host)
            try:
                self.enter()
                evidence = decode(self.executor.probe(self.host))
            except (WorkError, LockedError, EvidenceError) as error:
                why = str(error)
                continue
            host = evidence[HostInfo].data
            booted = host.boot_id if host else None
            if other := other_node(self.planned, evidence, booted=booted):
                raise self._left_alone(f"the session was lost, and then {other}")
            return
        raise self._left_alone(f"the node could not be reached again: {why}")

    def _left_alone(self, why: str) -> LostError:
        """No session to it is left, and none is opened again."""
        self._lost = why
        with suppress(WorkError):
            self.executor.close(self.host)
        return LostError(why)

    def steadily(self, call: Callable[[], Answer]) -> Answer:
        """`call`, which may be repeated, until the session holds for it.

        Raises LostError, and BlindError where the node can be reached and never answers this.
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
        raise BlindError(f"again and again: {why}")

    def probe(self, name: str) -> Evidence:
        """Fresh evidence, kept under `name`. Raises WorkError, and BlindError where it is none."""
        self.reading = None
        asked = utc_now()
        document = self.executor.probe(self.host)
        at = utc_now()
        self._keep(name, document)
        try:
            evidence = decode(document)
        except EvidenceError as error:
            raise BlindError(str(error)) from error
        self.reading = TimedEvidence(asked=asked, at=at, evidence=evidence)
        return evidence

    def act(self, action: AnyAction) -> ActResult:
        """Carry out an action: what was read before says nothing any more. Raises WorkError."""
        self.reading = None
        return self.executor.act(self.host, action)

    def reboot(self) -> str:
        """Reboot the node; its new boot id. Raises WorkError."""
        self.reading = None
        return self.executor.reboot(self.host, seconds=self.terms.reboot_seconds)

    def look(self, resources: Sequence[Resource], *, restorable: bool = False) -> tuple[State, ...]:
        """What these resources are now, in their order, and their contents in the run's folder:
        `restorable`: all of them, else as many as it takes. Raises WorkError and BlindError."""
        seen = {each.resource: each for each in self.executor.look(self.host, resources)}
        missing = [resource.label for resource in resources if resource not in seen]
        if missing:
            raise BlindError(f"the node did not say what is there: {', '.join(missing)}")
        states, contents = kept(seen[resource] for resource in resources)
        for content in contents.values():
            try:
                self.journal.contents.put(content)
            except ContentError as error:
                if restorable:
                    raise BlindError(str(error)) from error
        return states

    def at(
        self, resources: Iterable[Resource], *, restorable: bool = False
    ) -> dict[Resource, State]:
        """What each of these is now, as `look` has it. Raises WorkError and BlindError."""
        return {seen.resource: seen for seen in self.look(tuple(resources), restorable=restorable)}

    def restoring(
        self, before: Sequence[State], actions: Sequence[AnyAction] = ()
    ) -> Sequence[AnyAction]:
        """What restores these. Raises RestoreError, also if a content is not what was kept."""
        try:
            whole = filled(before, self.journal.contents.get)
        except ContentError as error:
            raise RestoreError(str(error)) from error
        return restore(*whole, actions=actions)

    def restore(
        self, before: Sequence[State], actions: Sequence[AnyAction] = (), *, settle: bool = True
    ) -> list[str]:
        """Make everything as it was before, and look whether it stays so; what does not, in words.

        Twice where it must be: stopping a unit may change what was restored already. Without
        `settle` the last look comes at once, and another one is left to do.
        Raises WorkError; may be repeated.
        """
        resources = tuple(seen.resource for seen in before)
        now = self.look(resources)
        changed, told = _differing(before, now), list[str]()
        for again in (False, True):
            try:
                restoring = self.restoring(_whole(changed, before), actions) if changed else ()
            except RestoreError as error:
                return [str(error)]
            if not again:
                self._sweep(before, now)
            if not changed:
                return []
            told = []
            for action in restoring:
                acted = self.act(action)
                if not acted.ok:
                    told.append(f"{action.label}: {said(acted.code, acted.output)}")
            now = self.look(resources)
            if not (changed := _differing(before, now)):
                break
        if settle:
            time.sleep(self.terms.settle)
            now = self.look(resources)
        left = _left(before, now)
        return [*left.values(), *(told if left else ())]

    def unkept(self, steps: Iterable[StepState]) -> str:
        """Why these steps cannot be reverted: a content that is not what was kept; or empty."""
        before = [seen for step in steps for seen in step.seen or ()]
        try:
            self.journal.contents.check(named(before))
        except ContentError as error:
            return (
                f"{error}; nothing is written there: restore that file from a copy of the run's "
                "folder, or revert this host by hand"
            )
        return ""

    def left(self, before: Sequence[State]) -> tuple[dict[Resource, State], dict[Resource, str]]:
        """What is there now, and what of it is not as it was before, in words. Raises as `look`."""
        now = self.look(tuple(seen.resource for seen in before))
        return {seen.resource: seen for seen in now}, _left(before, now)

    def _sweep(self, before: Sequence[State], now: Sequence[State]) -> None:
        """What a crash of the node left of a write is no part of what was before, or is."""
        for then, at in zip(before, now, strict=True):
            for action in kind_of(then.resource).sweep(then, at):
                self.act(action)


def utc_now() -> str:
    """As the journal has it."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def _differing(before: Sequence[State], now: Sequence[State]) -> list[State]:
    return [
        then
        for then, at in zip(before, now, strict=True)
        if not same(then, at) and not ended(then, at)
    ]


def _left(before: Sequence[State], now: Sequence[State]) -> dict[Resource, str]:
    """What is not as it was before, in words."""
    present = {seen.resource: seen for seen in now}
    return {
        each.resource: f"{each.resource.label} {apart(each, present[each.resource])}"
        for each in _differing(before, now)
    }


def _whole(changed: Sequence[State], before: Sequence[State]) -> list[State]:
    """With the other half of what one command sets together."""
    wanted = {seen.resource for seen in changed}
    for seen in changed:
        wanted.update(kind_of(seen.resource).restored_with(seen.resource))
    return [seen for seen in before if seen.resource in wanted]
