"""Every GPU has MIG on, or off, as the baseline says.

**Why it matters.** A GPU in MIG mode offers only its slices: a job that expects
the whole GPU finds no device, or a seventh of the memory, and NVLink peers are
gone. The other way round a scheduler that hands out slices has none.

**Read from** NVML, nvmlDeviceGetMigMode: the mode now and the one after the next
reset.

**Verdicts.** A mode that is to change at the next reset is wrong whichever of the
two is expected. A GPU that cannot do MIG is exempt where off is expected, else wrong.

**To put it right** end all work on the GPU, then `nvidia-smi -mig 0` (or
`-mig 1`); where the change stays pending, reset the GPU or reboot. Layouts are
kept with NVIDIA's mig-parted.
"""

from collections.abc import Iterator
from typing import ClassVar

from nodevet.evidence.across import IN_HAND, each_gpu
from nodevet.evidence.core import unread, unsupported
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, subject_of
from nodevet.model import Check, CheckParams, Finding, compare, fail, not_applicable


class Params(CheckParams):
    """`mig_mode: false`"""

    bare: ClassVar[str] = "enabled"

    enabled: bool


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    for gpu in each_gpu(evidence):
        yield gpu if isinstance(gpu, Finding) else judge_gpu(gpu, params.enabled)


def judge_gpu(gpu: Gpu, expected: bool) -> Finding:
    subject = subject_of(gpu)
    if unsupported(gpu, "mig_current"):
        if expected:
            return fail(
                subject,
                expected=True,
                actual="not supported",
                why="this GPU cannot do MIG",
                advice="no setting helps: see gpu_model, and whether the baseline is for this GPU",
            )
        return not_applicable(subject, why="this GPU cannot do MIG")
    if gpu.mig_current is None:
        return unread(subject, gpu, "mig_current")
    if gpu.mig_current is not expected:
        waits = "set, and waits for a GPU reset or reboot" if gpu.mig_pending is expected else ""
        return compare(subject, expected=expected, actual=gpu.mig_current, why=waits)
    if gpu.mig_pending is None:
        return unread(subject, gpu, "mig_pending")
    if gpu.mig_pending is not expected:
        return fail(
            subject,
            expected=expected,
            actual=gpu.mig_pending,
            why="from the next reset or reboot on",
        )
    return compare(subject, expected=expected, actual=gpu.mig_current)


CHECK = Check(
    params=Params,
    reads=(*IN_HAND, "gpu.gpus[].mig_current", "gpu.gpus[].mig_pending"),
    judge=judge,
)
