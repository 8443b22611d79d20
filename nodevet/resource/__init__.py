"""What a fix can change: each module of this package, except `core`, is one kind of resource.

No list names the kinds: `KIND` of each module is one. The functions here pass a question on to the
kind of the resource. Code that reads, applies, rolls back and reports calls them.
"""

import importlib
import pkgutil
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import reduce
from itertools import groupby
from operator import or_
from typing import TYPE_CHECKING, TypeAlias

from nodevet.base.printable import marked
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
    "ONE_WAY", "Action", "ActionError", "Actions", "AnyAction", "Contents", "Kind", "Resource",
    "RestoreError", "RunCommand", "State", "Traces",
]  # fmt: skip

_WORDS = re.compile(r"[\s=,;'\"<>|&()]+")
SECONDS = 45  # for a unit to start or stop
ONE_WAY = "cannot be undone"


def _kinds() -> Iterator[tuple[str, Kind]]:
    for name in sorted(module.name for module in pkgutil.iter_modules(__path__)):
        if name != "core":
            yield name, importlib.import_module(f"{__name__}.{name}").KIND


KINDS: Mapping[str, Kind] = dict(_kinds())
"""By the name of the module."""

if TYPE_CHECKING:
    AnyAction: TypeAlias = Action
else:
    AnyAction = reduce(
        or_, (action for kind in KINDS.values() for action in kind.actions), RunCommand
    )

Actions: TypeAlias = tuple[AnyAction, ...]


class UnknownKind(Kind):
    """A kind in a plan or journal of another nodevet version; it cannot be restored."""

    form = None

    def name_problem(self, name: str) -> str:
        return f"is not of a known kind ({', '.join(KINDS)})"


UNKNOWN = UnknownKind()


def kind_of(resource: Resource) -> Kind:
    return KINDS.get(resource.kind, UNKNOWN)


# --- states -----------------------------------------------------------------------------


def is_same(before: State, current: State) -> bool:
    """Whether a resource is as before; False if either state could not be read."""
    return not (before.why or current.why) and kind_of(before.resource).is_same(before, current)


def has_ended(before: State, current: State) -> bool:
    """Whether a resource no longer exists, so that nothing has to restore it."""
    return not (before.why or current.why) and kind_of(before.resource).has_ended(before, current)


def changed_settings(
    before: Sequence[State], current: Sequence[State]
) -> list[tuple[State, State]]:
    """(before, current) of each setting that was read twice and has changed."""
    present = {state.resource: state for state in current if not state.why}
    return [
        (state, present[state.resource])
        for state in before
        if kind_of(state.resource).is_setting
        and state.resource in present
        and not is_same(state, present[state.resource])
    ]


def describe(state: State) -> str:
    """A state in a few words: `absent`, `500 W`, `unknown (...)`."""
    if state.why:
        return f"unknown ({state.why})"
    return kind_of(state.resource).describe(state) if state.exists else "absent"


def describe_change(before: State, current: State) -> str:
    """`is 500 W, and was 700 W`."""
    return f"is {describe(current)}, and was {describe(before)}"


# --- contents ---------------------------------------------------------------------------

Contents: TypeAlias = Callable[[str], bytes | None]
"""The content of a SHA-256; None if it is not here."""


def to_stored(states: Iterable[State]) -> tuple[tuple[State, ...], dict[str, bytes]]:
    """States in the form in which plans and journals store them, and the contents of files that
    they name, by SHA-256."""
    pairs = [kind_of(state.resource).to_stored(state) for state in states]
    contents = {name: data for _, files in pairs for name, data in files.items()}
    return tuple(state for state, _ in pairs), contents


def content_sizes(states: Iterable[State]) -> dict[str, int]:
    """The contents that stored states name: SHA-256 -> size in bytes."""
    sizes = (kind_of(state.resource).content_sizes(state) for state in states)
    return {name: size for files in sizes for name, size in files.items()}


def with_contents(states: Iterable[State], contents: Contents) -> tuple[State, ...]:
    """Stored states with the contents of their files; a content that `contents` does not have
    stays a SHA-256. Raises what `contents` raises."""
    stored = list(states)
    names = content_sizes(stored)
    available = {name: data for name in names if (data := contents(name)) is not None}
    return tuple(kind_of(state.resource).with_contents(state, available) for state in stored)


# --- actions ----------------------------------------------------------------------------


def perform(actions: Sequence[Action], *, seconds: float = SECONDS) -> "Iterator[StringCommand]":
    """One command of pyinfra for each action. `seconds`: how long a unit may take to start or stop.

    Raises ActionError for an action that nodevet never runs.
    """
    for action in actions:
        yield action.command(seconds=seconds)


def holds(action: Action, states: Sequence[State]) -> bool | None:
    """Whether an action took effect, by the states of its resources. None: they do not show it."""
    if isinstance(action, RunCommand):
        answers = (kind.command_holds(action.words, states) for kind in KINDS.values())
        return next((answer for answer in answers if answer is not None), None)
    state = next((state for state in states if state.resource == action.resource), None)
    if state is None or state.why:
        return None
    return kind_of(state.resource).holds(action, state)


def undeclared_resources(
    actions: Sequence[Action], resources: Collection[Resource]
) -> list[Resource]:
    """Resources that actions change and that are not in `resources`. Commands are not known."""
    own = {action.resource for action in actions if action.resource}
    return sorted(own.difference(resources))


def unused_resources(actions: Sequence[Action], resources: Iterable[Resource]) -> list[Resource]:
    """The resources that no action changes, and that no command or text of a file mentions."""
    own = {action.resource for action in actions if action.resource}
    words = {word for action in actions for text in _texts(action) for word in _WORDS.split(text)}
    words |= {resource.name for resource in own}
    words |= {posixpath.dirname(word) for word in words}
    globs = [word for word in words if "*" in word or "[" in word]

    def is_mentioned(resource: Resource) -> bool:
        return any(
            name in words or any(fnmatchcase(name, glob) for glob in globs)
            for name in kind_of(resource).names(resource)
        )

    return [each for each in resources if each not in own and not is_mentioned(each)]


def _texts(action: Action) -> Iterator[str]:
    if isinstance(action, RunCommand):
        yield from action.words
    elif isinstance(content := getattr(action, "content", None), str):
        yield content


def may_change(actions: Sequence[Action], resources: Collection[Resource], other: Resource) -> bool:
    """Whether a step may have changed a resource: one of its own, one that the kernel or a driver
    changes with those, or any, if it runs a program with effects that it does not name."""
    if other in resources or any(
        kind_of(resource).couples(resource, other) for resource in resources
    ):
        return True
    names = {action.resource.name for action in actions if action.resource}
    return any(_is_open(action, names, other) for action in actions)


def _is_open(action: Action, names: Collection[str], other: Resource) -> bool:
    """Whether an action may change a resource that its step does not name. `names`: of what the
    step writes; a unit that it writes itself is its own."""
    if isinstance(action, RunCommand):
        return not any(kind.names_all(action.words) for kind in KINDS.values())
    if not isinstance(action, unit.SetUnit) or not action.runs:
        return False
    kinds = [name for name, kind in KINDS.items() if action.name in kind.services]
    if kinds:
        return other.kind in kinds
    return f"{unit.FOLDER}{action.name}" not in names


def one_way(actions: Sequence[Action]) -> tuple[Action, ...]:
    """The actions that nothing can undo."""
    return tuple(action for action in actions if action.is_one_way)


def irreversible_effects(
    actions: Sequence[Action], before: Sequence[State], current: Sequence[State]
) -> dict[Resource, str]:
    """What these actions did that nothing can undo, in words."""
    now = {state.resource: state for state in current}
    labels = {action.resource: action.label for action in one_way(actions) if action.resource}
    return {
        earlier.resource: f"{labels[earlier.resource]}: {ONE_WAY}"
        for earlier in before
        if earlier.resource in labels
        and earlier.exists
        and earlier.resource in now
        and has_ended(earlier, now[earlier.resource])
    }


def missing(
    actions: Sequence[Action], before: Sequence[State], current: Sequence[State]
) -> dict[Resource, str]:
    """The part of `lost` after which something is missing on the node."""
    gone = irreversible_effects(actions, before, current)
    return {each: why for each, why in gone.items() if not kind_of(each).leaves_nothing}


def next_resort(actions: Sequence[Action]) -> str:
    """`next: reboot the node`: what a person does if these actions did not help; empty if nothing
    is known."""
    resorts = dict.fromkeys(action.next_resort for action in actions if action.next_resort)
    return f"next: {'; '.join(resorts)}" if resorts else ""


def restarts(actions: Sequence[Action]) -> bool:
    return any(action.restarts for action in actions)


def diff(actions: Sequence[Action], before: Sequence[State]) -> Iterator[str]:
    """Actions as printable lines with - and +, commands as `$ ...`."""
    before_by_resource = {state.resource: state for state in before}
    for _, group in groupby(actions, type):
        same_type = list(group)
        if same_type[0].resource:
            yield from kind_of(same_type[0].resource).diff(same_type, before_by_resource)
        else:
            yield from (_command(action) for action in same_type if isinstance(action, RunCommand))


def _command(action: RunCommand) -> str:
    """A command as a shell reads it, with its time limit as a comment."""
    limit = f"  # for up to {action.seconds} s" if action.seconds is not None else ""
    return f"$ {marked(action.command_text)}{limit}"


def after_reset(evidence: Evidence) -> Evidence:
    """The evidence as it would be after a reset, with every pending setting in force."""
    return reduce(lambda result, kind: kind.after_reset(result), KINDS.values(), evidence)


# --- restoring --------------------------------------------------------------------------


def restore(*before: State, actions: Sequence[Action] = ()) -> Actions:
    """The actions that restore these resources of one node, from the last changed to the first, but
    packages before all, files before what reads them, and new units before their files.

    `actions` are the step's: a unit that they restart is restarted again, since its files are the
    old ones; a change that they made while units were stopped is restored while these are stopped.
    Clocks have two resources that one command sets: pass both at once; packages, too.
    Raises RestoreError. The planner calls this first, so nodevet changes nothing that it cannot
    restore.
    """
    names = unit.stopped_around(actions)
    if not names:
        return _restore(before, actions)
    around = set(unit.resources(names))
    around_states = [state for state in before if state.resource in around]
    other_states = [state for state in before if state.resource not in around]
    unit_actions = _restore(around_states, ())
    if not other_states:
        return unit_actions
    known_units = {state.resource.name for state in around_states}
    return (
        *unit.stop(names),
        *_restore(other_states, actions[len(names) : -len(names)]),
        *unit_actions,
        *unit.start([name for name in names if name not in known_units]),
    )


def _restore(before: Sequence[State], actions: Sequence[Action]) -> Actions:
    by_resource = {state.resource: state for state in before}
    for state in by_resource.values():
        if state.why:
            raise RestoreError(f"{state.resource.label}: its earlier state is unknown: {state.why}")
    restore_actions: list[Action] = []
    backwards = list(reversed(by_resource.values()))
    for state in sorted(backwards, key=_rank):
        name = state.resource.kind
        siblings = [each for each in by_resource.values() if each.resource.kind == name]
        restore_actions += kind_of(state.resource).restore(state, siblings, actions)
    for kind in KINDS.values():
        restore_actions += kind.after_restore(restore_actions, actions)
    return tuple(dict.fromkeys(restore_actions))


def _rank(before: State) -> int:
    return kind_of(before.resource).restore_rank(before)
