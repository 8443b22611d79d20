"""No GPU's PCIe link has repeated more packets than the baseline allows.

**Why it matters.** The link sends a damaged packet again: nothing is lost but time. A count far
above that of the other GPUs points to a riser, a retimer or a badly seated card. If the firmware
handles AER itself (see `pcie_errors`), this count is the only sign.

**Read from** NVML, nvmlDeviceGetPcieReplayCounter: since the GPU was reset or the driver loaded.

**Verdicts.** More than `maximum` fails. Some replays are normal: a healthy H100 node counts a
hundred or two after training its links. `maximum_per_hour` limits the mean growth of the count per
hour since boot; this mean is too low if the driver was loaded later. With `--sample` it also limits
the growth during the sample if that is long enough: one replay in ten seconds is not enough to
fail. A count that went back during the sample is unknown. With `--since` the check judges the
growth since the last look in the same way; a count that went back began again at 0. A GPU that does
not count replays is not applicable.

**To fix it** power the node off and reseat the GPU, then its riser, cable or retimer; swap it with
a neighbour to see whether the count follows it.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.before import growth_since
from nodevet.checking.named import judge_each
from nodevet.checking.pace import pace
from nodevet.checking.sampled_gpus import SAMPLED_GPUS, gpu_before
from nodevet.evidence.across import IN_HAND, each_gpu
from nodevet.evidence.core import unread, unsupported
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, board, subject_of
from nodevet.evidence.rates import Growth
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    Severity,
    Value,
    fail,
    not_applicable,
    ok,
    unknown,
)

RESEAT = (
    "see pcie_errors and pcie_link; power the node off and reseat the GPU, then its riser, cable "
    "or retimer. If the count keeps rising, swap it with a neighbour: if it follows, RMA the board"
)


class Params(CheckParams):
    """`pcie_replays: 1000` or `pcie_replays: {maximum: 1000, maximum_per_hour: 10}`"""

    bare: ClassVar[str] = "maximum"

    maximum: Annotated[int, Meta(ge=0)] | None = None
    """The most replays since the GPU was reset or the driver loaded."""
    maximum_per_hour: Annotated[float, Meta(ge=0)] | None = None
    """The largest growth per hour, since boot and while sampled."""

    def __post_init__(self) -> None:
        if self.maximum is None and self.maximum_per_hour is None:
            raise ValueError("give maximum, maximum_per_hour or both")


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    yield from judge_each(each_gpu(evidence), lambda gpu: judge_gpu(evidence, gpu, params))


def judge_gpu(evidence: Evidence, gpu: Gpu, params: Params) -> Iterator[Finding]:
    subject, count = subject_of(gpu), gpu.pcie_replay_counter
    if unsupported(gpu, "pcie_replay_counter"):
        yield not_applicable(subject, why="this GPU does not count replays")
    elif count is None or count < 0:
        yield unread(subject, gpu, "pcie_replay_counter")
    else:
        if params.maximum is not None:
            right, most = count <= params.maximum, f"at most {params.maximum}"
            yield verdict(gpu, right, expected=most, actual=count)
        if params.maximum_per_hour is not None:
            yield judge_pace(evidence, gpu, count, params.maximum_per_hour)


def judge_pace(evidence: Evidence, gpu: Gpu, count: int, most: float) -> Finding:
    hourly = pace(count, replay_growth(evidence, gpu, count), most, evidence)
    if hourly.right is None:
        return unknown(subject_of(gpu), why=f"pcie_replay_counter, per hour: {hourly.why}")
    return verdict(gpu, hourly.right, expected={"per hour": f"at most {most:g}"},
                   actual={"per hour": hourly.actual})  # fmt: skip


def replay_growth(evidence: Evidence, gpu: Gpu, count: int) -> Growth | None:
    """The growth since an earlier reading; None without one."""
    before = gpu_before(evidence, gpu)
    if before is None:
        return None
    if before.gpu is None:
        return Growth(why=before.why)
    return growth_since(before, before.gpu.pcie_replay_counter, count)


def verdict(gpu: Gpu, right: bool, *, expected: Value, actual: Value) -> Finding:
    if right:
        return ok(subject_of(gpu), expected=expected, actual=actual)
    return fail(
        subject_of(gpu), expected=expected, actual=actual, advice=RESEAT, details=board(gpu)
    )


CHECK = Check(
    params=Params,
    area=Area.PCIE,
    follows=("pcie_errors",),
    reads=(
        *IN_HAND,
        *SAMPLED_GPUS,
        "earlier.gpu.gpus[].pcie_replay_counter",
        "gpu.gpus[].pcie_replay_counter",
        "host.uptime_s",
    ),
    judge=judge,
    unasked="only the site knows how many are normal on its boards: write pcie_replays: 1000",
    severity=Severity.WARNING,
)
