"""Every GPU is in the expected compute mode.

**Why it matters.** In EXCLUSIVE_PROCESS mode a second process on the GPU fails to start. MPS needs
this, but it breaks jobs that share a GPU. In PROHIBITED mode no job starts at all. In DEFAULT mode
a stray process can share a GPU with a job, and no error shows it.

**Read from** NVML, nvmlDeviceGetComputeMode.

**Verdicts.** A GPU without compute modes is not applicable if DEFAULT is expected; otherwise it
fails.

**To fix it** `nvidia-smi -i BUS_ID -c DEFAULT` (or another mode). The GPU loses the mode at the
next reboot and, with persistence mode off, as soon as no process uses the GPU.
"""

from typing import ClassVar, Literal

from nodevet.checking.one_value import gpu_value, usual_of
from nodevet.evidence.gpu import Gpu, subject_of
from nodevet.model import CheckParams, Finding, NeededAction, compare, fail, not_applicable

NO_MODES = "no setting changes this: give nodes with this GPU a baseline without compute_mode"


class Params(CheckParams):
    """`compute_mode: DEFAULT`"""

    bare: ClassVar[str] = "mode"

    mode: Literal["DEFAULT", "EXCLUSIVE_PROCESS", "PROHIBITED", "EXCLUSIVE_THREAD"]


def judge(gpu: Gpu, params: Params) -> Finding:
    return compare(subject_of(gpu), expected=params.mode, actual=gpu.compute_mode)


def judge_unsupported(gpu: Gpu, params: Params) -> Finding:
    subject = subject_of(gpu)
    if params.mode == "DEFAULT":
        return not_applicable(subject, why="this GPU has no compute modes")
    return fail(subject, expected=params.mode, actual="not supported", advice=NO_MODES)


CHECK = gpu_value(
    Params,
    "compute_mode",
    judge=judge,
    lacking=judge_unsupported,
    learn=usual_of("compute_mode"),
    unasked="for servers: elsewhere say compute_mode: DEFAULT",
    actions={NO_MODES: NeededAction.SITE},
)
