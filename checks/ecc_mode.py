"""Every GPU's memory has ECC on, or off, as the baseline says.

**Why it matters.** Without ECC a flipped bit in GPU memory silently becomes a
wrong result. Boards of one kind that differ in it also differ in usable memory
and bandwidth, so a job that fits on one does not fit on the next.

**Read from** NVML, nvmlDeviceGetEccMode: the mode now and the one after the next
reset.

**Verdicts.** A mode that is to change at the next reset is wrong whichever of the
two is expected. A GPU without ECC is exempt where off is expected, else wrong.

**To put it right** `nvidia-smi -e 1` (or `-e 0`), then reset the GPU or reboot.
The mode is kept in the board's InfoROM.
"""

from collections.abc import Iterator
from typing import ClassVar

from nodevet.evidence.across import IN_HAND, each_gpu
from nodevet.evidence.core import unread, unsupported
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, subject_of
from nodevet.model import Check, CheckParams, Finding, compare, fail, not_applicable


class Params(CheckParams):
    """`ecc_mode: true`"""

    bare: ClassVar[str] = "enabled"

    enabled: bool


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    for gpu in each_gpu(evidence):
        yield gpu if isinstance(gpu, Finding) else judge_gpu(gpu, params.enabled)


def judge_gpu(gpu: Gpu, expected: bool) -> Finding:
    subject = subject_of(gpu)
    if unsupported(gpu, "ecc_current"):
        if expected:
            return fail(
                subject,
                expected=True,
                actual="not supported",
                why="this GPU has no ECC",
                advice="no setting helps: see gpu_model, and whether the baseline is for this GPU",
            )
        return not_applicable(subject, why="this GPU has no ECC")
    if gpu.ecc_current is None:
        return unread(subject, gpu, "ecc_current")
    if gpu.ecc_current is not expected:
        waits = "set, and waits for a GPU reset or reboot" if gpu.ecc_pending is expected else ""
        return compare(subject, expected=expected, actual=gpu.ecc_current, why=waits)
    if gpu.ecc_pending is None:
        return unread(subject, gpu, "ecc_pending")
    if gpu.ecc_pending is not expected:
        return fail(
            subject,
            expected=expected,
            actual=gpu.ecc_pending,
            why="from the next reset or reboot on",
        )
    return compare(subject, expected=expected, actual=gpu.ecc_current)


CHECK = Check(
    params=Params,
    reads=(*IN_HAND, "gpu.gpus[].ecc_current", "gpu.gpus[].ecc_pending"),
    judge=judge,
)
