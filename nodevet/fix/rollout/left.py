"""Which resources of a step are still as it left them, so that nodevet may restore them. Pure.

A rollback and a resumed run both decide by this. A resource that is neither as before the step nor
as the step left it was changed by something else: nodevet reports it and does not touch it.
"""

from collections.abc import Sequence

import msgspec

from nodevet.fix.journal.journal import StepState
from nodevet.fix.model import Step
from nodevet.resource import (
    Action,
    State,
    Traces,
    describe,
    has_ended,
    holds,
    irreversible_effects,
    is_same,
    kind_of,
    unit,
)


class Revertible(msgspec.Struct, frozen=True, kw_only=True):
    """The resources of a step that may be restored. `ours`: the earlier states of its resources;
    `actions`: the step's, without those on a service that may not be restored."""

    ours: tuple[State, ...]
    actions: tuple[Action, ...]
    foreign: tuple[str, ...]  # resources that something else changed, in words
    one_way: tuple[str, ...] = ()  # what the step did that nothing can undo, in words
    unknown: tuple[str, ...]  # resources that cannot be read, in words

    @property
    def not_restored(self) -> tuple[str, ...]:
        return (*self.foreign, *self.unknown)


def revertible_part(step: Step, record: StepState, states: Sequence[State]) -> Revertible:
    """The resources of a step that may be restored, by current states and the record in the
    journal.

    A unit whose file something else changed may not be restored either.
    """
    before, left_states = record.seen or (), {state.resource: state for state in record.after or ()}
    by_resource = {state.resource: state for state in states}
    pairs = [(earlier, by_resource[earlier.resource]) for earlier in before]
    foreign_resources = [
        current.resource
        for earlier, current in pairs
        if not current.why
        and not is_same(earlier, current)
        and not has_ended(earlier, current)
        and not comes_from_step(step, record, left_states.get(current.resource), current)
    ]
    restorable: list[State] = []
    foreign, unknown, foreign_names = list[str](), list[str](), set[str]()
    gone = irreversible_effects(step.actions, before, states)
    for earlier, current in pairs:
        label = current.resource.label
        if current.why:
            unknown.append(f"{label} is unknown ({current.why}); not touched")
        elif current.resource in gone:
            continue
        elif current.resource in foreign_resources:
            foreign.append(
                f"{label} is {describe(current)}, neither what it was ({describe(earlier)}) nor "
                f"what {step.id} set: it was changed since; not touched"
            )
            foreign_names.add(current.resource.name)
        elif kind_of(current.resource).depends_on(current.resource, foreign_resources):
            foreign.append(
                f"{label} is {describe(current)}: its file was changed since; not touched"
            )
            foreign_names.add(current.resource.name)
        else:
            restorable.append(earlier)
    spared = foreign_names.intersection(unit.stopped_around(step.actions))
    return Revertible(
        ours=tuple(restorable),
        actions=unit.drop_units(step.actions, spared),
        foreign=tuple(foreign),
        one_way=tuple(gone.values()),
        unknown=tuple(unknown),
    )


def comes_from_step(
    step: Step, record: StepState, state_after: State | None, current: State
) -> bool:
    """Whether the current state of a resource comes from the step.

    If it was not read after the last action, `holds` of the actions decides; a resource that only
    a command changes then counts as the step's own.
    """
    if current.why:
        return False
    if state_after is not None and is_same(state_after, current):
        return True
    resource = current.resource
    earlier = next((state for state in record.seen or () if state.resource == resource), None)
    traces = Traces(
        before=earlier, after=state_after, actions=step.all_actions, effective=step.effective
    )
    is_of_step = kind_of(resource).is_of_step(traces, current)
    if is_of_step is not None:
        return is_of_step
    if state_after is not None:
        return False
    actions = [action for action in step.all_actions if action.resource == resource]
    return not actions or any(holds(action, [current]) is not False for action in actions)
