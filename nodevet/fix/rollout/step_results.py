"""The result of a step: empty, or as the journal tells it. Pure."""

from msgspec.structs import replace

from nodevet.fix.journal.journal import StepState
from nodevet.fix.model import Step
from nodevet.fixing.result import Ran, StepResult
from nodevet.resource import kind_of


def of_packages(step: Step) -> bool:
    """Whether it changes packages: after a driver's, NVML says nothing until a reboot."""
    return any(kind_of(resource).hides_gpus for resource in step.resources)


def begin(step: Step, **rest: object) -> StepResult:
    """The result of a step, to be filled in."""
    shared = ("id", "fix", "subjects", "expected", "actual", "unit", "risk")
    return replace(
        StepResult(**{name: getattr(step, name) for name in shared}),
        **rest,
    )


def recalled(step: Step, state: StepState, **rest: object) -> StepResult:
    """The result of a step as the journal tells it."""
    ran = tuple(
        Ran(action=action, ok=True if number in state.done else None)
        for number, action in enumerate(step.actions)
        if number in state.done or number == state.doing
    )
    known = {
        "before": state.seen or (),
        "after": state.after or (),
        "ran": ran,
        "verdicts": state.verdicts,
    }
    return begin(step, **{**known, **rest})
