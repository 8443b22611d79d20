"""What to do next, by the causes and by what else is known (pure)."""

from collections.abc import Collection, Iterable, Mapping

from nodevet.diagnose.clock_step import clock_step
from nodevet.diagnose.connections import network_step
from nodevet.diagnose.doubts import STEADY, listens_beside
from nodevet.diagnose.files import storage_step
from nodevet.diagnose.lookalikes import lookalikes
from nodevet.diagnose.model import Cause, Figure, Ruling
from nodevet.diagnose.rules import ASK_OWNERS, LET_RUN, MAY_BE_STUCK, NEXT, RULES, SLOWED
from nodevet.diagnose.words import number


def next_step(
    causes: tuple[Cause, ...],
    rulings: Collection[Ruling],
    figures_by_name: Mapping[str, Figure],
    first_step: str,
) -> str:
    """What to do for each of these causes, the strongest first."""
    if not causes:
        return NEXT[Cause.UNCLEAR]
    steps = {cause: step_of(cause, rulings, figures_by_name) for cause in causes}
    first = "" if steps.keys() <= set(STEADY) else first_step
    if len(causes) == 1:
        return first + steps[causes[0]]
    listed = [f"({n}) {cause.value}: {steps[cause]}" for n, cause in enumerate(causes, 1)]
    return first + "; ".join([NEXT[Cause.MIXED], *listed])


def step_of(cause: Cause, rulings: Iterable[Ruling], figures_by_name: Mapping[str, Figure]) -> str:
    """The advice of the rule that holds most clearly, or else of its cause."""
    if cause is Cause.STORAGE and (step := storage_step(figures_by_name)):
        return step
    if cause is Cause.NETWORK and (step := network_step(figures_by_name)):
        return step
    if cause is Cause.REQUESTS and listens_beside(figures_by_name):
        return MAY_BE_STUCK
    if cause is Cause.STUCK and figures_by_name["frozen"].note.endswith(HALTED):
        return LET_RUN
    if cause is Cause.STUCK and lookalikes((cause,), figures_by_name):
        return MAY_BE_STUCK
    if cause is Cause.THROTTLED and (step := clock_step(figures_by_name)):
        return step
    step, allowed = _step(cause, rulings, figures_by_name), figures_by_name["cpus_allowed"]
    if cause in (Cause.STARVED, Cause.PREPROCESSING) and is_bound_to_few(allowed):
        return f"{WIDEN.format(number(allowed.value or 0.0))}; {step}"
    return step


def is_bound_to_few(allowed: Figure) -> bool:
    """Whether a job may use so few CPUs that it was hardly meant: loaders need several."""
    return allowed.note == "affinity" and (allowed.value or 0.0) <= FEW_CPUS


HALTED = ("stopped by a signal", "stopped by a debugger", "in a frozen cgroup")
FEW_CPUS = 2.0
WIDEN = "have its owner bind it to more CPUs than {} (taskset, cpusets, Slurm's --cpus-per-task)"


def _step(cause: Cause, rulings: Iterable[Ruling], figures_by_name: Mapping[str, Figure]) -> str:
    if cause is Cause.STARVED and figures_by_name["others_cpus"].note:
        return ASK_OWNERS
    holding = [ruling for ruling in rulings if ruling.holds and ruling.cause is cause]
    clearest = max(holding, key=lambda ruling: ruling.margin or 0.0, default=None)
    own = {rule.name: rule.next_step for rule in RULES}
    if clearest and own[clearest.rule]:
        return own[clearest.rule]
    reason = figures_by_name["slowed"].note if cause is Cause.THROTTLED else ""
    return next((step for name, step in SLOWED.items() if name in reason), NEXT[cause])
