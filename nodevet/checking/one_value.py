"""Templates for a check of one value, of the node or of each GPU: the check says which value is
right, and the template handles unknown values."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from nodevet.evidence.across import IN_HAND, answering_gpus, each_gpu
from nodevet.evidence.core import Record, SectionRecord, unread, unsupported
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, subject_of
from nodevet.model import (
    NODE,
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    Severity,
    Subject,
    Value,
    fail,
    not_applicable,
    ok,
    unknown,
)

Same = TypeVar("Same", bound=Hashable)
Place = tuple[type[SectionRecord], str]
"""A section's record and one of its fields."""


def ok_if(
    right: bool,
    subject: Subject = NODE,
    *,
    expected: Value,
    actual: Value,
    advice: str = "",
    **rest: Any,
) -> Finding:
    """An ok finding, or a failure with the advice."""
    if right:
        return ok(subject, expected=expected, actual=actual, **rest)
    return fail(subject, expected=expected, actual=actual, advice=advice, **rest)


def first_unread(subject: Subject, record: Record, *fields: str) -> Finding | None:
    """The unknown finding about the first of these fields that was not read; None if all were
    read."""
    missing = next((field for field in fields if getattr(record, field) is None), None)
    return unread(subject, record, missing) if missing else None


def values_at(
    evidence: Evidence, *places: Place, subject: Subject = NODE, label: str = ""
) -> tuple[Any, ...] | Finding:
    """The values at these places; or the unknown finding about the first one that was not read.

    `label`: the finding's name for a section that was not read, if not the section's own.
    """
    for record, _ in places:
        section = evidence[record]
        if section.data is None:
            return unknown(subject, why=f"{label or section_name(record)}: {section.why}")
    for record, field in places:
        data = evidence[record].data
        if data is not None and getattr(data, field) is None:
            return unread(subject, data, field)
    return tuple(getattr(evidence[record].data, field) for record, field in places)


def section_name(record: type[SectionRecord]) -> str:
    return record.__module__.rpartition(".")[2]


def itself(value: Value) -> Value:
    """For `learn`: the baseline has the value as it is."""
    return value


def node_value(
    params: type[CheckParams],
    record: type[SectionRecord],
    field: str,
    *,
    judge: Callable[..., Finding],
    area: Area,
    unasked: str = "",
    label: str = "",
    subject: Subject = NODE,
    nothing: str = "",
    also: tuple[str, ...] = (),
    learn: Callable[[Any], Value] | None = None,
    severity: Severity = Severity.WARNING,
    actions: Mapping[str, NeededAction] | None = None,
) -> Check:
    """The check of one value of the node. A number below 0 is unknown.

    `judge`: makes the finding from the params and the value. `label`: as in `values_at`. `nothing`:
    why the check is unknown if the baseline gives no params. `also`: fields of the same record that
    `judge` takes only for its texts; they may be None. `learn`: makes the params from the value.
    """

    def judge_value(evidence: Evidence, params_given: CheckParams) -> Iterator[Finding]:
        if nothing and params_given == params():
            yield unknown(why=nothing)
            return
        values = values_at(evidence, (record, field), subject=subject, label=label)
        if isinstance(values, Finding):
            yield values
        elif isinstance(values[0], (int, float)) and values[0] < 0:
            yield unknown(subject, why=f"{field}: {values[0]:.10g}")
        else:
            data = evidence[record].data
            yield judge(params_given, *values, *(getattr(data, name) for name in also))

    def learn_value(evidence: Evidence) -> Value:
        values = values_at(evidence, (record, field))
        return None if learn is None or isinstance(values, Finding) else learn(*values)

    return Check(
        params=params,
        area=area,
        reads=(f"{section_name(record)}.{field}",),
        judge=judge_value,
        unasked=unasked,
        learn=learn and learn_value,
        severity=severity,
        actions=actions or {},
    )


def gpu_value(
    params: type[CheckParams],
    field: str,
    *,
    judge: Callable[[Gpu, Any], Finding],
    lacking: str | Callable[[Gpu, Any], Finding] = "",
    unasked: str = "",
    learn: Callable[[Evidence], Value] | None = None,
    severity: Severity = Severity.CRITICAL,
    actions: Mapping[str, NeededAction] | None = None,
) -> Check:
    """The check of one value of each GPU. `field`: of evidence.gpu.Gpu.

    `judge`: makes the finding about a GPU with the value. `lacking`: why a GPU without such a value
    is not applicable; without it, the value counts as not read.
    """

    def judge_gpus(evidence: Evidence, params_given: CheckParams) -> Iterator[Finding]:
        for gpu in each_gpu(evidence):
            yield gpu if isinstance(gpu, Finding) else judge_gpu(gpu, params_given)

    def judge_gpu(gpu: Gpu, params_given: CheckParams) -> Finding:
        if lacking and unsupported(gpu, field):
            if isinstance(lacking, str):
                return not_applicable(subject_of(gpu), why=lacking)
            return lacking(gpu, params_given)
        if getattr(gpu, field) is None:
            return unread(subject_of(gpu), gpu, field)
        return judge(gpu, params_given)

    return Check(
        params=params,
        area=Area.GPU,
        reads=(*IN_HAND, f"gpu.gpus[].{field}"),
        judge=judge_gpus,
        unasked=unasked,
        learn=learn,
        severity=severity,
        actions=actions or {},
    )


def usual_of(field: str) -> Callable[[Evidence], Value]:
    """For `learn`: the value that most GPUs have."""
    return lambda evidence: usual(getattr(gpu, field) for gpu in answering_gpus(evidence))


def usual(values: Iterable[Same | None]) -> Same | None:
    """The value that most parts have; None if no value was read, or if two are equally frequent.

    >>> usual(["performance", "performance", None, "powersave"])
    'performance'
    """
    most = Counter(value for value in values if value is not None).most_common(2)
    if not most or (len(most) == 2 and most[0][1] == most[1][1]):
        return None
    return most[0][0]
