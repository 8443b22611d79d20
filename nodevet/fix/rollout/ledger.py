"""What is to be done on one node, and how far each of its steps is."""

from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpus
from nodevet.fix.model import PlannedNode, Step
from nodevet.fix.rollout.step_results import of_packages
from nodevet.fixing.result import Outcome, StepResult

BAD = frozenset({Outcome.FAILED, Outcome.ROLLBACK_FAILED, Outcome.UNKNOWN})
WRITTEN = frozenset({Outcome.CHANGED, Outcome.PENDING})
KEPT = WRITTEN | {Outcome.VERIFIED_AFTER_REBOOT}


class NodeTask(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done on one node."""

    host: str
    planned: PlannedNode
    steps: tuple[Step, ...]
    closed: Callable[[bool], str] = lambda reboot: ""
    """Why no further step may be begun now, or with True why it may not be rebooted."""
    canary: bool = False
    reboot: bool = False


class Ledger:
    """The results of a node's steps, by id, as those who work on it enter them."""

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
        """Whether a step ended so that no further one is begun."""
        return any(result.outcome in BAD for result in self.results.values())

    def tell(self, steps: Iterable[Step], why: str, outcome: Outcome | None = None) -> None:
        for step in steps:
            result = self.results[step.id]
            told = "; ".join(filter(None, (result.why, why)))
            self.results[step.id] = replace(result, outcome=outcome or result.outcome, why=told)

    def dark(self, evidence: Evidence) -> bool:
        """Whether NVML says nothing before the reboot that a new driver waits for: its library
        does not talk to the old module. What was verified earlier can be judged after it alone."""
        return evidence[Gpus].data is None and any(
            step.effective == "reboot"
            and of_packages(step)
            and self.outcome(step) in (*WRITTEN, Outcome.UNKNOWN)
            for step in self.task.steps
        )

    def driverless(self, evidence: Evidence) -> bool:
        """Whether NVML says nothing because a driver that did not come up was reverted."""
        return evidence[Gpus].data is None and any(
            of_packages(step) and self.outcome(step) is Outcome.FAILED for step in self.task.steps
        )
