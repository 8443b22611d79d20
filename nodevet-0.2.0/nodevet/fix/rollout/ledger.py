"""The task for one node, and the results of its steps so far."""

from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpus
from nodevet.fix.journal.records import StepState
from nodevet.fix.model import PlannedNode, Step
from nodevet.fixing.result import Outcome, Ran, StepResult
from nodevet.resource import kind_of

BAD = frozenset({Outcome.FAILED, Outcome.ROLLBACK_FAILED, Outcome.UNKNOWN})
WRITTEN = frozenset({Outcome.CHANGED, Outcome.PENDING})
KEPT = WRITTEN | {Outcome.VERIFIED_AFTER_REBOOT}


UNPROVEN = "not verified, because the node was not rebooted"
"""Of a step with `keep`, which is reverted then."""


class NodeTask(msgspec.Struct, frozen=True, kw_only=True):
    """The steps for one node, and its conditions."""

    host: str
    planned: PlannedNode
    steps: tuple[Step, ...]
    closed: Callable[[bool], str] = lambda reboot: ""
    """Why no further step may start now, or with True why the node may not be rebooted."""
    withdrawn: Callable[[], str] = lambda: ""
    """Why the plan's approvals do not suffice any more, whatever its age; else empty."""
    canary: bool = False
    reboot: bool = False


class Ledger:
    """The results of a node's steps, by id."""

    def __init__(self, task: NodeTask) -> None:
        self.task = task
        self.results: dict[str, StepResult] = {}
        self.rebooted = False

    def open(self) -> list[Step]:
        return [step for step in self.task.steps if step.id not in self.results]

    def written(self) -> list[Step]:
        return [step for step in self.task.steps if self.outcome(step) in WRITTEN]

    def outcome(self, step: Step) -> Outcome | None:
        return self.results[step.id].outcome if step.id in self.results else None

    def stopped(self) -> bool:
        """Whether a step ended so badly that no further step may start."""
        return any(result.outcome in BAD for result in self.results.values())

    def tell(self, steps: Iterable[Step], why: str, outcome: Outcome | None = None) -> None:
        for step in steps:
            result = self.results[step.id]
            reasons = "; ".join(filter(None, (result.why, why)))
            self.results[step.id] = replace(result, outcome=outcome or result.outcome, why=reasons)

    def dark(self, evidence: Evidence) -> bool:
        """Whether NVML fails until the reboot that a new driver waits for, since its library does
        not talk to the old module. Earlier steps can be judged only after that."""
        return evidence[Gpus].data is None and any(
            step.effective == "reboot"
            and of_packages(step)
            and self.outcome(step) in (*WRITTEN, Outcome.UNKNOWN)
            for step in self.task.steps
        )

    def driverless(self, evidence: Evidence) -> bool:
        """Whether NVML fails because a driver that did not come up was reverted."""
        return evidence[Gpus].data is None and any(
            of_packages(step) and self.outcome(step) is Outcome.FAILED for step in self.task.steps
        )


def of_packages(step: Step) -> bool:
    """Whether a step changes packages: after a driver's, NVML fails until a reboot."""
    return any(kind_of(resource).hides_gpus for resource in step.resources)


def leaves_nothing(step: Step) -> bool:
    """Whether a step leaves nothing that could be restored, as a reboot does."""
    return all(kind_of(resource).leaves_nothing for resource in step.resources)


def keeping(step: Step, state: StepState) -> bool:
    """Whether what keeps a step was begun, so its check had passed after a reboot."""
    begun = {*state.done, state.doing}
    return any(number in begun for number in range(len(step.actions), len(step.all_actions)))


def new_result(step: Step, **fields: object) -> StepResult:
    """The result of a step that was not attempted, with these fields."""
    shared = ("id", "fix", "subjects", "expected", "actual", "unit", "risk")
    return replace(
        StepResult(**{name: getattr(step, name) for name in shared}),
        **fields,
    )


def result_of_journal(step: Step, state: StepState, **fields: object) -> StepResult:
    """The result of a step from its record in the journal, with these fields."""
    ran = tuple(
        Ran(action=action, ok=True if number in state.done else None)
        for number, action in enumerate(step.all_actions)
        if number in state.done or number == state.doing
    )
    from_journal = {
        "before": state.seen or (),
        "after": state.after or (),
        "ran": ran,
        "verdicts": state.verdicts,
    }
    return new_result(step, **{**from_journal, **fields})
