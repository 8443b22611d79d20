"""Every GPU is in the expected compute mode.

**Why it matters.** In EXCLUSIVE_PROCESS a second process on the GPU fails to start, which is
intended under MPS and breaks jobs that share a GPU; in PROHIBITED no job starts at all. In
DEFAULT a stray process can share a GPU with a job unseen.

**Read from** NVML, nvmlDeviceGetComputeMode.

**Verdicts.** A GPU without compute modes is not applicable if DEFAULT is expected, else it fails.

**To fix it** `nvidia-smi -c DEFAULT` (or another mode). The mode is lost at the next reboot, and
with persistence mode off as soon as the GPU is unused.
"""

from collections.abc import Iterator
from typing import ClassVar, Literal

from nodevet.checking.learning import usual
from nodevet.evidence.across import IN_HAND, answering, each_gpu
from nodevet.evidence.core import unread, unsupported
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import subject_of
from nodevet.model import Area, Check, CheckParams, Finding, Value, compare, fail, not_applicable


class Params(CheckParams):
    """`compute_mode: DEFAULT`"""

    bare: ClassVar[str] = "mode"

    mode: Literal["DEFAULT", "EXCLUSIVE_PROCESS", "PROHIBITED", "EXCLUSIVE_THREAD"]


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    for gpu in each_gpu(evidence):
        if isinstance(gpu, Finding):
            yield gpu
        elif unsupported(gpu, "compute_mode") and params.mode == "DEFAULT":
            yield not_applicable(subject_of(gpu), why="this GPU has no compute modes")
        elif unsupported(gpu, "compute_mode"):
            advice = (
                "no setting changes this: give nodes with this GPU a baseline without compute_mode"
            )
            yield fail(subject_of(gpu), expected=params.mode, actual="not supported", advice=advice)
        elif gpu.compute_mode is None:
            yield unread(subject_of(gpu), gpu, "compute_mode")
        else:
            yield compare(subject_of(gpu), expected=params.mode, actual=gpu.compute_mode)


def learn(evidence: Evidence) -> Value:
    return usual(gpu.compute_mode for gpu in answering(evidence))


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(*IN_HAND, "gpu.gpus[].compute_mode"),
    judge=judge,
    unasked="for servers: elsewhere say compute_mode: DEFAULT",
    learn=learn,
)
