"""Every GPU has the expected power limit.

**Why it matters.** Under load a GPU's clock follows its power limit. One board at 500 W among
boards at 700 W slows the whole job, and looks healthy otherwise. A limit that is too high
overloads the rack and its power supplies.

**Read from** NVML: nvmlDeviceGetPowerManagementLimit (as set), nvmlDeviceGetEnforcedPowerLimit
(the lowest that any limiter holds), nvmlDeviceGetPowerManagementDefaultLimit and
...LimitConstraints.

**Verdicts.** Fails if the limit is off by more than the tolerance, and if the enforced limit
is below the one that is set: something else holds it down. A limit outside what the board allows
is reported: the baseline is for another board (A100-SXM4-80GB exists with 400 W and with 500 W;
see `gpu_model`). A board whose limit cannot be set is not applicable if `default` is expected,
else unknown.

**To fix it** `nvidia-smi -pl 700`, from a systemd unit that runs at boot: the limit is lost at a
reboot, and with persistence mode off as soon as the GPU is unused.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from nodevet.checking.learning import usual
from nodevet.evidence.across import IN_HAND, answering, each_gpu
from nodevet.evidence.core import unread, unsupported
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, subject_of
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    Value,
    fail,
    not_applicable,
    ok,
    unknown,
)

Percent = Annotated[str, Meta(pattern=r"^[0-9]{1,2}(\.[0-9]+)?%$", title="a percentage such as 1%")]
Watts = Annotated[float, Meta(gt=0)]


OUTSIDE = "this board does not allow it: see gpu_model, and use the baseline for this board"

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

    def slack_mw(self, wanted_mw: int) -> float:
        if isinstance(self.tolerance, str):
            return wanted_mw * float(self.tolerance[:-1]) / 100
        return self.tolerance * 1000


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    for gpu in each_gpu(evidence):
        yield gpu if isinstance(gpu, Finding) else judge_gpu(gpu, params)


def judge_gpu(gpu: Gpu, params: Params) -> Finding:
    subject = subject_of(gpu)
    if unsupported(gpu, "power_limit_mw") and params.watts == "default":
        return not_applicable(subject, why="this GPU's power limit cannot be set")
    if gpu.power_limit_mw is None:
        return unread(subject, gpu, "power_limit_mw")
    if gpu.power_limit_mw <= 0:
        return unknown(subject, why=f"power_limit_mw: NVML says {gpu.power_limit_mw}")
    if params.watts != "default":
        wanted_mw = round(params.watts * 1000)
    elif gpu.power_limit_default_mw is not None:
        wanted_mw = gpu.power_limit_default_mw
    else:
        return unread(subject, gpu, "power_limit_default_mw")
    expected, slack = watts(wanted_mw), params.slack_mw(wanted_mw)
    if abs(gpu.power_limit_mw - wanted_mw) > slack:
        return fail(
            subject,
            expected=expected,
            actual=watts(gpu.power_limit_mw),
            unit="W",
            why=outside(gpu, wanted_mw),
            advice=OUTSIDE if outside(gpu, wanted_mw) else "",
        )
    if gpu.power_limit_enforced_mw is None:
        return unread(subject, gpu, "power_limit_enforced_mw")
    if gpu.power_limit_enforced_mw < wanted_mw - slack:
        return fail(
            subject,
            expected=expected,
            actual=watts(gpu.power_limit_enforced_mw),
            unit="W",
            why=f"set to {watts(gpu.power_limit_mw):g} W, but another limiter holds it lower",
            advice=HELD,
        )
    return ok(subject, expected=expected, actual=watts(gpu.power_limit_mw), unit="W")


def watts(milliwatts: int) -> int | float:
    return milliwatts // 1000 if milliwatts % 1000 == 0 else milliwatts / 1000


def outside(gpu: Gpu, wanted_mw: int) -> str:
    """That no such limit can be set on this board, where that is so."""
    low, high = gpu.power_limit_min_mw, gpu.power_limit_max_mw
    if low is None or high is None or low <= wanted_mw <= high:
        return ""
    return f"this board allows {watts(low):g}-{watts(high):g} W: is the baseline for another board?"


def learn(evidence: Evidence) -> Value:
    found = usual(gpu.power_limit_mw for gpu in answering(evidence))
    return found / 1000 if found and found % 1000 else found and found // 1000


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(
        *IN_HAND,
        "gpu.gpus[].power_limit_mw",
        "gpu.gpus[].power_limit_enforced_mw",
        "gpu.gpus[].power_limit_default_mw",
    ),
    judge=judge,
    learn=learn,
)
