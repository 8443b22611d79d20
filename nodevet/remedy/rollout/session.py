"""One node that is worked on: its session, which may be lost and come back, and its journal."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec

from nodevet.evidence.document import Evidence, EvidenceError, decode
from nodevet.fleet.executor import Executor, LockedError, WorkError
from nodevet.model import show
from nodevet.remedy.journal.journal import Journal
from nodevet.remedy.rollout.compare import ended, same
from nodevet.remedy.rollout.undo import PAIRS, UndoError, undo
from nodevet.resource import AnyAction, Resource, State
from nodevet.resource.file import WriteFile
from nodevet.resource.kernel import WriteKernel
from nodevet.resource.unit import SetUnit

Answer = TypeVar("Answer")

PAUSES = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 30.0, 30.0)  # seconds, before each try to come back
BRIEF = 300  # characters of a command's output in one line of a report


class SessionTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How nodes are worked on. Times in seconds."""

    who: str  # what the lock on a node says
    settle: float = 5.0  # a setting that something else takes back does not live so long
    reboot: bool = False  # every node that was changed is rebooted, and must still be right
    reboot_seconds: float = 900.0
    boot_settle: float = 120.0  # after a reboot, until what starts at boot has set its settings
    drain_hook: str = ""
    harmless: frozenset[str] = frozenset()  # who may hold the GPUs: --holders
    pauses: tuple[float, ...] = PAUSES


class LostError(Exception):
    """The node did not come back; the message says why. What is on it is in doubt."""


class BlindError(Exception):
    """The node answers, and what it says cannot be used; the message says why."""


class NodeSession:
    """A node with its session. `keep` takes each evidence document with a name for it."""

    def __init__(
        self,
        host: str,
        executor: Executor,
        journal: Journal,
        terms: SessionTerms,
        keep: Callable[[str, bytes], None],
    ) -> None:
        self.host = host
        self.executor = executor
        self.journal = journal
        self.terms = terms
        self._keep = keep

    def enter(self) -> None:
        """Open a session and take the lock. Raises WorkError and LockedError."""
        self.executor.open(self.host)
        self.executor.lock(self.host, self.terms.who)

    def reenter(self) -> None:
        """Come back after the session was lost: bounded tries. Raises LostError.

        The node may go on holding the lock for the session that it has not missed yet.
        """
        why = ""
        for pause in self.terms.pauses:
            time.sleep(pause)
            with suppress(WorkError):
                self.executor.close(self.host)
            try:
                self.enter()
            except (WorkError, LockedError) as error:
                why = str(error)
            else:
                return
        raise LostError(f"the node could not be reached again: {why}")

    def steadily(self, call: Callable[[], Answer]) -> Answer:
        """`call`, which may be repeated, until the session holds for it.

        Raises LostError, and BlindError where the node can be reached and never answers this.
        """
        why = ""
        for _ in range(3):
            try:
                return call()
            except WorkError as error:
                why = str(error)
                self.reenter()
        raise BlindError(f"again and again: {why}")

    def probe(self, name: str) -> Evidence:
        """Fresh evidence, kept under `name`. Raises WorkError, and BlindError where it is none."""
        document = self.executor.probe(self.host)
        self._keep(name, document)
        try:
            return decode(document)
        except EvidenceError as error:
            raise BlindError(str(error)) from error

    def look(self, resources: Sequence[Resource]) -> tuple[State, ...]:
        """What these touches are now, in their order. Raises WorkError and BlindError."""
        seen = {each.resource: each for each in self.executor.look(self.host, resources)}
        missing = [resource.label for resource in resources if resource not in seen]
        if missing:
            raise BlindError(f"the node did not say what is there: {', '.join(missing)}")
        return tuple(seen[resource] for resource in resources)

    def restore(
        self, before: Sequence[State], actions: Sequence[AnyAction] = (), *, settle: bool = True
    ) -> list[str]:
        """Make everything as it was before, and look whether it stays so; what does not, in words.

        Twice where it must be: stopping a unit may change what was put back already. Without
        `settle` the last look comes at once, and another one is left to do.
        Raises WorkError; may be repeated.
        """
        resources = tuple(seen.resource for seen in before)
        now = self.look(resources)
        changed, told = _differing(before, now), list[str]()
        self._sweep(before, now)
        if not changed:
            return []
        for _ in range(2):
            try:
                undoing = undo(*_whole(changed, before), actions=tuple(actions))
            except UndoError as error:
                return [str(error)]
            told = []
            for action in undoing:
                acted = self.executor.act(self.host, action)
                if not acted.ok:
                    told.append(f"{words(action)}: {said(acted.code, acted.output)}")
            now = self.look(resources)
            if not (changed := _differing(before, now)):
                break
        if settle:
            time.sleep(self.terms.settle)
            now = self.look(resources)
        left = _left(before, now)
        return [*left.values(), *(told if left else ())]

    def left(self, before: Sequence[State]) -> tuple[dict[Resource, State], dict[Resource, str]]:
        """What is there now, and what of it is not as it was before, in words. Raises as `look`."""
        now = self.look(tuple(seen.resource for seen in before))
        return {seen.resource: seen for seen in now}, _left(before, now)

    def _sweep(self, before: Sequence[State], now: Sequence[State]) -> None:
        """Remove files that were not there, and are not, once more: what a crash of the node
        left beside them of a write goes with that. It is no part of what was before, or is."""
        for then, at in zip(before, now, strict=True):
            if then.resource.kind == "file" and not (then.exists or at.exists or at.why):
                self.executor.act(self.host, WriteFile(path=then.resource.name, content=None))


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
        uuid, _, field = seen.resource.name.rpartition(":")
        for pair in PAIRS.items():
            if field in pair:
                wanted |= {Resource(kind="gpu", name=f"{uuid}:{each}") for each in pair}
    return [seen for seen in before if seen.resource in wanted]


def apart(then: State, now: State) -> str:
    """How a touch is not what it was."""
    return f"is {state(now)}, and was {state(then)}"


def state(seen: State) -> str:
    """What a touch was seen as, in few words."""
    if seen.why:
        return f"unknown ({seen.why})"
    if not seen.exists:
        return "not there"
    value = seen.value
    if seen.resource.kind == "file" and isinstance(value, Mapping):
        mode = value.get("mode")
        return f"a file of mode {mode:o}" if isinstance(mode, int) else "a file"
    return show(value)


def words(action: AnyAction) -> str:
    """An action as one line."""
    if isinstance(action, WriteFile):
        return f"remove {action.path}" if action.content is None else f"write {action.path}"
    if isinstance(action, WriteKernel):
        return f"write {action.value} to {action.path}"
    if isinstance(action, SetUnit):
        parts: dict[str, Any] = {
            "mask": action.masked,
            "enable": action.enabled,
            "start": action.running,
            "restart": action.restart or None,
        }
        told = [
            _OFF[key] if value is False else key
            for key, value in parts.items()
            if value is not None
        ]
        return f"{' and '.join(told) or 'reload'} {action.name}"
    return " ".join(action.words)


_OFF = {"mask": "unmask", "enable": "disable", "start": "stop"}


def said(code: int | None, output: str) -> str:
    """How a command ended, with the end of what it said."""
    text = output.strip()[-BRIEF:]
    return f"ended with {code}{f': {text}' if text else ''}"
