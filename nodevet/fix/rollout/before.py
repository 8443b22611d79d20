"""What must hold right before a step is written, by what its resources are then."""

from collections.abc import Iterable

from nodevet.fix.model import Step
from nodevet.fix.rollout.clearance import RefusedError
from nodevet.fix.rollout.session import BlindError, NodeSession
from nodevet.fix.rollout.verify import Looks
from nodevet.fixing.result import Refusal
from nodevet.fleet.executor import WorkError
from nodevet.resource import Resource, RestoreError, State, apart, same, unnamed


def unmanaged(session: NodeSession, steps: Iterable[Step]) -> None:
    """Raises RefusedError if something else on the node manages what these steps change."""
    steps = tuple(steps)
    resources = tuple(dict.fromkeys(resource for step in steps for resource in step.resources))
    try:
        managers = session.executor.managers(session.host, resources)
    except WorkError as error:
        raise RefusedError(Refusal.UNREACHABLE, str(error)) from error
    others = [
        f"conflict: {label} is also managed by {', '.join(who)}"
        for label, who in sorted(managers.items())
        if who
    ]
    if others:
        fixes = dict.fromkeys(
            step.fix for step in steps if any(managers.get(one.label) for one in step.resources)
        )
        advice = f"disable it there, or drop {', '.join(fixes)} from `fix`"
        raise RefusedError(Refusal.MANAGER, f"{'; '.join(others)}; {advice}")


def look(session: NodeSession, step: Step, more: Iterable[Resource] = ()) -> Looks:
    """What a step changes, and `more`, as it is now. Raises RefusedError."""
    try:
        return session.at(dict.fromkeys([*step.resources, *more]), restorable=True)
    except WorkError as error:
        raise RefusedError(Refusal.UNREACHABLE, f"{step.id}: {error}") from error
    except BlindError as error:
        why = f"{step.id}: cannot be rolled back: {error}"
        raise RefusedError(Refusal.PRECONDITION, why) from error


def as_planned(session: NodeSession, step: Step, seen: Looks) -> tuple[State, ...]:
    """What a step changes, of what was seen.

    Raises RefusedError if that is not what it was when planned, or cannot be rolled back.
    """
    if stray := ", ".join(each.label for each in unnamed(step.actions, step.resources)):
        raise RefusedError(
            Refusal.PRECONDITION, f"{step.id}: it would change what it does not name: {stray}"
        )
    before = tuple(seen[resource] for resource in step.resources)
    try:
        session.restoring(before, step.actions)
    except RestoreError as error:
        why = f"{step.id}: cannot be rolled back: {error}"
        raise RefusedError(Refusal.PRECONDITION, why) from error
    planned = {then.resource: then for then in step.before}
    for now in before:
        then = planned.get(now.resource)
        if then is not None and not same(then, now):
            told = f"{now.resource.label} {apart(then, now)} when planned"
            raise RefusedError(Refusal.STALE, f"{step.id}: {told}")
    return before
