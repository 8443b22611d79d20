"""No GPU lowers its clocks for a reason that the baseline does not allow.

**Why it matters.** A GPU that is too hot, or whose power supply asserts the power
brake, runs at a fraction of its clock, and in a synchronous job every other GPU
waits for it. Temperatures and power draw alone do not show it.

**Read from** NVML, nvmlDeviceGetCurrentClocksEventReasons (before driver 535:
...ThrottleReasons), the reasons in force at the moment of reading.

**Verdicts.** Without `allow`, these are no fault: gpu_idle,
applications_clocks_setting, sw_power_cap (a busy GPU at its power limit) and
display_clock_setting. A bit that has no name yet is wrong too, shown by its value.
A GPU that reports no reasons is exempt. A reason that comes and goes is seen only
while it holds: look again under load.

**To put it right** hw_slowdown and hw_thermal_slowdown: fans, airflow, heat sink,
inlet temperature. hw_power_brake_slowdown: power supplies and their redundancy.
sw_thermal_slowdown: cooling, before the hardware steps in. sync_boost: the sync
boost group in DCGM.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from nodevet.evidence import Evidence, each_gpu, subject_of, unread, unsupported
from nodevet.model import Check, Finding, Want, exempt, ok, wrong

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

ADVICE: dict[str, str] = {
    "hw_slowdown": "check cooling and power supplies",
    "sw_thermal_slowdown": "check fans, airflow and inlet temperature",
    "hw_thermal_slowdown": "check fans, airflow and the heat sink",
    "hw_power_brake_slowdown": "check the power supplies and their redundancy",
}


class ThrottleReasons(Want):
    """`throttle_reasons: {}` or `throttle_reasons: [gpu_idle, sw_power_cap]`"""

    bare: ClassVar[str] = "allow"

    allow: Annotated[tuple[Reason, ...], Field(strict=False)] = (
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


def judge(evidence: Evidence, want: ThrottleReasons) -> Iterator[Finding]:
    for gpu in each_gpu(evidence):
        if isinstance(gpu, Finding):
            yield gpu
        elif unsupported(gpu, "event_reasons"):
            yield exempt(subject_of(gpu), why="this GPU reports no clock event reasons")
        elif gpu.event_reasons is None or gpu.event_reasons < 0:
            yield unread(subject_of(gpu), gpu, "event_reasons")
        else:
            found = [name for name in names(gpu.event_reasons) if name not in want.allow]
            if not found:
                yield ok(subject_of(gpu), expected=[], actual=[])
            else:
                advice = next((ADVICE[name] for name in reversed(found) if name in ADVICE), "")
                yield wrong(subject_of(gpu), expected=[], actual=found, advice=advice)


CHECK = Check(wants=ThrottleReasons, reads=("gpu.gpus[].event_reasons",), judge=judge)
