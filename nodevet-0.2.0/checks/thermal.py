"""Every GPU stays far enough below the temperature at which it slows down.

**Why it matters.** If a GPU is hotter than its neighbours under the same load, its dust filter, fan
or thermal pad is failing: it will soon throttle, and every other GPU of the job will wait for it.
The temperature alone does not show this: 85 °C is the limit of one model and normal for another.

**Read from** NVML. If the board reports it (Hopper and later, Ada for servers): the T.Limit margin,
nvmlDeviceGetMarginTemperature, and the margins at which the board acts. Otherwise: the temperature
of the GPU and its thresholds (maximum operating, slowdown, shutdown). For memory (HBM): its
temperature and maximum, if the GPU reports them.

**Verdicts.** The check judges the distance to the maximum operating temperature, or to slowdown or
shutdown if the board has no such maximum. A distance below `minimum_margin_c` for the GPU, or
`minimum_memory_margin_c` for its memory, fails. It is a momentary reading: check under load. A
board that reports no limit or no temperature is not applicable; so is memory whose maximum NVML
reports only as a T.Limit.

**To fix it** if one GPU is hotter than the others, check its heat sink, its fan and its airflow. If
all of them are hot, check fans, blanking panels, inlet temperature and the coolant's flow.
`throttle_reasons` shows whether the GPU already slows down.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import UNSET, Meta

from nodevet.checking.named import judge_each, reads_of
from nodevet.checking.temperatures import DEGREES, MARGINS
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

NOT_REPORTED = (*NOT_SUPPORTED, "NVML_ERROR_FUNCTION_NOT_FOUND", "NVML_ERROR_INVALID_ARGUMENT")
NO_SENSOR = "NVML returned 0: no sensor"
BY_MARGIN = ("tlimit_gpu_max_c", "tlimit_slowdown_c", "tlimit_shutdown_c")
IN_MARGINS = ("temperature_margin_c", *BY_MARGIN)
BY_DEGREES = ("temperature_gpu_max_c", "temperature_slowdown_c", "temperature_shutdown_c")
COOLING = (
    "compare it with the other GPUs here: if only one is hotter, check its heat sink, fan or "
    "airflow; if all are, check the node's fans, blanking panels, inlet air or coolant"
)

Margin = Annotated[int, Meta(ge=0, le=100)]


class Params(CheckParams):
    """`thermal: {}` or `thermal: 10`"""

    bare: ClassVar[str] = "minimum_margin_c"

    minimum_margin_c: Margin = 5
    """The least number of degrees between the GPU and its maximum operating temperature."""
    minimum_memory_margin_c: Margin = 3
    """The same for its memory, which runs closer to its maximum."""


SLOWED_BY_HEAT = 0x20 | 0x40  # nvmlClocksEventReasonSwThermalSlowdown, ...HwThermalSlowdown


class UnreadError(Exception):
    """A required temperature was not read; the message says which, and why."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    yield from judge_each(each_gpu(evidence), lambda gpu: judge_gpu(gpu, params))


def judge_gpu(gpu: Gpu, params: Params) -> Iterator[Finding]:
    subject = subject_of(gpu)
    least = {"GPU": params.minimum_margin_c, "memory": params.minimum_memory_margin_c}
    margins: dict[str, int] = {}
    doubts, unreported = [], []
    for part, margin_of in (("GPU", gpu_margin), ("memory", memory_margin)):
        try:
            margin = margin_of(gpu)
        except UnreadError as doubt:
            doubts.append(str(doubt))
        else:
            margins |= {} if margin is None else {part: margin}
            unreported += [part] if margin is None else []
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
    if unreported:
        why = f"NVML reports no temperature with a limit for its {' and its '.join(unreported)}"
        yield not_applicable(subject, why=why)


def gpu_margin(gpu: Gpu) -> int | None:
    """Degrees to the first limit that the board reports; or None. Raises UnreadError."""
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
    """The first of these limits that the board reports. Raises UnreadError."""
    return next((limit for field in fields if (limit := value(gpu, field)) is not None), None)


def value(gpu: Gpu, field: str) -> int | None:
    """Degrees; None if this board does not report them. Raises UnreadError."""
    degrees: int | None = getattr(gpu, field)
    if degrees is None and (gpu.errors.get(field) in (*NOT_REPORTED, NO_SENSOR)):
        return None
    if degrees is None:
        raise UnreadError(f"{field}: {gpu.why(field)}")
    if degrees not in (MARGINS if field in IN_MARGINS else DEGREES):
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
    unasked="for data center GPUs: a GeForce runs close to its limit by design",
    severity=Severity.WARNING,
)
