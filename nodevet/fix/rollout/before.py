"""What must hold right before a step is written, by the states of its resources."""

from collections.abc import Iterable

from nodevet.fix.model import Step
from nodevet.fix.rollout.clearance import RefusedError
from nodevet.fix.rollout.managers import advice
from nodevet.fix.rollout.session import BlindError, NodeSession
from nodevet.fix.rollout.verify import Looks
from nodevet.fixing.result import Refusal
from nodevet.fleet.executor import WorkError
from nodevet.resource import (
    Resource,
    RestoreError,
    State,
    describe_change,
    is_same,
    undeclared_resources,
)


def refuse_other_managers(session: NodeSession, steps: Iterable[Step]) -> None:
    """Raises RefusedError if something else on the node manages resources of these steps."""
    steps = tuple(steps)
    resources = tuple(dict.fromkeys(resource for step in steps for resource in step.resources))
    try:
        managers = session.executor.managers(session.host, resources)
    except WorkError as error:
        raise RefusedError(Refusal.UNREACHABLE, str(error)) from error
    conflicts = [
        f"conflict: {label} is also managed by {', '.join(owners)}"
        for label, owners in sorted(managers.items())
        if owners
    ]
    if conflicts:
        fixes = dict.fromkeys(
            step.fix
            for step in steps
            if any(managers.get(resource.label) for resource in step.resources)
        )
        others = [manager for each in managers.values() for manager in each]
        raise RefusedError(Refusal.MANAGER, f"{'; '.join(conflicts)}; {advice(others, fixes)}")


def read_states(session: NodeSession, step: Step, resources: Iterable[Resource] = ()) -> Looks:
    """The current states of a step's resources, and of more `resources`. Raises RefusedError."""
    try:
        return session.states_by_resource(
            dict.fromkeys([*step.resources, *resources]), restorable=True
        )
    except WorkError as error:
        raise RefusedError(Refusal.UNREACHABLE, f"{step.id}: {error}") from error
    except BlindError as error:
        why = f"{step.id}: cannot be rolled back: {error}"
        raise RefusedError(Refusal.PRECONDITION, why) from error


def require_planned_state(session: NodeSession, step: Step, states: Looks) -> tuple[State, ...]:
    """The states of a step's resources.

    Raises RefusedError if they are not as planned, or cannot be rolled back.
    """
    if stray := ", ".join(
        stray_resource.label
        for stray_resource in undeclared_resources(step.all_actions, step.resources)
    ):
        raise RefusedError(
            Refusal.PRECONDITION,
            f"{step.id}: it would change settings that it does not name: {stray}",
        )
    before = tuple(states[resource] for resource in step.resources)
    try:
        session.restoring_actions(before, step.actions)
    except RestoreError as error:
        why = f"{step.id}: cannot be rolled back: {error}"
        raise RefusedError(Refusal.PRECONDITION, why) from error
    planned = {planned_state.resource: planned_state for planned_state in step.before}
    for current in before:
        planned_state = planned.get(current.resource)
        if planned_state is not None and not is_same(planned_state, current):
            change = (
                f"{current.resource.label} {describe_change(planned_state, current)} when planned"
            )
            raise RefusedError(Refusal.STALE, f"{step.id}: {change}")
    return before
