"""Figures that contradict a cause whose rule holds; confidence is then at most medium. Pure.

The same figures can have another reason; until the rules have more conditions, the sentence says
so.
"""

from collections.abc import Collection, Mapping, Sequence

from nodevet.diagnose.link_figures import BY_MEANS
from nodevet.diagnose.model import Cause, Figure, Job, Ruling
from nodevet.diagnose.rules import HELD_LOW, POLLING
from nodevet.diagnose.words import figure_sentence, value_text, waits_in
from nodevet.evidence.document import Evidence

FEW_TICKS = 0.1  # CPUs
POWER_CAPPED = 10.0  # percent of the time: the power limit is the reason for a low clock
FULL_LINK = 70.0  # percent: the link is full whatever the GPU does
NO_SYSTEM = 1.0  # percent of the job's CPU time
STARVED = 20.0  # percent of the time
SERVING = (
    *("poll", "select", "recv", "sk_wait", "stream_data_wait", "wait_for_more_packets", "accept"),
    *("cqring_wait", "tty_read", "pipe_read", "nanosleep", "sigtimedwait"),
)
"""Parts of names of kernel functions in which an idle server, or an idle notebook, sleeps."""

Figures = Mapping[str, Figure]


def doubts(
    causes: Collection[Cause],
    figures: Figures,
    rulings: Sequence[Ruling],
    jobs: Sequence[Job],
    evidence: Evidence,
) -> Mapping[Cause, str]:
    """The figure that contradicts each of these causes, in words; without those that none does."""
    reasons = {
        Cause.GPU: ", and ".join(filter(None, (_power(figures), _low_clock(figures)))),
        Cause.SPINNING: COLLECTIVE,
        Cause.TRANSFER: _by_means(figures),
        Cause.SUBMISSION: _submission(figures),
        Cause.NUMA: _ticks(figures, rulings),
        Cause.STUCK: _serving(jobs, evidence),
    }
    return {cause: why for cause, why in reasons.items() if why and cause in causes}


def _power(figures: Figures) -> str:
    power = figures["power"]
    if power.value is None or power.value >= POLLING:
        return ""
    return f"it draws {value_text(power)} of its power limit, like a GPU whose kernels only poll"


COLLECTIVE = (
    "a collective that waits for another rank looks like this, and so do kernels that use little "
    "of the GPU"
)


def _low_clock(figures: Figures) -> str:
    clock, capped = figures["clock"], figures["power_capped"]
    if clock.value is None or clock.value > HELD_LOW or (capped.value or 0) > POWER_CAPPED:
        return ""
    return f"its SM clock is {value_text(clock)} of its maximum, and no reason was read"


def _by_means(figures: Figures) -> str:
    if figures["idle_link"].note != BY_MEANS or (figures["link"].value or 0) >= FULL_LINK:
        return ""
    return "that is computed from means: no look met the GPU while it computed nothing"


def _submission(figures: Figures) -> str:
    system, starved = figures["job_system"], figures["cpu_starved"]
    texts = []
    if system.value is not None and system.value < NO_SYSTEM:
        texts.append(f"{figure_sentence(system)}, and submitting takes system time")
    if starved.value is not None and starved.value >= STARVED:
        texts.append(figure_sentence(starved))
    return ", and ".join(texts)


def _ticks(figures: Figures, rulings: Sequence[Ruling]) -> str:
    cpus = figures["job_cpus"]
    by_memory = any(
        ruling.holds and ruling.cause is Cause.NUMA and ruling.conditions[-1].figure.name != FAR
        for ruling in rulings
    )
    if by_memory or cpus.value is None or cpus.value >= FEW_TICKS:
        return ""
    return f"the job uses {value_text(cpus)} CPUs in all, too few for the GPU to wait for them"


FAR = "remote_cpus"


def _serving(jobs: Sequence[Job], evidence: Evidence) -> str:
    place = waits_in(jobs, evidence)
    if not any(word in place for word in SERVING):
        return ""
    return f"an idle server also sleeps in {place}"
