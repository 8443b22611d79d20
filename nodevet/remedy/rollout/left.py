"""What of a step is still as the step left it, and so may be put back. Pure.

Whatever comes back to a step later, a rollback or a resumed run, goes by this: what is neither
what it was before the step nor what the step left was changed since by somebody else. It is left
alone, and told.
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

import msgspec

from nodevet.remedy.journal.journal import StepState
from nodevet.remedy.model import Step
from nodevet.remedy.plan.holders import resources
from nodevet.remedy.rollout.compare import ended, same
from nodevet.remedy.rollout.session import state
from nodevet.remedy.rollout.state import shows, touch_of
from nodevet.remedy.rollout.undo import stopped_around
from nodevet.resource import Actions, Resource, State
from nodevet.resource.unit import SetUnit


class Revertible(msgspec.Struct, frozen=True, kw_only=True):
    """A step's touches. `ours`: as they were before, of all that may be put back; `actions`: the
    step's, but for the stop and start of a service that is not."""

    ours: tuple[State, ...]
    actions: Actions
    foreign: tuple[str, ...]  # what somebody changed since, in words
    unknown: tuple[str, ...]  # what cannot be looked at, in words

    @property
    def told(self) -> tuple[str, ...]:
        return (*self.foreign, *self.unknown)


def parted(step: Step, then: StepState, now: Sequence[State]) -> Revertible:
    """The touches that a step had, by what is there now and what the journal says of then.

    A unit whose file somebody changed since is theirs, too.
    """
    before, left = then.seen or (), {seen.resource: seen for seen in then.after or ()}
    present = {seen.resource: seen for seen in now}
    mine, foreign, unknown = list[State](), list[str](), list[str]()
    theirs = set[Resource]()
    for was in sorted(before, key=lambda seen: seen.resource.kind == "unit"):
        at = present[was.resource]
        if at.why:
            unknown.append(f"{at.resource.label} is unknown ({at.why}), and is left")
        elif _in_foreign_file(was.resource, theirs) or not (
            same(was, at) or ended(was, at) or ours(step, then, left.get(at.resource), at)
        ):
            theirs.add(at.resource)
            foreign.append(_changed(step, was, at))
        else:
            mine.append(was)
    spared = {resource.name for resource in theirs if resource.kind == "unit"}
    spared &= set(stopped_around(step.actions))
    order = {seen.resource: place for place, seen in enumerate(before)}
    return Revertible(
        ours=tuple(sorted(mine, key=lambda seen: order[seen.resource])),
        actions=tuple(
            action
            for action in step.actions
            if not (isinstance(action, SetUnit) and action.name in spared)
        ),
        foreign=tuple(foreign),
        unknown=tuple(unknown),
    )


def _in_foreign_file(resource: Resource, theirs: set[Resource]) -> bool:
    paths = [PurePosixPath(each.name) for each in theirs if each.kind == "file"]
    return resource.kind == "unit" and any(
        path.name == resource.name or path.parent.name == f"{resource.name}.d" for path in paths
    )


def _changed(step: Step, was: State, now: State) -> str:
    if now.resource.kind == "unit":
        return (
            f"{now.resource.label} is {state(now)}: it, or its file, was changed since, and is left"
        )
    return (
        f"{now.resource.label} is {state(now)}, neither what it was ({state(was)}) nor what "
        f"{step.id} set: it was changed since, and is left"
    )


def ours(step: Step, then: StepState, left: State | None, now: State) -> bool:
    """Whether what a touch is now comes from the step.

    Where nobody looked after the last action, an action that says it tells; of a touch that
    only a command changes, nothing does, and then it is taken for the step's own. A unit may
    be anywhere between what it was and what it was to be: the step was left in the middle, or
    the node was rebooted since.
    """
    if now.why:
        return False
    if left is not None and same(left, now):
        return True
    if now.resource.kind == "module" and step.effective == "reboot":
        return True  # loaded or gone, by whether the node was rebooted since
    if left is not None and now.resource in resources(stopped_around(step.actions)):
        return False  # it runs again since: who stopped it was somebody else
    if now.resource.kind == "unit":
        was = next((seen for seen in then.seen or () if seen.resource == now.resource), None)
        return was is not None and _between(step, was, left, now)
    actions = [action for action in step.actions if touch_of(action) == now.resource]
    if left is not None:
        return False
    return not actions or any(shows(action, [now]) is not False for action in actions)


def _between(step: Step, was: State, left: State | None, now: State) -> bool:
    """Whether each part of a unit's state is what it was, or what the step makes it."""
    wanted: dict[str, set[object]] = {"enabled": set(), "active": set(), "masked": set()}
    for seen in (was, left):
        value = seen.value if seen is not None and isinstance(seen.value, Mapping) else ABSENT
        for part, values in wanted.items():
            values.add(value.get(part))
    for action in step.actions:
        if isinstance(action, SetUnit) and action.name == now.resource.name:
            wanted["enabled"] |= {"enabled"} if action.enabled else set()
            starts = action.running or action.restart or action.enabled
            wanted["active"] |= {"active"} if starts else set()
            wanted["masked"] |= {True} if action.masked else set()
            wanted["enabled"] |= {"disabled"} if action.enabled is False else set()
            wanted["active"] |= {"inactive", "failed"} if action.running is False else set()
    value = now.value if isinstance(now.value, Mapping) else ABSENT
    return all(value.get(part) in values for part, values in wanted.items())


ABSENT: Mapping[str, object] = {"enabled": "disabled", "active": "inactive", "masked": False}
"""A unit that is not there: what it is once its file is, and nothing else was done."""
