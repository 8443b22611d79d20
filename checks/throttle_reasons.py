"""No GPU is throttled for a reason that the baseline does not allow.

**Why it matters.** A GPU that is too hot, or that the platform slows with the power brake, runs
at a fraction of its clock, and in a synchronous job every other GPU waits for it. Temperatures
and power draw alone do not show it.

**Read from** NVML, nvmlDeviceGetCurrentClocksEventReasons (before driver 535:
...ThrottleReasons), the reasons in force at the moment of reading.

**Verdicts.** Without `allow`, these are not a fault: gpu_idle, applications_clocks_setting,
sw_power_cap (a busy GPU at its power limit) and display_clock_setting. A bit that nodevet has no
name for fails too, shown by its value. A GPU that reports no reasons is not applicable. A reason
that comes and goes is seen only while it holds: look again under load.

**To fix it** hw_slowdown and hw_thermal_slowdown: fans, airflow, heat sink, inlet temperature.
hw_power_brake_slowdown: power supplies and their redundancy. sw_thermal_slowdown: cooling, before
the hardware steps in. sync_boost: the sync boost group in DCGM.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Literal

from nodevet.evidence.across import IN_HAND, each_gpu
from nodevet.evidence.core import unread, unsupported
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, board, subject_of
from nodevet.model import Area, Check, CheckParams, Finding, fail, not_applicable, ok

Reason = Literal[
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock_setting",
]

BITS: dict[int, Reason] = {  # nvmlClocksEventReason*, nvml.h
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}

ADVICE: dict[str, str] = {  # the most urgent first
    "hw_power_brake_slowdown": "the platform asserts the power brake: `ipmitool sel list` and "
    "`ipmitool sdr type 'Power Supply'` show a supply that failed or is unplugged; else look at "
    "the BMC's power cap",
    "hw_thermal_slowdown": "drain the node before the GPU shuts down: the hardware is throttling",
    "hw_slowdown": "too hot, too much power, or the power brake: check cooling and power supplies",
    "sw_thermal_slowdown": "the driver is keeping it from overheating before the hardware has to",
    "sync_boost": "another GPU of its sync boost group is slower: see that one, or end the group "
    "in DCGM",
    "sw_power_cap": "it is at its power limit: see power_limit; if the limit is right, so is this, "
    "and the baseline may allow it",
    "applications_clocks_setting": "application clocks below the maximum are set: see gpu_clocks",
    "display_clock_setting": "a display holds the clocks: end what draws on this GPU",
    "gpu_idle": "nothing runs on it: check again under load, or allow it",
}
HOT = ("hw_thermal_slowdown", "hw_slowdown", "sw_thermal_slowdown")
UNNAMED = "`nvidia-smi -q -d PERFORMANCE` of the driver that knows this reason names it"
HOTTER_C = 10  # than every other GPU: then it is not the air of the whole node


class Params(CheckParams):
    """`throttle_reasons: {}` or `throttle_reasons: [gpu_idle, sw_power_cap]`"""

    bare: ClassVar[str] = "allow"

    allow: tuple[Reason, ...] = (
        "gpu_idle",
        "applications_clocks_setting",
        "sw_power_cap",
        "display_clock_setting",
    )


def names(mask: int) -> list[str]:
    """The reasons in a mask, the lowest bit first.

    >>> names(0x201)
    ['gpu_idle', '0x200']
    """
    bits = [1 << place for place in range(mask.bit_length()) if mask >> place & 1]
    return [BITS.get(bit, hex(bit)) for bit in bits]


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    heats = temperatures(gpu for gpu in each_gpu(evidence) if not isinstance(gpu, Finding))
    for gpu in each_gpu(evidence):
        if isinstance(gpu, Finding):
            yield gpu
        elif unsupported(gpu, "event_reasons"):
            yield not_applicable(subject_of(gpu), why="this GPU reports no clock event reasons")
        elif gpu.event_reasons is None or not 0 <= gpu.event_reasons < 1 << 64:
            yield unread(subject_of(gpu), gpu, "event_reasons")
        else:
            reasons = [name for name in names(gpu.event_reasons) if name not in params.allow]
            if not reasons:
                yield ok(subject_of(gpu), expected=[], actual=[])
            else:
                yield fail(
                    subject_of(gpu),
                    expected=[],
                    actual=reasons,
                    advice=advice_for(gpu, reasons, heats),
                    details={**board(gpu), **temperature_details(gpu, heats)},
                )


def temperatures(gpus: Iterable[Gpu]) -> list[int]:
    """Degrees Celsius of those that were read, the lowest first."""
    return sorted(gpu.temperature_gpu_c for gpu in gpus if gpu.temperature_gpu_c is not None)


def advice_for(gpu: Gpu, reasons: Sequence[str], heats: Sequence[int]) -> str:
    name = next((name for name in ADVICE if name in reasons), "")
    if name not in HOT:
        return ADVICE.get(name, UNNAMED)
    return f"{ADVICE[name]}. {heat(gpu, heats)}"


def heat(gpu: Gpu, heats: Sequence[int]) -> str:
    """Where to look for the cause, by what the temperatures of all GPUs tell, this one's too."""
    own, others = gpu.temperature_gpu_c, other_temperatures(gpu, heats)
    if own is None or not others:
        return "Check fans, airflow, inlet temperature and its heat sink"
    if own >= others[-1] + HOTTER_C:
        return (
            "It is hotter than the others: look at the GPU itself, its heat sink, its fan and "
            "what blocks its airflow"
        )
    return (
        "The others are nearly as hot: check what cools the whole node: fans, blanking panels, "
        "inlet temperature"
    )


def other_temperatures(gpu: Gpu, heats: Sequence[int]) -> list[int]:
    """The temperatures of the other GPUs, of those of all, the lowest first."""
    others = list(heats)
    if gpu.temperature_gpu_c is not None:
        others.remove(gpu.temperature_gpu_c)
    return others


def temperature_details(gpu: Gpu, heats: Sequence[int]) -> dict[str, str]:
    """The temperatures of this GPU and of the others, as far as they were read."""
    own, others = gpu.temperature_gpu_c, other_temperatures(gpu, heats)
    texts = {} if own is None else {"temperature": f"{own} °C"}
    if others:
        span = dict.fromkeys((others[0], others[-1]))
        texts["other GPUs here"] = f"{' to '.join(map(str, span))} °C"
    return texts


CHECK = Check(
    params=Params, area=Area.GPU, reads=(*IN_HAND, "gpu.gpus[].event_reasons"), judge=judge
)
