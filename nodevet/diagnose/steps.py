"""What to do next, by the causes and by what else is known (pure)."""

from collections.abc import Collection, Iterable, Sequence

from nodevet.base.printable import brief
from nodevet.diagnose.claims import is_gone
from nodevet.diagnose.clock_step import clock_step
from nodevet.diagnose.connections import network_step
from nodevet.diagnose.doubts import STEADY, listens_beside, may_poll
from nodevet.diagnose.files import storage_step
from nodevet.diagnose.job_figures import JOBS_USER
from nodevet.diagnose.lookalikes import lookalikes
from nodevet.diagnose.model import Cause, Figure, Ruling
from nodevet.diagnose.rules import (
    AGAIN,
    ASK_OWNERS,
    ASK_USER,
    GIVE_CPUS,
    HOT,
    LET_RUN,
    LOST_STEP,
    MAY_BE_STUCK,
    NEXT,
    POLLS_STEP,
    PROFILE,
    QUIET,
    RULES,
    SLOWED,
)
from nodevet.diagnose.words import Figures, number


def next_step(
    causes: tuple[Cause, ...],
    rulings: Collection[Ruling],
    figures_by_name: Figures,
    first_step: str,
    awaited: Sequence[str] = (),
) -> str:
    """What to do for each of these causes, the strongest first. `awaited`: the helpers for which a
    job without a known cause waits."""
    if not causes:
        return unclear_step(rulings, figures_by_name, awaited)
    steps = {cause: step_of(cause, rulings, figures_by_name) for cause in causes}
    first = "" if steps.keys() <= set(STEADY) else first_step
    near = "" if Cause.STARVED in causes else near_step(causes, rulings, figures_by_name)
    near = f"; {near}" if near else ""
    if len(causes) == 1:
        return first + steps[causes[0]] + near
    listed = [f"({n}) {cause.value}: {steps[cause]}" for n, cause in enumerate(causes, 1)]
    return first + "; ".join([NEXT[Cause.MIXED], *listed]) + near


def unclear_step(rulings: Iterable[Ruling], figures: Figures, awaited: Sequence[str]) -> str:
    """What shows the cause of a GPU that waits for an unknown reason."""
    if not awaited:
        return NEXT[Cause.UNCLEAR]
    as_root = ", as root" * any(ruling.holds is None for ruling in rulings)
    names = [brief(name).replace(";", "") for name in awaited]
    dump = "py-spy dump --nonblocking --pid {} shows what its helper {} does"
    dumps = [dump.format(name.rpartition(" ")[2], name) for name in names]
    is_quiet = (figures["sm_busy"].value or 0.0) < QUIET
    last = "it may be a server without requests: stop nothing before its owner says so"
    return "; ".join(
        (
            *dumps,
            "py-spy dump --nonblocking --pid PID shows where the process on the GPU waits",
            f"watch it for longer (--duration 60s){as_root}",
            last if is_quiet else PROFILE,
        )
    )


def near_step(causes: Collection[Cause], rulings: Iterable[Ruling], figures: Figures) -> str:
    """The step for a job that is also far from its GPU, which is not its cause."""
    is_far = any(ruling.holds and ruling.cause is Cause.NUMA for ruling in rulings)
    if Cause.NUMA in causes or not is_far or not set(causes).isdisjoint(STEADY):
        return ""
    where = figures["remote_memory"].note or figures["remote_cpus"].note
    return (
        f"choose CPUs near its GPU ({where.rpartition('; ')[2]}), and compare the time of a step "
        "before and after"
    )


def step_of(cause: Cause, rulings: Iterable[Ruling], figures_by_name: Figures) -> str:
    """The advice of the rule that holds most clearly, or else of its cause."""
    if special := _special(cause, list(rulings), figures_by_name):
        return special
    step, allowed = _step(cause, rulings, figures_by_name), figures_by_name["cpus_allowed"]
    if cause is Cause.PREPROCESSING and is_bound_to_few(allowed):
        return f"{WIDEN.format(number(allowed.value or 0.0))}; {step}"
    return step


def _special(cause: Cause, rulings: Sequence[Ruling], figures: Figures) -> str:
    """The advice that the figures of a cause decide; empty if they decide none."""
    if cause is Cause.GPU and may_poll(figures):
        return f"{POLLS_STEP}; if it does not: {NEXT[cause]}"
    if cause is Cause.LOST:
        return LOST_STEP if is_gone(figures["lost"].note) else NEXT[cause]
    if cause is Cause.STARVED:
        return _starved_step(rulings, figures)
    if cause is Cause.STORAGE:
        return storage_step(figures)
    if cause is Cause.NETWORK:
        return network_step(figures)
    if cause is Cause.REQUESTS and listens_beside(figures):
        return MAY_BE_STUCK
    if cause is Cause.STUCK and figures["frozen"].note.endswith(HALTED):
        return LET_RUN
    if cause is Cause.STUCK and lookalikes((cause,), figures):
        return MAY_BE_STUCK
    return clock_step(figures) if cause is Cause.THROTTLED else ""


def is_bound_to_few(allowed: Figure) -> bool:
    """Whether a job may use so few CPUs that it was hardly meant: loaders need several."""
    return allowed.note == "affinity" and (allowed.value or 0.0) <= FEW_CPUS


HALTED = ("stopped by a signal", "stopped by a debugger", "in a frozen cgroup")
FEW_CPUS = 2.0
WIDEN = "have its owner bind it to more CPUs than {} (taskset, cpusets, Slurm's --cpus-per-task)"


def _starved_step(rulings: Sequence[Ruling], figures: Figures) -> str:
    """Who takes the CPUs, and which ones the job should have."""
    allowed, others = figures["cpus_allowed"], figures["others_cpus"].note
    give = GIVE_CPUS
    if is_bound_to_few(allowed):
        give = WIDEN.format(number(allowed.value or 0.0))
    named = others.split("; ")
    ask = ASK_USER if all(JOBS_USER in name for name in named) else ASK_OWNERS
    who = ask.format(" and ".join(named).replace(JOBS_USER, "")) if others else ASK_IN_TOP
    near = near_step((Cause.STARVED,), rulings, figures)
    hot = {ruling.cause for ruling in rulings if ruling.holds} & set(HOT)
    own = ", ".join(cause.value for cause in HOT if cause in hot)
    again = f"then watch it again: its own work may hold it up, too ({own})" if own else AGAIN
    return "; ".join(filter(None, (who, give, near, again)))


ASK_IN_TOP = "see in top who takes the CPUs, and ask the owner"


def _step(cause: Cause, rulings: Iterable[Ruling], figures_by_name: Figures) -> str:
    holding = [ruling for ruling in rulings if ruling.holds and ruling.cause is cause]
    clearest = max(holding, key=lambda ruling: ruling.margin or 0.0, default=None)
    own = {rule.name: rule.next_step for rule in RULES}
    if clearest and own[clearest.rule]:
        # `350 W of 700 W`
        default = figures_by_name["limit"].note.rpartition(" of ")[2].removesuffix(" W")
        return own[clearest.rule].replace("WATTS", default or "WATTS")
    reason = figures_by_name["slowed"].note if cause is Cause.THROTTLED else ""
    return next((step for name, step in SLOWED.items() if name in reason), NEXT[cause])
