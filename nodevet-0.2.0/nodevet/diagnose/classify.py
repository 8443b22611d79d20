"""From figures to a cause: compares every rule with the figures (pure)."""

from collections.abc import Collection, Container, Iterable, Mapping

from nodevet.diagnose.doubts import STEADY, doubts
from nodevet.diagnose.files import file_figures, storage_step
from nodevet.diagnose.gpu_figures import gpu_figures
from nodevet.diagnose.host_figures import host_figures
from nodevet.diagnose.job_figures import job_figures, jobs, watched_job
from nodevet.diagnose.model import Cause, Condition, Confidence, Figure, GpuDiagnosis, Ruling
from nodevet.diagnose.phases import phase_step, phase_text
from nodevet.diagnose.ranks import rank_group
from nodevet.diagnose.rules import CLEAR, EXPLAINS, NEXT, RULES, WEAK, CauseRule, Threshold
from nodevet.diagnose.words import also_lines, sentence
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu_activity import GpuActivities, GpuActivity
from nodevet.evidence.process_activity import ProcessActivities

HALF, WHOLE = 50.0, 100.0  # percent
MOST = 1000.0  # a margin beyond which it makes no difference


def diagnose(evidence: Evidence) -> tuple[GpuDiagnosis, ...] | str:
    """The diagnosis of every GPU, or why there is none."""
    section = evidence[GpuActivities]
    if section.data is None:
        return section.why
    if section.data.gpus is None:
        return section.data.why("gpus")
    return tuple(diagnose_gpu(evidence, gpu) for gpu in section.data.gpus)


def figures(evidence: Evidence, gpu: GpuActivity) -> Mapping[str, Figure]:
    """Every figure of one GPU, by name."""
    listed = (
        *(*gpu_figures(evidence, gpu), *job_figures(evidence, gpu), *host_figures(evidence)),
        *file_figures(watched_job(evidence, gpu), evidence),  # instead of some of the host's
    )
    return {figure.name: figure for figure in listed}


def diagnose_gpu(evidence: Evidence, gpu: GpuActivity) -> GpuDiagnosis:
    """One GPU's cause, with all rules and figures."""
    named_figures = figures(evidence, gpu)
    rulings = tuple(ruling_of(rule, named_figures) for rule in RULES)
    explained = effects(rulings, named_figures)
    strongest = decide_causes(rulings, explained)
    cause = strongest[0] if len(strongest) == 1 else Cause.MIXED if strongest else Cause.UNCLEAR
    jobs_on_gpu = jobs(evidence, gpu)
    group = rank_group(evidence, gpu)
    job_phase = phase(evidence, gpu)
    reasons = doubts(strongest, named_figures, rulings, evidence, job_phase)
    return GpuDiagnosis(
        index=gpu.index,
        uuid=gpu.uuid,
        name=gpu.name,
        cause=cause,
        causes=strongest,
        confidence=confidence(rulings, strongest, reasons),
        sentence=sentence(cause, strongest, named_figures, rulings, jobs_on_gpu, evidence, reasons),
        next_step=next_step(strongest, rulings, named_figures, job_phase),
        also=also_lines(cause, strongest, named_figures, rulings, explained),
        figures=tuple(named_figures.values()),
        rulings=rulings,
        jobs=jobs_on_gpu,
        group=group.name,
        group_is_job=group.is_job,
        group_on_host=group.on_host,
    )


def phase(evidence: Evidence, gpu: GpuActivity) -> str:
    """A phase that the job on a GPU will leave by itself; empty if it shows none."""
    job, data = watched_job(evidence, gpu), evidence[ProcessActivities].data
    return "" if isinstance(job, str) or data is None else phase_text(job, data.uptime_s)


def next_step(
    causes: tuple[Cause, ...],
    rulings: Collection[Ruling],
    figures_by_name: Mapping[str, Figure],
    job_phase: str,
) -> str:
    """What to do for each of these causes, the strongest first."""
    if not causes:
        return NEXT[Cause.UNCLEAR]
    steps = {cause: step_of(cause, rulings, figures_by_name) for cause in causes}
    first = "" if steps.keys() <= set(STEADY) else phase_step(job_phase)
    if len(causes) == 1:
        return first + steps[causes[0]]
    listed = [f"({n}) {cause.value}: {steps[cause]}" for n, cause in enumerate(causes, 1)]
    return f"{first}{NEXT[Cause.MIXED]}: {'; '.join(listed)}"


def step_of(cause: Cause, rulings: Iterable[Ruling], figures_by_name: Mapping[str, Figure]) -> str:
    """The advice of the rule that holds most clearly, or else of its cause."""
    if cause is Cause.STORAGE and (step := storage_step(figures_by_name)):
        return step
    holding = [ruling for ruling in rulings if ruling.holds and ruling.cause is cause]
    clearest = max(holding, key=lambda each: each.margin or 0.0, default=None)
    own = {rule.name: rule.next_step for rule in RULES}
    return (own[clearest.rule] if clearest else "") or NEXT[cause]


def ruling_of(rule: CauseRule, figures_by_name: Mapping[str, Figure]) -> Ruling:
    """A rule compared with the figures: it is undecided if a figure is not known, unless another
    condition already fails."""
    conditions = tuple(
        condition(threshold, figures_by_name[threshold.figure]) for threshold in rule.thresholds
    )
    answers = [each.holds for each in conditions]
    holds = False if False in answers else None if None in answers else True
    margins = [each.margin for each in conditions if each.margin is not None]
    known = all(each.holds is not None for each in conditions)
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
    """The causes that follow from another cause -> that other cause."""
    return {
        effect.cause: cause
        for cause in dict.fromkeys(ruling.cause for ruling in rulings if ruling.holds)
        for effect in EXPLAINS.get(cause, ())
        if all(
            condition(threshold, figures_by_name[threshold.figure]).holds
            for threshold in effect.thresholds
        )
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
    rulings: Iterable[Ruling], causes: tuple[Cause, ...], reasons: Collection[Cause] = ()
) -> Confidence:
    """How far the figures rule out every other cause; at most medium if a figure contradicts."""
    listed = list(rulings)
    if Cause.LOST in causes:  # the driver says so, whatever else could be read
        return Confidence.HIGH
    if not causes or any(ruling.holds is None for ruling in listed):
        return Confidence.LOW
    clear = {ruling.cause for ruling in listed if ruling.holds and (ruling.margin or 0) >= CLEAR}
    sure = set(causes) <= clear and not reasons
    return Confidence.HIGH if sure else Confidence.MEDIUM
