"""What speaks against a cause whose rule holds: confidence is medium at most then. Pure.

The same figures lead there for another reason as well; until the rules ask for more, the sentence
says so.
"""

from collections.abc import Collection, Mapping, Sequence

from nodevet.diagnose.model import Cause, Figure, Job, Ruling
from nodevet.diagnose.words import said, valued, waits_in
from nodevet.evidence.document import Evidence

POLLING = 40.0  # percent of the power limit, below which a busy GPU may only poll
FEW_TICKS = 0.1  # CPUs
NO_SYSTEM = 1.0  # percent of the job's CPU time
STARVED = 20.0  # percent of the time
SERVING = ("epoll", "ep_poll", "recv", "sk_wait", "stream_data_wait", "inet_csk_accept")
"""In the names of kernel functions in which a server without requests sleeps."""

Found = Mapping[str, Figure]


def doubts(
    causes: Collection[Cause],
    found: Found,
    rulings: Sequence[Ruling],
    jobs: Sequence[Job],
    evidence: Evidence,
) -> Mapping[Cause, str]:
    """The figure that contradicts each of these causes, in words; without those that none does."""
    told = {
        Cause.GPU: _power(found),
        Cause.SUBMISSION: _submission(found),
        Cause.NUMA: _ticks(found, rulings),
        Cause.STUCK: _serving(jobs, evidence),
    }
    return {cause: why for cause, why in told.items() if why and cause in causes}


def _power(found: Found) -> str:
    power = found["power"]
    if power.value is None or power.value >= POLLING:
        return ""
    return f"it draws {valued(power)} of its power limit, as a GPU does whose kernels only poll"


def _submission(found: Found) -> str:
    system, starved = found["job_system"], found["cpu_starved"]
    told = []
    if system.value is not None and system.value < NO_SYSTEM:
        told.append(f"{said(system)}, and submitting takes system time")
    if starved.value is not None and starved.value >= STARVED:
        told.append(said(starved))
    return ", and ".join(told)


def _ticks(found: Found, rulings: Sequence[Ruling]) -> str:
    cpus = found["job_cpus"]
    by_memory = any(
        ruling.holds and ruling.cause is Cause.NUMA and ruling.conditions[-1].figure.name != FAR
        for ruling in rulings
    )
    if by_memory or cpus.value is None or cpus.value >= FEW_TICKS:
        return ""
    return f"the job uses {valued(cpus)} CPUs in all, too few ticks to wait for"


FAR = "remote_cpus"


def _serving(jobs: Sequence[Job], evidence: Evidence) -> str:
    place = waits_in(jobs, evidence)
    if not any(word in place for word in SERVING):
        return ""
    return f"a server without requests sleeps in {place} as well"
