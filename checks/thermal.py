"""Every GPU stays far enough below the temperature at which it slows down.

**Why it matters.** A GPU that is hotter than its neighbours under the same load has a dust filter,
a fan or a thermal pad that fails: it will throttle tomorrow, and every other GPU of the job will
wait for it. Degrees alone do not say it: 85 °C is the limit of one model and ordinary for another.

**Read from** NVML: where the board gives it (Hopper and later, Ada for servers) the T.Limit margin,
nvmlDeviceGetMarginTemperature, and at which margins it acts; else the temperature of the GPU and
its thresholds (maximum operating, slowdown, shutdown). For memory (HBM): its temperature and
maximum, if the GPU has them.

**Verdicts.** Judged is the distance to the maximum operating temperature; to slowdown or shutdown
on a board without one. Less than `minimum_margin_c` for the GPU, or `minimum_memory_margin_c` for
its memory, fails. It is a reading of one moment: look under load. A board that gives no limit, or
no temperature, is not applicable; so is memory whose maximum NVML reports only as a T.Limit.

**To fix it** one GPU hotter than the others: its heat sink, its fan, what blocks its airflow. All
of them: fans, blanking panels, inlet temperature, the coolant's flow. `throttle_reasons` says
whether it is slowed down already.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import UNSET, Meta

from nodevet.checking.named import judge_each, reads_of
from nodevet.evidence.across import IN_HAND, each_gpu
from nodevet.evidence.core import NOT_SUPPORTED
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, board, subject_of
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    Severity,
    fail,
    not_applicable,
    ok,
    unknown,
)

NOT_TOLD = (*NOT_SUPPORTED, "NVML_ERROR_FUNCTION_NOT_FOUND", "NVML_ERROR_INVALID_ARGUMENT")
NO_SENSOR = "NVML returned 0: no sensor"
DEGREES = range(-200, 300)  # what can be believed of a temperature or a margin
BY_MARGIN = ("tlimit_gpu_max_c", "tlimit_slowdown_c", "tlimit_shutdown_c")
BY_DEGREES = ("temperature_gpu_max_c", "temperature_slowdown_c", "temperature_shutdown_c")
COOLING = (
    "compare it with the other GPUs here: one hotter than the rest points to its heat sink, fan or "
    "airflow; all of them to the node's fans, blanking panels, inlet air or coolant"
)

Margin = Annotated[int, Meta(ge=0, le=100)]


class Params(CheckParams):
    """`thermal: {}` or `thermal: 10`"""

    bare: ClassVar[str] = "minimum_margin_c"

    minimum_margin_c: Margin = 5
    """By how many degrees the GPU must be below its maximum operating temperature."""
    minimum_memory_margin_c: Margin = 3
    """The same of its memory, which runs closer to its maximum."""


SLOWED_BY_HEAT = 0x20 | 0x40  # nvmlClocksEventReasonSwThermalSlowdown, ...HwThermalSlowdown


class UnreadError(Exception):
    """A temperature that is needed was not read; the message says which, and why."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    yield from judge_each(each_gpu(evidence), lambda gpu: judge_gpu(gpu, params))


def judge_gpu(gpu: Gpu, params: Params) -> Iterator[Finding]:
    subject = subject_of(gpu)
    least = {"GPU": params.minimum_margin_c, "memory": params.minimum_memory_margin_c}
    margins: dict[str, int] = {}
    doubts, untold = [], []
    for part, margin_of in (("GPU", gpu_margin), ("memory", memory_margin)):
        try:
            margin = margin_of(gpu)
        except UnreadError as doubt:
            doubts.append(str(doubt))
        else:
            margins |= {} if margin is None else {part: margin}
            untold += [part] if margin is None else []
    below = {part: margin for part, margin in margins.items() if margin < least[part]}
    if below:
        yield fail(
            subject,
            expected={part: f"at least {least[part]}" for part in below},
            actual=below,
            unit="°C",
            why="below its maximum",
            advice=COOLING,
            details={**board(gpu), **temperatures_text(gpu)},
            cause="throttle_reasons" if (gpu.event_reasons or 0) & SLOWED_BY_HEAT else UNSET,
        )
    if doubts:
        yield unknown(subject, why="; ".join(doubts))
    elif margins and not below:
        expected = {part: f"at least {least[part]}" for part in margins}
        yield ok(subject, expected=expected, actual=margins, unit="°C", why="below its maximum")
    if untold:
        why = f"NVML tells no temperature with a limit of its {' and its '.join(untold)}"
        yield not_applicable(subject, why=why)


def gpu_margin(gpu: Gpu) -> int | None:
    """Degrees to the first limit that the board gives; or None. Raises UnreadError."""
    margin = value(gpu, "temperature_margin_c")
    if margin is not None:
        return margin - (first_limit(gpu, BY_MARGIN) or 0)
    degrees = value(gpu, "temperature_gpu_c")
    limit = None if degrees is None else first_limit(gpu, BY_DEGREES)
    return None if degrees is None or limit is None else limit - degrees


def memory_margin(gpu: Gpu) -> int | None:
    limit = value(gpu, "temperature_memory_max_c")
    degrees = None if limit is None else value(gpu, "temperature_memory_c")
    return None if degrees is None or limit is None else limit - degrees


def first_limit(gpu: Gpu, fields: tuple[str, ...]) -> int | None:
    """The first of these limits that the board gives. Raises UnreadError."""
    return next((limit for field in fields if (limit := value(gpu, field)) is not None), None)


def value(gpu: Gpu, field: str) -> int | None:
    """Degrees; None if this board does not give them. Raises UnreadError."""
    degrees: int | None = getattr(gpu, field)
    if degrees is None and (gpu.errors.get(field) in (*NOT_TOLD, NO_SENSOR)):
        return None
    if degrees is None:
        raise UnreadError(f"{field}: {gpu.why(field)}")
    if degrees not in DEGREES:
        raise UnreadError(f"{field}: {degrees} is not a valid temperature")
    return degrees


def temperatures_text(gpu: Gpu) -> dict[str, str]:
    degrees_by_part = {"GPU": gpu.temperature_gpu_c, "memory": gpu.temperature_memory_c}
    return {
        f"{part} now": f"{degrees} °C"
        for part, degrees in degrees_by_part.items()
        if degrees is not None
    }


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(
        *IN_HAND,
        *(f"gpu.gpus[].{field}" for field in (*BY_MARGIN, *BY_DEGREES)),
        *reads_of("gpu.gpus[]", "temperature_gpu_c", "temperature_margin_c"),
        *reads_of("gpu.gpus[]", "temperature_memory_c", "temperature_memory_max_c"),
    ),
    judge=judge,
    unasked="for data center GPUs: a GeForce works close to its limit by design",
    severity=Severity.WARNING,
)
