"""From figures to a cause: compares every rule with the figures (pure)."""

from collections.abc import Collection, Container, Iterable, Iterator, Mapping

from nodevet.diagnose.claims import awaited_helpers, claim, proofs_of, sentence
from nodevet.diagnose.counterfactual import gain_text, worker_figures
from nodevet.diagnose.doubts import doubts
from nodevet.diagnose.files import file_figures
from nodevet.diagnose.flight import flight_lines
from nodevet.diagnose.gpu_figures import gpu_figures
from nodevet.diagnose.host_figures import host_figures
from nodevet.diagnose.job_figures import job_figures, jobs, watched_job
from nodevet.diagnose.kernel_lines import address_of, log_facts
from nodevet.diagnose.link_figures import full_link
from nodevet.diagnose.lookalikes import lookalikes
from nodevet.diagnose.model import Cause, Condition, Confidence, Figure, GpuDiagnosis, Ruling
from nodevet.diagnose.phases import JobPhase, phase_of
from nodevet.diagnose.ranks import rank_group
from nodevet.diagnose.rules import (
    CLEAR,
    EXPLAINS,
    HOT,
    OTHER_WAIT,
    QUOTA_HOLDS,
    QUOTA_MAY_HOLD,
    RULES,
    WEAK,
    CauseRule,
    Threshold,
)
from nodevet.diagnose.steps import next_step
from nodevet.diagnose.words import also_lines
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu_activity import GpuActivities, GpuActivity
from nodevet.evidence.process_activity import ProcessActivities

HALF, WHOLE = 50.0, 100.0  # percent
MOST = 1000.0  # a margin beyond which it makes no difference


def diagnose(evidence: Evidence, began_s: float | None = None) -> tuple[GpuDiagnosis, ...] | str:
    """The diagnosis of every GPU, or why there is none. `began_s`: when watching began, seconds
    since 1970."""
    section = evidence[GpuActivities]
    if section.data is None:
        return section.why
    if section.data.gpus is None:
        return section.data.why("gpus")
    return tuple(diagnose_gpu(evidence, gpu, began_s) for gpu in section.data.gpus)


def figures(evidence: Evidence, gpu: GpuActivity) -> Mapping[str, Figure]:
    """Every figure of one GPU, by name."""
    job = watched_job(evidence, gpu)
    listed = (
        *(*gpu_figures(evidence, gpu), *job_figures(evidence, gpu), *host_figures(evidence)),
        *file_figures(job, evidence),  # instead of some of the host's
        *worker_figures(job),
    )
    return {figure.name: figure for figure in listed}


def diagnose_gpu(
    evidence: Evidence, gpu: GpuActivity, began_s: float | None = None
) -> GpuDiagnosis:
    """One GPU's cause, with all rules and figures."""
    named_figures = figures(evidence, gpu)
    rulings = tuple(ruling_of(rule, named_figures) for rule in RULES)
    explained = effects(rulings, named_figures)
    strongest = decide_causes(rulings, explained)
    cause = strongest[0] if len(strongest) == 1 else Cause.MIXED if strongest else Cause.UNCLEAR
    jobs_on_gpu = jobs(evidence, gpu)
    group = rank_group(evidence, gpu)
    job_phase = phase(evidence, gpu, began_s)
    pids = [job.pid for job in jobs_on_gpu]
    reasons = doubts(strongest, named_figures, rulings, evidence, job_phase.doubt, pids)
    claim_text = claim(cause, named_figures, rulings, jobs_on_gpu)
    proofs = proofs_of(strongest, named_figures, rulings, jobs_on_gpu, evidence, reasons)
    gain = gain_text(strongest, named_figures, evidence, gpu)
    return GpuDiagnosis(
        index=gpu.index,
        uuid=gpu.uuid,
        bus_id=address_of(evidence, gpu),
        name=gpu.name,
        cause=cause,
        causes=strongest,
        confidence=confidence(rulings, strongest, reasons, lookalikes(strongest, named_figures)),
        sentence=sentence(claim_text, proofs, gain),
        claim=claim_text,
        proofs=proofs,
        gain=gain,
        next_step=next_step(
            strongest,
            rulings,
            named_figures,
            job_phase.step,
            () if strongest else awaited_helpers(jobs_on_gpu, evidence),
        ),
        also=(
            *fault_facts(strongest, evidence, gpu),
            *also_lines(cause, strongest, named_figures, rulings, explained),
            *dict.fromkeys(flight_lines(watched_job(evidence, gpu), evidence)),
        ),
        figures=tuple(named_figures.values()),
        rulings=rulings,
        jobs=jobs_on_gpu,
        group=group.name,
        group_is_job=group.is_job,
        group_on_host=group.on_host,
        group_rank=group.rank,
    )


def fault_facts(causes: Collection[Cause], evidence: Evidence, gpu: GpuActivity) -> Iterator[str]:
    """Facts about a GPU that may be faulty: its address if it is lost, its lines in the kernel log,
    and whether its link is as fast as it can be."""
    address = address_of(evidence, gpu)
    if Cause.LOST in causes and address:
        yield f"it is the GPU at {address}"
    elif Cause.LOST in causes:
        yield "NVML does not say its PCI address: `dmesg | grep -i xid` may show it"
    if not {Cause.LOST, Cause.STUCK}.isdisjoint(causes):
        yield from log_facts(evidence, address)
    if Cause.TRANSFER in causes and (full := full_link(evidence, gpu)):
        name, is_less = full
        yield f"the GPU and its slot allow {name}{', which its link does not reach' * is_less}"


def phase(evidence: Evidence, gpu: GpuActivity, began_s: float | None = None) -> JobPhase:
    """A phase that the job on a GPU will leave by itself; empty if it shows none."""
    job, data = watched_job(evidence, gpu), evidence[ProcessActivities].data
    if isinstance(job, str) or data is None:
        return JobPhase()
    return phase_of(job, data.uptime_s, began_s)


def ruling_of(rule: CauseRule, figures_by_name: Mapping[str, Figure]) -> Ruling:
    """A rule compared with the figures: it is undecided if a figure is not known, unless another
    condition already fails."""
    conditions = tuple(
        condition(threshold, figures_by_name[threshold.figure]) for threshold in rule.thresholds
    )
    answers = [compared.holds for compared in conditions]
    holds = False if False in answers else None if None in answers else True
    margins = [compared.margin for compared in conditions if compared.margin is not None]
    known = all(compared.holds is not None for compared in conditions)
    return Ruling(
        cause=rule.cause,
        rule=rule.name,
        holds=holds,
        margin=min(margins, default=None) if known else None,
        conditions=conditions,
    )


def condition(threshold: Threshold, figure: Figure) -> Condition:
    value = figure.value
    holds = margin = None
    if value is not None:
        least = threshold.at_least
        holds = value >= threshold.value if least else value <= threshold.value
        if not threshold.is_count:
            margin = _beyond(figure, threshold.value) if least else _ratio(threshold.value, value)
    return Condition(
        figure=figure,
        at_least=threshold.at_least,
        threshold=threshold.value,
        source=threshold.source,
        holds=holds,
        margin=margin,
    )


def _beyond(figure: Figure, least: float) -> float:
    """How far a value is above a threshold. For percent near 100, by how far it is from 100: 97 is
    far beyond 85.
    """
    value = figure.value or 0.0
    margin = _ratio(value, least)
    if figure.unit != "%" or least < HALF or value < least:
        return margin
    return max(margin, _ratio(WHOLE - least, max(WHOLE - value, 0.0)))


def _ratio(above: float, below: float) -> float:
    if below <= 0:
        return MOST if above >= 0 else 0.0
    return round(min(MOST, above / below), 3)


def effects(
    rulings: Iterable[Ruling], figures_by_name: Mapping[str, Figure]
) -> Mapping[Cause, Cause]:
    """The causes that follow from another cause -> that other cause. A wait that follows from a
    third cause makes no other wait minor."""
    found = {
        (effect.cause, cause): effect
        for cause in dict.fromkeys(ruling.cause for ruling in rulings if ruling.holds)
        for effect in EXPLAINS.get(cause, ())
        if all(
            condition(threshold, figures_by_name[threshold.figure]).holds
            for threshold in effect.thresholds
        )
    }
    entailed = {effect for effect, _ in found}
    return {
        effect: cause
        for (effect, cause), by in found.items()
        if by is not OTHER_WAIT or cause not in entailed
    }


def decide_causes(rulings: Iterable[Ruling], explained: Container[Cause]) -> tuple[Cause, ...]:
    """The causes of the rules that hold, strongest first, without causes that another one entails.
    A weak cause counts only if there is no other.
    """
    best: dict[Cause, float] = {}
    for ruling in rulings:
        if ruling.holds:
            best[ruling.cause] = max(ruling.margin or 0.0, best.get(ruling.cause, 0.0))
    if Cause.LOST in best:
        return (Cause.LOST,)
    own = {cause: margin for cause, margin in best.items() if cause not in explained}
    strong = {cause: margin for cause, margin in own.items() if cause not in WEAK} or own
    return tuple(sorted(strong, key=lambda cause: -strong[cause]))


def confidence(
    rulings: Iterable[Ruling],
    causes: tuple[Cause, ...],
    reasons: Collection[Cause] = (),
    looks_same: Collection[Cause] = (),
) -> Confidence:
    """How far the figures rule out every other cause; at most medium if a figure contradicts, low
    if something else looks the same."""
    listed = list(rulings)
    if Cause.LOST in causes:  # the driver says so, whatever else could be read
        return Confidence.HIGH
    if not causes or any(ruling.holds is None for ruling in listed):
        return Confidence.LOW
    if Cause.STUCK in causes and len(causes) > 1:  # a job that does nothing waits for nothing else
        return Confidence.LOW
    is_hot = any(cause in HOT for cause in causes)
    if is_hot and (Cause.STARVED in causes or may_be_quota(listed)):
        return Confidence.LOW  # it is not clear which of them holds the job up
    held = {ruling.rule for ruling in listed if ruling.holds}
    if looks_same or any(rule.is_unsure for rule in RULES if rule.name in held):
        return Confidence.LOW
    clear = {ruling.cause for ruling in listed if ruling.holds and (ruling.margin or 0) >= CLEAR}
    sure = set(causes) <= clear and not reasons
    return Confidence.HIGH if sure else Confidence.MEDIUM


def may_be_quota(rulings: Iterable[Ruling]) -> bool:
    """Whether a quota stops the job in some periods, too few to be its cause."""
    shares = (
        condition.figure.value or 0.0
        for ruling in rulings
        if ruling.cause is Cause.QUOTA
        for condition in ruling.conditions
        if condition.figure.name == "quota_throttled"
    )
    return any(QUOTA_MAY_HOLD <= share < QUOTA_HOLDS for share in shares)
