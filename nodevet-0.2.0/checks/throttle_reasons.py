"""No GPU is throttled for a reason that the baseline does not allow.

**Why it matters.** A GPU that is too hot, or that the platform slows with the power brake, runs at
a fraction of its clock, and in a synchronous job every other GPU waits for it. Temperatures and
power draw alone do not show it.

**Read from** NVML, nvmlDeviceGetCurrentClocksEventReasons (before driver 535: ...ThrottleReasons),
the active reasons at the moment of reading.

**Verdicts.** Without `allow`, these reasons are not a fault: gpu_idle, applications_clocks_setting,
sw_power_cap (a busy GPU at its power limit) and display_clock_setting. A bit without a name in
nodevet fails too, and the finding shows its value. A GPU that reports no reasons is not applicable.
The check sees an intermittent reason only while it is active: check again under load.

**To fix it** hw_slowdown and hw_thermal_slowdown: check fans, airflow, heat sink, inlet
temperature. hw_power_brake_slowdown: check power supplies and their redundancy.
sw_thermal_slowdown: check cooling before the hardware throttles. sync_boost: check the sync boost
group in DCGM.
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
    "`ipmitool sdr type 'Power Supply'` show a failed or unplugged supply; if there is none, "
    "look at the BMC's power cap",
    "hw_thermal_slowdown": "drain the node before the GPU shuts down: the hardware is throttling",
    "hw_slowdown": "heat, power or the power brake: check cooling and power supplies",
    "sw_thermal_slowdown": "the driver slows it down so that it does not overheat",
    "sync_boost": "another GPU of its sync boost group is slower: see that GPU, or remove the "
    "group in DCGM",
    "sw_power_cap": "it is at its power limit: see power_limit; if the limit is right, the "
    "baseline may allow this reason",
    "applications_clocks_setting": "its application clocks are set below the maximum: see "
    "gpu_clocks",
    "display_clock_setting": "a display holds the clocks: end the processes that draw on this GPU",
    "gpu_idle": "nothing runs on it: check again under load, or allow it",
}
HOT = ("hw_thermal_slowdown", "hw_slowdown", "sw_thermal_slowdown")
UNNAMED = "`nvidia-smi -q -d PERFORMANCE` of a newer driver may name this reason"
HOTTER_C = 10  # hotter than every other GPU: the air of the node is not the cause


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
    """The temperatures that were read, in degrees Celsius, the lowest first."""
    return sorted(gpu.temperature_gpu_c for gpu in gpus if gpu.temperature_gpu_c is not None)


def advice_for(gpu: Gpu, reasons: Sequence[str], heats: Sequence[int]) -> str:
    name = next((name for name in ADVICE if name in reasons), "")
    if name not in HOT:
        return ADVICE.get(name, UNNAMED)
    return f"{ADVICE[name]}. {heat(gpu, heats)}"


def heat(gpu: Gpu, heats: Sequence[int]) -> str:
    """Where to look for the cause, by the temperatures of this GPU and the others."""
    own, others = gpu.temperature_gpu_c, other_temperatures(gpu, heats)
    if own is None or not others:
        return "Check fans, airflow, inlet temperature and its heat sink"
    if own >= others[-1] + HOTTER_C:
        return (
            "It is hotter than the others: look at the GPU itself, its heat sink, its fan and "
            "its airflow"
        )
    return (
        "The others are nearly as hot: check the cooling of the whole node: fans, blanking "
        "panels, inlet temperature"
    )


def other_temperatures(gpu: Gpu, heats: Sequence[int]) -> list[int]:
    """The temperatures of the other GPUs, the lowest first. `heats`: those of all GPUs."""
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
