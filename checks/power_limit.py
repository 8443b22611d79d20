"""Every GPU has the expected power limit.

**Why it matters.** Under load a GPU's clock follows its power limit. One board at 500 W among
boards at 700 W slows the whole job, and looks healthy otherwise. A limit that is too high overloads
the rack and its power supplies.

**Read from** NVML: nvmlDeviceGetPowerManagementLimit (the limit as set),
nvmlDeviceGetEnforcedPowerLimit (the lowest limit of all limiters),
nvmlDeviceGetPowerManagementDefaultLimit and ...LimitConstraints.

**Verdicts.** A GPU fails if its limit differs by more than the tolerance, or if the enforced limit
is below the set limit, because another limiter holds it down. The check judges the two separately.
If nodevet also read the BMC's power limit for the node, the finding names it.
If the expected limit is outside the board's range, the finding says so: the baseline is for another
board (A100-SXM4-80GB exists with 400 W and with 500 W; see `gpu_model`). A board whose limit cannot
be set is not applicable if `default` is expected, and unknown otherwise.

**To fix it** run `nvidia-smi -i UUID -pl 700` from a systemd unit at boot: a reboot resets the
limit, and with persistence mode off the limit is lost as soon as no process uses the GPU.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from nodevet.checking.aspects import each_fact
from nodevet.checking.named import judge_each, reads_of
from nodevet.checking.one_value import usual
from nodevet.evidence.across import IN_HAND, answering_gpus, each_gpu
from nodevet.evidence.bmc import BmcInfo
from nodevet.evidence.core import unread, unsupported
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, subject_of
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    Value,
    fail,
    not_applicable,
    ok,
    unknown,
)

Percent = Annotated[str, Meta(pattern=r"^[0-9]{1,2}(\.[0-9]+)?%$", title="a percentage such as 1%")]
Watts = Annotated[float, Meta(gt=0)]


OUTSIDE = "this board does not allow the limit: see gpu_model, and use the baseline for this board"

HELD = (
    "no driver setting raises it: check for a BMC power cap (`ipmitool dcmi power get_limit`), a "
    "failed power supply, and the module's limit in `nvidia-smi -q -d POWER`"
)


class Params(CheckParams):
    """`power_limit: 700`, `power_limit: default` or `power_limit: {watts: 700, tolerance: 1%}`"""

    bare: ClassVar[str] = "watts"

    watts: Watts | Literal["default"]
    tolerance: Percent | Annotated[float, Meta(ge=0)] = 0.0
    """In percent of the limit, or in watts."""

    def slack_mw(self, limit_mw: int) -> float:
        if isinstance(self.tolerance, str):
            return limit_mw * float(self.tolerance[:-1]) / 100
        return self.tolerance * 1000


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    bmc = evidence[BmcInfo].data
    cap = bmc.power_limit_w if bmc else None
    yield from judge_each(each_gpu(evidence), lambda gpu: judge_gpu(gpu, params, cap))


def judge_gpu(gpu: Gpu, params: Params, cap: float | None) -> Iterator[Finding]:
    """`cap`: the BMC's limit for the node, in watts."""
    subject, limit = subject_of(gpu), gpu.power_limit_mw
    if unsupported(gpu, "power_limit_mw") and params.watts == "default":
        yield not_applicable(subject, why="this GPU's power limit cannot be set")
    elif limit is None:
        yield unread(subject, gpu, "power_limit_mw")
    elif limit <= 0:
        yield unknown(subject, why=f"power_limit_mw: NVML says {limit}")
    elif params.watts == "default" and gpu.power_limit_default_mw is None:
        yield unread(subject, gpu, "power_limit_default_mw")
    else:
        default = params.watts == "default"
        expected = gpu.power_limit_default_mw if default else round(float(params.watts) * 1000)
        yield from judge_limits(gpu, limit, expected or 0, params, cap)


def judge_limits(
    gpu: Gpu, limit: int, expected: int, params: Params, cap: float | None
) -> Iterator[Finding]:
    """The set limit and the enforced limit; in milliwatts."""
    slack = params.slack_mw(expected)
    right = ok(subject_of(gpu), expected=watts(expected), actual=watts(limit), unit="W")
    set_finding = right if abs(limit - expected) <= slack else wrong_limit(gpu, limit, expected)
    enforced = judge_enforced(gpu, limit, min(limit, expected), slack, cap)
    yield from each_fact((set_finding, enforced or right))


def wrong_limit(gpu: Gpu, limit: int, expected: int) -> Finding:
    why = outside_text(gpu, expected)
    return fail(
        subject_of(gpu),
        expected=watts(expected),
        actual=watts(limit),
        unit="W",
        why=why,
        advice=OUTSIDE if why else "",
    )


def judge_enforced(
    gpu: Gpu, limit: int, expected: int, slack: float, cap: float | None
) -> Finding | None:
    """The finding about a wrong or unread enforced limit; None if it is right."""
    enforced = gpu.power_limit_enforced_mw
    if enforced is None:
        return unread(subject_of(gpu), gpu, "power_limit_enforced_mw")
    if enforced >= expected - slack:
        return None
    of_node = f", perhaps the BMC's power limit of {cap:g} W for the node" if cap else ""
    return fail(
        subject_of(gpu),
        expected=watts(expected),
        actual=watts(enforced),
        unit="W",
        why=f"set to {watts(limit):g} W, but another limiter holds it lower{of_node}",
        advice=HELD,
    )


def watts(milliwatts: int) -> int | float:
    return milliwatts // 1000 if milliwatts % 1000 == 0 else milliwatts / 1000


def outside_text(gpu: Gpu, limit_mw: int) -> str:
    """Says that the board does not allow this limit; empty if it does."""
    low, high = gpu.power_limit_min_mw, gpu.power_limit_max_mw
    if low is None or high is None or low <= limit_mw <= high:
        return ""
    return f"this board allows {watts(low):g}-{watts(high):g} W: is the baseline for another board?"


def learn(evidence: Evidence) -> Value:
    limit_mw = usual(gpu.power_limit_mw for gpu in answering_gpus(evidence))
    return limit_mw / 1000 if limit_mw and limit_mw % 1000 else limit_mw and limit_mw // 1000


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(
        *IN_HAND,
        *reads_of("gpu.gpus[]", "power_limit_mw", "power_limit_enforced_mw"),
        "gpu.gpus[].power_limit_default_mw",
    ),
    judge=judge,
    explains=("bmc",),
    unasked="for servers and workstations: `generic` has only checks for any node",
    learn=learn,
    actions={OUTSIDE: NeededAction.SITE, HELD: NeededAction.SITE},
)
