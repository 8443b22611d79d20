"""What a fix can change: one module of this package is one kind of resource, with all of it.

A kind exists because its file does: nothing lists them. What is asked here is asked of the kind of
the resource in question, and what reads, applies, rolls back and reports asks here.
"""

import importlib
import pkgutil
import posixpath
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import reduce
from itertools import groupby
from operator import or_
from typing import TYPE_CHECKING, TypeAlias

from nodevet.base.printable import plain
from nodevet.evidence.document import Evidence
from nodevet.resource import unit
from nodevet.resource.core import (
    Action,
    ActionError,
    Kind,
    Resource,
    RestoreError,
    RunCommand,
    State,
    Traces,
)

if TYPE_CHECKING:
    from pyinfra.api.command import StringCommand

__all__ = [
    "Action", "ActionError", "Actions", "AnyAction", "Contents", "Kind", "Resource",
    "RestoreError", "RunCommand", "State", "Traces",
]  # fmt: skip

_WORDS = re.compile(r"[\s=,;'\"<>|&()]+")
SECONDS = 45  # for a unit to start or stop


def _kinds() -> Iterator[tuple[str, Kind]]:
    for module in sorted(each.name for each in pkgutil.iter_modules(__path__)):
        if module != "core":
            yield module, importlib.import_module(f"{__name__}.{module}").KIND


KINDS: Mapping[str, Kind] = dict(_kinds())
"""By the name of the module."""

if TYPE_CHECKING:
    AnyAction: TypeAlias = Action
else:
    AnyAction = reduce(or_, (each for kind in KINDS.values() for each in kind.actions), RunCommand)

Actions: TypeAlias = tuple[AnyAction, ...]


class UnknownKind(Kind):
    """Of a plan or journal that another nodevet wrote: nothing of this kind can be restored."""

    form = None

    def name_problem(self, name: str) -> str:
        return f"is not of a known kind ({', '.join(KINDS)})"


UNKNOWN = UnknownKind()


def kind_of(resource: Resource) -> Kind:
    return KINDS.get(resource.kind, UNKNOWN)


# --- states -----------------------------------------------------------------------------


def same(one: State, other: State) -> bool:
    """Whether a resource now is what it was; not if it could not be read."""
    return not (one.why or other.why) and kind_of(one.resource).same(one, other)


def ended(then: State, now: State) -> bool:
    """Whether it does not exist any more, and need not be restored."""
    return not (then.why or now.why) and kind_of(then.resource).ended(then, now)


def moved(then: Sequence[State], now: Sequence[State]) -> list[tuple[State, State]]:
    """Settings that are no longer what they were, then and now, of those that were read twice."""
    present = {seen.resource: seen for seen in now if not seen.why}
    return [
        (seen, present[seen.resource])
        for seen in then
        if kind_of(seen.resource).is_setting
        and seen.resource in present
        and not same(seen, present[seen.resource])
    ]


def describe(state: State) -> str:
    """What a resource was, in few words."""
    if state.why:
        return f"unknown ({state.why})"
    return kind_of(state.resource).describe(state) if state.exists else "absent"


def apart(then: State, now: State) -> str:
    """How it is not what it was."""
    return f"is {describe(now)}, and was {describe(then)}"


# --- contents ---------------------------------------------------------------------------

Contents: TypeAlias = Callable[[str], bytes | None]
"""The content of a SHA-256; None if it is not here."""


def kept(states: Iterable[State]) -> tuple[tuple[State, ...], dict[str, bytes]]:
    """States that were read as they are written down, and the contents that they then name."""
    pairs = [kind_of(each.resource).kept(each) for each in states]
    contents = {name: data for _, some in pairs for name, data in some.items()}
    return tuple(each for each, _ in pairs), contents


def named(states: Iterable[State]) -> dict[str, int]:
    """The contents that states which were written down name: SHA-256 -> bytes."""
    return {
        name: size for each in states for name, size in kind_of(each.resource).named(each).items()
    }


def filled(states: Iterable[State], contents: Contents) -> tuple[State, ...]:
    """States that were written down as they were read; what `contents` does not have stays named
    by its hash. Raises what `contents` raises."""
    known = list(states)
    found = {name: contents(name) for name in named(known)}
    here = {name: data for name, data in found.items() if data is not None}
    return tuple(kind_of(each.resource).filled(each, here) for each in known)


# --- actions ----------------------------------------------------------------------------


def perform(actions: Sequence[Action], *, seconds: float = SECONDS) -> "Iterator[StringCommand]":
    """One command of pyinfra for each action. `seconds`: how long a unit may take to start or stop.

    Raises ActionError for an action that is never run.
    """
    for action in actions:
        yield action.command(seconds=seconds)


def holds(action: Action, states: Sequence[State]) -> bool | None:
    """Whether an action took place, by the states of what it changes. None: they do not tell."""
    if isinstance(action, RunCommand):
        told = (kind.command_holds(action.words, states) for kind in KINDS.values())
        return next((each for each in told if each is not None), None)
    found = next((each for each in states if each.resource == action.resource), None)
    if found is None or found.why:
        return None
    return kind_of(found.resource).holds(action, found)


def unnamed(actions: Sequence[Action], resources: Collection[Resource]) -> list[Resource]:
    """What actions change that is not among these; what a command changes is not known."""
    changed = {action.resource for action in actions if action.resource}
    return sorted(changed.difference(resources))


def untouched(actions: Sequence[Action], resources: Iterable[Resource]) -> list[Resource]:
    """Those that no action names: not as what it changes, nor in a word of a command or in the text
    of a file."""
    own = {action.resource for action in actions if action.resource}
    words = {word for action in actions for text in _texts(action) for word in _WORDS.split(text)}
    words |= {each.name for each in own}
    words |= {posixpath.dirname(word) for word in words}
    globs = [word for word in words if "*" in word or "[" in word]

    def named(each: Resource) -> bool:
        return any(
            name in words or any(fnmatchcase(name, glob) for glob in globs)
            for name in kind_of(each).names(each)
        )

    return [each for each in resources if each not in own and not named(each)]


def _texts(action: Action) -> Iterator[str]:
    if isinstance(action, RunCommand):
        yield from action.words
    elif isinstance(content := getattr(action, "content", None), str):
        yield content


def may_change(actions: Sequence[Action], named: Collection[Resource], other: Resource) -> bool:
    """Whether a step may have changed a resource: one that it names, one that the kernel or a
    driver changes with those, or any, if it runs a program whose doings it does not name."""
    if other in named or any(kind_of(each).couples(each, other) for each in named):
        return True
    written = {action.resource.name for action in actions if action.resource}
    return any(_is_open(action, written) for action in actions)


def _is_open(action: Action, written: Collection[str]) -> bool:
    """Whether an action may change what its step does not name. `written`: the step's resources;
    a unit that it writes itself is of the step."""
    if isinstance(action, RunCommand):
        return not any(kind.names_all(action.words) for kind in KINDS.values())
    if not isinstance(action, unit.SetUnit) or not action.runs:
        return False
    ours = any(action.name in kind.services for kind in KINDS.values())
    return not ours and f"{unit.FOLDER}{action.name}" not in written


def restarts(actions: Sequence[Action]) -> bool:
    return any(action.restarts for action in actions)


def diff(actions: Sequence[Action], before: Sequence[State]) -> Iterator[str]:
    """Actions as lines with - and +, commands as `$ ...`; printable."""
    known = {seen.resource: seen for seen in before}
    for _, alike in groupby(actions, type):
        some = list(alike)
        if some[0].resource:
            yield from kind_of(some[0].resource).diff(some, known)
        else:
            yield from (_command(each) for each in some if isinstance(each, RunCommand))


def _command(action: RunCommand) -> str:
    """As a shell takes it, which is why what stands after the # is no word of it."""
    limit = f"  # for up to {action.seconds} s" if action.seconds is not None else ""
    return f"$ {plain(shlex.join(action.words))}{limit}"


def after_reset(evidence: Evidence) -> Evidence:
    """The evidence as it would be after a reset of what waits for one."""
    return reduce(lambda then, kind: kind.after_reset(then), KINDS.values(), evidence)


# --- restoring --------------------------------------------------------------------------


def restore(*before: State, actions: Sequence[Action] = ()) -> Actions:
    """What restores these resources of one node, in the order in which it is done: from the last
    to the first, but packages before all, files before what reads them, and new units before
    their files.

    `actions` are those of the step: a unit that they restart is restarted again, for its files
    are the old ones; what they did while units were stopped is restored while these are, too.
    Clocks have two resources that one command sets: give both at once; packages, too.
    Raises RestoreError; a plan asks before it names a resource, and so nothing is changed that
    cannot be restored.
    """
    names = unit.stopped_around(actions)
    if not names:
        return _restore(before, actions)
    around = set(unit.resources(names))
    own = [each for each in before if each.resource in around]
    others = [each for each in before if each.resource not in around]
    back = _restore(own, ())
    if not others:
        return back
    known = {each.resource.name for each in own}
    return (
        *unit.stop(names),
        *_restore(others, actions[len(names) : -len(names)]),
        *back,
        *unit.start([name for name in names if name not in known]),
    )


def _restore(before: Sequence[State], actions: Sequence[Action]) -> Actions:
    by_resource = {each.resource: each for each in before}
    for each in by_resource.values():
        if each.why:
            raise RestoreError(f"{each.resource.label}: what it was is not known: {each.why}")
    done: list[Action] = []
    backwards = list(reversed(by_resource.values()))
    for each in sorted(backwards, key=_rank):
        among = [one for one in by_resource.values() if one.resource.kind == each.resource.kind]
        done += kind_of(each.resource).restore(each, among, actions)
    for kind in KINDS.values():
        done += kind.after_restore(done, actions)
    return tuple(dict.fromkeys(done))


def _rank(before: State) -> int:
    return kind_of(before.resource).restore_rank(before)
