"""Every GPU's application and locked clocks are as expected.

**Why it matters.** Application or locked clocks that an experiment left behind hold a GPU below its
maximum, and nothing reports an error.

**Read from** NVML: nvmlDeviceGetApplicationsClock, ...DefaultApplicationsClock,
nvmlDeviceGetMaxClockInfo; locked clocks if the driver reports them.

**Verdicts.** This check does not judge the clock at the moment of reading: a healthy idle H100
reads 345 MHz. The check `throttle_reasons` judges what holds a busy GPU's clock down. Newer drivers
have no application clocks: a GPU without them is not applicable if `default` is expected, otherwise
unknown. Most drivers do not report locked clocks: then a check of them is unknown.

**To fix it** `nvidia-smi -i BUS_ID -rac`, `-rgc` and `-rmc` reset the clocks; `-ac`, `-lgc` and
`-lmc` set them. A reboot clears all of them; a systemd unit can set them again.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import asdict

from nodevet.checking.aspects import (
    Aspect,
    aspect_findings,
    aspect_if,
    unknown_aspect,
    unread_aspect,
)
from nodevet.checking.named import judge_each, reads_of
from nodevet.checking.one_value import usual
from nodevet.evidence.across import IN_HAND, answering_gpus, each_gpu
from nodevet.evidence.core import unsupported
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, subject_of
from nodevet.model import Area, Check, CheckParams, Finding, Value, not_applicable

Mhz = Annotated[int, Meta(gt=0, le=20_000)]


class Params(CheckParams):
    """`gpu_clocks: {graphics: max, memory: default}` or `gpu_clocks: {locked_graphics: 1980}`"""

    graphics: Mhz | Literal["max", "default"] | None = None
    """Application clock in MHz."""
    memory: Mhz | Literal["max", "default"] | None = None
    """Application clock in MHz."""
    locked_graphics: Mhz | Literal["max"] | None = None
    """Locked clock in MHz: the lower and the upper lock must equal it."""
    locked_memory: Mhz | Literal["max"] | None = None
    """Locked clock in MHz: the lower and the upper lock must equal it."""

    def __post_init__(self) -> None:
        if all(clock is None for clock in asdict(self).values()):
            raise ValueError("give at least one clock")


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    yield from judge_each(each_gpu(evidence), lambda gpu: judge_gpu(gpu, params))


def judge_gpu(gpu: Gpu, params: Params) -> Iterator[Finding]:
    subject = subject_of(gpu)
    clocks = [
        (clock, field, expected)
        for clock, expected in asdict(params).items()
        if expected is not None
        for field in fields(clock)
    ]
    if all(expected == "default" and unsupported(gpu, field) for _, field, expected in clocks):
        yield not_applicable(subject, why="this GPU has no application clocks")
    else:
        yield from aspect_findings(
            subject, [judge_clock(gpu, *clock_entry) for clock_entry in clocks], unit="MHz"
        )


def judge_clock(gpu: Gpu, clock: str, field: str, expected: int | str) -> Aspect:
    actual, target = getattr(gpu, field), expected
    if actual is None:
        return unread_aspect(gpu, field)
    if isinstance(expected, str):
        source = reference(clock, expected)
        target = getattr(gpu, source)
        if target is None:
            return unread_aspect(gpu, source)
        if target <= 0:
            return unknown_aspect(field, f"{source}: NVML says {target}")
    return aspect_if(label(field), actual == target, expected=target, actual=actual)


def fields(clock: str) -> tuple[str, ...]:
    """The evidence fields of a clock; for a locked clock, its lower and upper lock."""
    if clock.startswith("locked_"):
        base = clock.replace("locked_", "locked_clock_")
        return (f"{base}_min_mhz", f"{base}_max_mhz")
    return (f"app_clock_{clock}_mhz",)


def reference(clock: str, word: str) -> str:
    """The evidence field that `max` or `default` stands for."""
    domain = clock.removeprefix("locked_")
    return f"max_clock_{domain}_mhz" if word == "max" else f"app_clock_{domain}_default_mhz"


def label(field: str) -> str:
    """A field as findings name it: `graphics`, `locked graphics min`."""
    return (
        field.removesuffix("_mhz")
        .removeprefix("app_clock_")
        .replace("_clock_", "_")
        .replace("_", " ")
    )


def learn(evidence: Evidence) -> Value:
    gpus = answering_gpus(evidence)
    clocks = {
        "graphics": usual(gpu.app_clock_graphics_mhz for gpu in gpus),
        "memory": usual(gpu.app_clock_memory_mhz for gpu in gpus),
    }
    return {name: mhz for name, mhz in clocks.items() if mhz} or None


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(
        *IN_HAND,
        *reads_of("gpu.gpus[]", "app_clock_graphics_mhz", "app_clock_memory_mhz"),
        *reads_of("gpu.gpus[]", "app_clock_graphics_default_mhz", "app_clock_memory_default_mhz"),
        *reads_of("gpu.gpus[]", "max_clock_graphics_mhz", "max_clock_memory_mhz"),
        *reads_of("gpu.gpus[]", "locked_clock_graphics_min_mhz", "locked_clock_graphics_max_mhz"),
        *reads_of("gpu.gpus[]", "locked_clock_memory_min_mhz", "locked_clock_memory_max_mhz"),
    ),
    judge=judge,
    unasked="sites set clocks on purpose, and newer drivers report none: say gpu_clocks",
    learn=learn,
)
