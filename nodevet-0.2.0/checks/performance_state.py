"""Every GPU is in one of the expected performance states.

**Why it matters.** A GPU that stays in P8 under load, or never leaves P0 when idle, ignores its
load: its clocks are locked, its firmware hangs, or a process that did not exit keeps it awake.

**Read from** NVML, nvmlDeviceGetPerformanceState: P0 is the fastest, P15 the slowest.

**Verdicts.** A GPU in any other state fails. The state follows the load within seconds: an idle GPU
is in P8 or P0, depending on its model, and most data-center boards always report P0. Use this check
only on nodes whose load you know. A GPU without performance states is not applicable.

**To fix it** find what holds the GPU in that state: `throttle_reasons`, locked clocks in
`gpu_clocks`, and the processes in `nvidia-smi`.
"""

from typing import Annotated, ClassVar, Literal, get_args

from msgspec import Meta

from nodevet.checking.one_value import gpu_value, ok_if
from nodevet.evidence.gpu import Gpu, subject_of
from nodevet.model import CheckParams, Finding, Severity, one_or_more, unknown

State = Literal[
    "P0", "P1", "P2", "P3", "P4", "P5", "P6", "P7",
    "P8", "P9", "P10", "P11", "P12", "P13", "P14", "P15",
]  # fmt: skip
STATES = get_args(State)
HELD = "see throttle_reasons, locked clocks (gpu_clocks) and the processes that hold the GPU"


class Params(CheckParams):
    """`performance_state: P0` or `performance_state: [P0, P8]`"""

    bare: ClassVar[str] = "one_of"

    one_of: State | Annotated[tuple[State, ...], Meta(min_length=1)]

    def __post_init__(self) -> None:
        one_or_more(self, "one_of")


def judge(gpu: Gpu, params: Params) -> Finding:
    subject, actual = subject_of(gpu), f"P{gpu.pstate}"
    if actual not in STATES:
        return unknown(subject, why=f"pstate: NVML returned {gpu.pstate}")
    right, expected = actual in params.one_of, " or ".join(params.one_of)
    return ok_if(right, subject, expected=expected, actual=actual, advice=HELD)


CHECK = gpu_value(
    Params,
    "pstate",
    judge=judge,
    lacking="this GPU has no performance states",
    unasked="the state follows the load: write it for nodes whose load you know",
    severity=Severity.WARNING,
)
