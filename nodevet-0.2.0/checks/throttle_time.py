"""No GPU was throttled for longer than the baseline allows since its driver was loaded.

**Why it matters.** A GPU that overheats under load has cooled down when someone looks at it, and
`throttle_reasons` reads only the present moment. These counters show how long each reason was
active in the nights before.

**Read from** NVML, the fields NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN,
..._HW_THERM_SLOWDOWN, ..._SW_POWER_CAP and ..._HW_POWER_BRAKE_SLOWDOWN: nanoseconds that begin at 0
when the driver is loaded.

**Verdicts.** The check judges the reasons for which the baseline sets a maximum in seconds. A past
event stays in these counters until the driver is loaded again: allow some seconds, or reload the
driver after the cooling was fixed. A reason whose time this GPU or driver does not report is not
applicable.

**To fix it** thermal: check fans, airflow, heat sink, inlet temperature; see `thermal` for the
present margin. Power cap: a busy GPU reaches its power limit, which is not a fault by itself: allow
as much as its jobs need, and compare the limit with `power_limit`. Power brake: check power
supplies and their redundancy, and the BMC's power cap.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated

from msgspec import Meta

from nodevet.checking.named import judge_each
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
NS = 10**9
REASONS = {
    "sw_thermal_s": "throttled_sw_thermal_ns",
    "hw_thermal_s": "throttled_hw_thermal_ns",
    "power_cap_s": "throttled_power_cap_ns",
    "power_brake_s": "throttled_power_brake_ns",
}
COOLING = (
    "look at its heat sink, fans, airflow and inlet temperature, and watch throttle_reasons "
    "under load; the count begins again when the driver is loaded"
)
SUPPLY = (
    "`ipmitool sel list` and `ipmitool sdr type 'Power Supply'` show a failed or unplugged "
    "supply; if there is none, look at the BMC's power cap"
)

CAPPED = "compare its power limit with the board's default: `nodevet explain power_limit`"
ADVICE = {
    "sw_thermal_s": COOLING,
    "hw_thermal_s": COOLING,
    "power_cap_s": CAPPED,
    "power_brake_s": SUPPLY,
}

Most = Annotated[float, Meta(ge=0)]


class Params(CheckParams):
    """`throttle_time: {hw_thermal_s: 60, power_brake_s: 0}`"""

    sw_thermal_s: Most | None = None
    """The most seconds for which the driver may have slowed the GPU down because of heat."""
    hw_thermal_s: Most | None = None
    """The most seconds for which the hardware may have slowed it down because of heat."""
    power_cap_s: Most | None = None
    """The most seconds at the power limit."""
    power_brake_s: Most | None = None
    """The most seconds under the platform's power brake."""

    def __post_init__(self) -> None:
        if not limits(self):
            raise ValueError("give the most seconds for at least one reason")


def limits(params: Params) -> dict[str, float]:
    """The most seconds by reason."""
    seconds = {name: getattr(params, name) for name in REASONS}
    return {name: most for name, most in seconds.items() if most is not None}


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    yield from judge_each(each_gpu(evidence), lambda gpu: judge_gpu(gpu, limits(params)))


def judge_gpu(gpu: Gpu, most: dict[str, float]) -> Iterator[Finding]:
    subject = subject_of(gpu)
    times = {name: getattr(gpu, REASONS[name]) for name in most}
    seconds_by_reason = {
        name: round(ns / NS, 1) for name, ns in times.items() if ns is not None and ns >= 0
    }
    above = {name: seconds for name, seconds in seconds_by_reason.items() if seconds > most[name]}
    unreported = [name for name in most if gpu.errors.get(REASONS[name]) in NOT_REPORTED]
    unread = [name for name in most if name not in seconds_by_reason and name not in unreported]
    if above:
        yield fail(
            subject,
            expected={name: f"at most {most[name]:g}" for name in above},
            actual=above,
            advice=advice(above),
            details=board(gpu),
        )
    if unread:
        why = "; ".join(f"{REASONS[name]}: {gpu.why(REASONS[name])}" for name in unread)
        yield unknown(subject, why=why)
    elif seconds_by_reason and not above:
        expected = {name: f"at most {most[name]:g}" for name in seconds_by_reason}
        yield ok(subject, expected=expected, actual=seconds_by_reason)
    if unreported:
        why = f"this GPU or driver does not report: {', '.join(unreported)}"
        yield not_applicable(subject, why=why)


def advice(above: Iterable[str]) -> str:
    """The advice for these reasons."""
    return ". ".join(dict.fromkeys(ADVICE[name] for name in above))


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(*IN_HAND, *(f"gpu.gpus[].{field}" for field in REASONS.values())),
    judge=judge,
    unasked="the counters keep past events: write how many seconds are normal",
    learn=lambda evidence: None,
    severity=Severity.WARNING,
)
