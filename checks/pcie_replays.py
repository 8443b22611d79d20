"""No GPU's PCIe link has repeated more packets than the baseline allows.

**Why it matters.** A packet that arrives damaged is sent again: nothing is lost but time. A count
that runs away from that of the other GPUs points to a riser, a retimer or a seat, and where the
firmware keeps AER to itself (see `pcie_errors`) it is the one sign of it.

**Read from** NVML, nvmlDeviceGetPcieReplayCounter: since the GPU was reset or the driver loaded.

**Verdicts.** More than `maximum` fails. Some replays are ordinary: a healthy H100 node counts a
hundred or two of them after training its links. A GPU that does not count them is not applicable.

**To fix it** power the node off and reseat the GPU, then its riser, cable or retimer; swap it with
a neighbour to see whether the count follows it.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.evidence.across import IN_HAND, each_gpu
from nodevet.evidence.core import unread, unsupported
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, board, subject_of
from nodevet.model import Area, Check, CheckParams, Finding, Severity, fail, not_applicable, ok

RESEAT = (
    "see pcie_errors and pcie_link; power the node off and reseat the GPU, then its riser, cable "
    "or retimer. If the count keeps rising, swap it with a neighbour: if it follows, RMA the board"
)


class Params(CheckParams):
    """`pcie_replays: 1000`"""

    bare: ClassVar[str] = "maximum"

    maximum: Annotated[int, Meta(ge=0)]


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    for gpu in each_gpu(evidence):
        yield gpu if isinstance(gpu, Finding) else judge_gpu(gpu, params.maximum)


def judge_gpu(gpu: Gpu, maximum: int) -> Finding:
    subject, count = subject_of(gpu), gpu.pcie_replay_counter
    if unsupported(gpu, "pcie_replay_counter"):
        return not_applicable(subject, why="this GPU does not count replays")
    if count is None or count < 0:
        return unread(subject, gpu, "pcie_replay_counter")
    if count <= maximum:
        return ok(subject, expected=f"at most {maximum}", actual=count)
    return fail(
        subject, expected=f"at most {maximum}", actual=count, advice=RESEAT, details=board(gpu)
    )


CHECK = Check(
    params=Params,
    area=Area.PCIE,
    follows=("pcie_errors",),
    reads=(*IN_HAND, "gpu.gpus[].pcie_replay_counter"),
    judge=judge,
    severity=Severity.WARNING,
)
