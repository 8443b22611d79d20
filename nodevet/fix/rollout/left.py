"""What of a step is still as the step left it, and so may be restored. Pure.

Whatever comes back to a step later, a rollback or a resumed run, goes by this: what is neither
what it was before the step nor what the step left was changed since by others. It is left
alone, and told.
"""

from collections.abc import Sequence

import msgspec

from nodevet.fix.journal.journal import StepState
from nodevet.fix.model import Step
from nodevet.resource import Action, State, Traces, describe, ended, holds, kind_of, same, unit


class Revertible(msgspec.Struct, frozen=True, kw_only=True):
    """A step's resources. `ours`: as they were before, of all that may be restored; `actions`: the
    step's, but for the stop and start of a service that is not."""

    ours: tuple[State, ...]
    actions: tuple[Action, ...]
    foreign: tuple[str, ...]  # what was changed since, in words
    unknown: tuple[str, ...]  # what cannot be looked at, in words

    @property
    def told(self) -> tuple[str, ...]:
        return (*self.foreign, *self.unknown)


def parted(step: Step, then: StepState, now: Sequence[State]) -> Revertible:
    """The resources that a step changed, by their states now and what the journal says of then.

    A unit whose file was changed since is left, too.
    """
    before, left = then.seen or (), {seen.resource: seen for seen in then.after or ()}
    present = {seen.resource: seen for seen in now}
    pairs = [(was, present[was.resource]) for was in before]
    theirs = [
        at.resource
        for was, at in pairs
        if not at.why
        and not same(was, at)
        and not ended(was, at)
        and not ours(step, then, left.get(at.resource), at)
    ]
    mine, foreign, unknown, kept = list[State](), list[str](), list[str](), set[str]()
    for was, at in pairs:
        label = at.resource.label
        if at.why:
            unknown.append(f"{label} is unknown ({at.why}), and is left")
        elif at.resource in theirs:
            foreign.append(
                f"{label} is {describe(at)}, neither what it was ({describe(was)}) nor what "
                f"{step.id} set: it was changed since, and is left"
            )
            kept.add(at.resource.name)
        elif kind_of(at.resource).depends_on(at.resource, theirs):
            foreign.append(f"{label} is {describe(at)}: its file was changed since, and is left")
            kept.add(at.resource.name)
        else:
            mine.append(was)
    spared = kept.intersection(unit.stopped_around(step.actions))
    return Revertible(
        ours=tuple(mine),
        actions=unit.without(step.actions, spared),
        foreign=tuple(foreign),
        unknown=tuple(unknown),
    )


def ours(step: Step, then: StepState, left: State | None, now: State) -> bool:
    """Whether what a resource is now comes from the step.

    If it was not read after the last action, an action that holds tells; of a resource that
    only a command changes, nothing does, and then it counts as the step's own.
    """
    if now.why:
        return False
    if left is not None and same(left, now):
        return True
    was = next((seen for seen in then.seen or () if seen.resource == now.resource), None)
    traces = Traces(before=was, after=left, actions=step.actions, effective=step.effective)
    told = kind_of(now.resource).is_of_step(traces, now)
    if told is not None:
        return told
    if left is not None:
        return False
    actions = [action for action in step.actions if action.resource == now.resource]
    return not actions or any(holds(action, [now]) is not False for action in actions)
