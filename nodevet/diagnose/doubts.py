"""Figures that contradict a cause whose rule holds; confidence is then at most medium. Pure.

The same figures can have another reason; until the rules have more conditions, the sentence says
so.
"""

from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from nodevet.diagnose.counterfactual import contradiction
from nodevet.diagnose.delays import delay_doubt
from nodevet.diagnose.gpm import gpm_doubt, polls, spinning_doubts
from nodevet.diagnose.link_figures import BY_MEANS
from nodevet.diagnose.lookalikes import lookalikes
from nodevet.diagnose.model import FINE, Cause, Figure, Ruling
from nodevet.diagnose.places import AT_LEAST
from nodevet.diagnose.rules import HELD_LOW, POLLING, RULES
from nodevet.diagnose.waiting import SILENT, place_text
from nodevet.diagnose.words import figure_sentence, number, value_text
from nodevet.evidence.document import Evidence
from nodevet.evidence.process_activity import ProcessActivities

POWER_CAPPED = 10.0  # percent of the time: the power limit is the reason for a low clock
FULL_LINK = 70.0  # percent: the link is full whatever the GPU does
MUCH_READ = 50.0  # MB/s: copying them out of the page cache takes some percent of a core
LONG = 30.0  # seconds of a watch, below which a pause between two phases looks like the end
Figures = Mapping[str, Figure]


def doubts(
    causes: Collection[Cause],
    figures: Figures,
    rulings: Sequence[Ruling],
    evidence: Evidence,
    phase: str = "",
    pids: Collection[int] = (),
) -> Mapping[Cause, tuple[str, ...]]:
    """By cause: the figures that contradict it, in words. `phase`: what the
    job may be doing only for a while; the last cause that it can explain names it. `pids`: of the
    job's processes on the GPU."""
    reasons = {
        Cause.GPU: (_power(figures), _low_clock(figures), gpm_doubt(figures)),
        Cause.SPINNING: spinning_doubts(figures, COLLECTIVE),
        Cause.TRANSFER: (_by_means(figures),),
        Cause.SUBMISSION: (_submission(figures),),
        Cause.NUMA: (_distance_doubt(figures),),
        Cause.STUCK: (_stuck(figures, evidence),),
        Cause.NETWORK: (_network(figures),),
        Cause.STORAGE: (delay_doubt(figures),),
        Cause.STARVED: (_starved_doubt(figures),),
        Cause.REQUESTS: (_requests(figures, evidence, pids),),
    }
    by_arithmetic, same = contradiction(causes, figures), lookalikes(causes, figures)
    found = {}
    in_phase = [cause for cause in causes if cause not in STEADY][-1:]  # a sentence says it once
    for cause in causes:
        of_rules = _of_rules(cause, rulings)
        own = (of_rules,) if of_rules else reasons.get(cause, ())
        texts = (*own, same.get(cause, ""), by_arithmetic.get(cause, ""))
        texts = (*texts, phase if cause in in_phase else "")
        found[cause] = tuple(filter(None, texts))
    return {cause: why for cause, why in found.items() if why}


STEADY = (*FINE, Cause.LOST, Cause.THROTTLED)
"""The causes that a phase of the job does not explain."""


def _of_rules(cause: Cause, rulings: Sequence[Ruling]) -> str:
    """What looks the same as a cause, if every rule for it that holds has such a doubt."""
    names = {ruling.rule for ruling in rulings if ruling.holds and ruling.cause is cause}
    texts = [rule.doubt for rule in RULES if rule.cause is cause and rule.name in names]
    return texts[0] if texts and all(texts) else ""


def _power(figures: Figures) -> str:
    power = figures["power"]
    if power.value is None:
        return (
            "nodevet could not read its power, and kernels that only poll keep a GPU just as busy"
        )
    if power.value >= POLLING:
        return ""
    return f"it draws {value_text(power)} of its power limit, like a GPU whose kernels only poll"


def may_poll(figures: Figures) -> bool:
    """Whether a busy GPU draws as little power, or uses its SMs as little, as one that polls."""
    power = figures["power"].value
    return (power is not None and power < POLLING) or polls(figures) is True


COLLECTIVE = (
    "a collective that waits for another rank looks like this, and so do kernels that use little "
    "of the GPU"
)


def _low_clock(figures: Figures) -> str:
    clock, capped = figures["clock"], figures["power_capped"]
    if clock.value is None or clock.value > HELD_LOW or (capped.value or 0) > POWER_CAPPED:
        return ""
    return f"its SM clock is {value_text(clock)} of its maximum, and the driver gave no reason"


def _by_means(figures: Figures) -> str:
    if figures["idle_link"].note != BY_MEANS or (figures["link"].value or 0) >= FULL_LINK:
        return ""
    return "only mean values show this: nodevet never saw the GPU while it computed nothing"


def _submission(figures: Figures) -> str:
    read = figures["read_rate"]
    if read.value is None or read.value < MUCH_READ:
        return ""
    return f"it reads {value_text(read)}, which takes system time as well"


def _distance_doubt(figures: Figures) -> str:
    """A job whose CPUs are far, but not its memory, or the other way round, is slower by little."""
    memory, cpus = figures["remote_memory"], figures["remote_cpus"]
    if memory.value is None or (memory.value < MOSTLY and AT_LEAST in memory.note):
        return "nodevet could not read where its memory is"
    if memory.value < MOSTLY:
        return f"only {figure_sentence(replace(memory, note=''))}"
    if cpus.value is not None and cpus.value < MOSTLY:
        return f"only {figure_sentence(replace(cpus, note=''))}"
    return ""


MOSTLY = 50.0  # percent


def _stuck(figures: Figures, evidence: Evidence) -> str:
    data = evidence[ProcessActivities].data
    seconds = data.look.seconds if data and data.look else 0.0
    if seconds >= LONG:
        return ""
    return f"nodevet watched it for only {number(seconds)} s, and it may just pause: --duration 60s"


def _starved_doubt(figures: Figures) -> str:
    own, others = figures["own_share"], figures["others_cpus"]
    if own.value is not None and own.value >= OWN:
        share = figure_sentence(replace(own, note=""))
        return f"{share}, so its own threads may be in one another's way"
    if others.value is None:
        return "nodevet could not read which processes take them"
    return ""


OWN = 50.0  # percent of the CPUs that a job may use


def _network(figures: Figures) -> str:
    if SILENT in figures["network"].note:
        return "its peer sent nothing while nodevet watched, and may have nothing to send"
    if " in poll" in figures["network"].note or " in select" in figures["network"].note:
        return "it sleeps in poll, so it may wait for something else"
    if figures["lost_segments"].value is None:
        return "nodevet could not read whether its peer is slow or packets are lost"
    return ""


def _requests(figures: Figures, evidence: Evidence, pids: Collection[int]) -> str:
    if not listens_beside(figures):
        return ""
    data = evidence[ProcessActivities].data
    seconds = data.look.seconds if data and data.look else 0.0
    place = place_text((data.processes if data else None) or (), pids, seconds)
    where = f" ({place})" if place else ""
    return f"its first thread waits for something else{where}, so it may be stuck"


def listens_beside(figures: Figures) -> bool:
    """Whether another thread than the first waits for requests."""
    return " thread " in figures["serving"].note
