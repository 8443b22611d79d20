"""Every GPU draws as much power as a working board of its model.

**Why it matters.** A reading outside the board's possible range comes from a failed power sensor or
a failed power stage. The board uses this reading to hold its power limit. If the sensor reads too
low, the board runs too hot; if it reads too high, the board is throttled for no reason.

**Read from** NVML, nvmlDeviceGetPowerUsage: the mean of one second; on GA100 and before Ampere, the
instantaneous value.

**Verdicts.** A GPU fails below `minimum` and above `maximum`, in watts. The range must hold for an
idle GPU and for a busy one: NVIDIA's Health Validation uses 65 to 1500 W for GB200 and GB300. A GPU
that does not measure its power is not applicable.

**To fix it** no setting changes a sensor: drain the node and power it off and on; if the reading
stays, run nvidia-bug-report.sh and have the board replaced.
"""

from typing import Annotated

from msgspec import Meta

from nodevet.checking.expected import is_within, span
from nodevet.checking.one_value import gpu_value
from nodevet.evidence.gpu import Gpu, board, subject_of
from nodevet.model import CheckParams, Finding, NeededAction, fail, ok

Watts = Annotated[float, Meta(ge=0)]

SENSOR = (
    "drain the node and power it off and on; if the reading stays outside the range, run "
    "nvidia-bug-report.sh and have the board replaced"
)


class Params(CheckParams):
    """`power_draw: {minimum: 65, maximum: 1500}` or `power_draw: {maximum: 750}`"""

    minimum: Watts | None = None
    """The least power that an idle board draws, in watts."""
    maximum: Watts | None = None
    """The most power that a busy board draws, in watts."""

    def __post_init__(self) -> None:
        if self.minimum is None and self.maximum is None:
            raise ValueError("give a minimum, a maximum, or both")
        if self.minimum is not None and self.maximum is not None and self.maximum < self.minimum:
            raise ValueError("the minimum is above the maximum")


def judge(gpu: Gpu, params: Params) -> Finding:
    subject, expected = subject_of(gpu), span(params.minimum, params.maximum)
    watts = (gpu.power_draw_mw or 0) / 1000
    if is_within(watts, params.minimum, params.maximum):
        return ok(subject, expected=expected, actual=watts, unit="W")
    return fail(
        subject, expected=expected, actual=watts, unit="W", advice=SENSOR, details=board(gpu)
    )


CHECK = gpu_value(
    Params,
    "power_draw_mw",
    judge=judge,
    lacking="this GPU does not measure its power",
    unasked="boards differ: write the least that yours draw when idle and the most when busy",
    actions={SENSOR: NeededAction.POWER_CYCLE},
)
