"""Every GPU's BAR1 covers its memory, or is as large as the baseline requires.

**Why it matters.** BAR1 is the window through which CPU, NICs and other GPUs reach a GPU's memory.
If the firmware left it at 256 MiB (no Resizable BAR, no Above 4G Decoding), GPUDirect RDMA and
peer-to-peer copies of large buffers fail or go through the host's memory.

**Read from** NVML: nvmlDeviceGetBAR1MemoryInfo and nvmlDeviceGetMemoryInfo.

**Verdicts.** By default, a BAR1 that is smaller than the GPU's memory fails. With `minimum_mib`, a
BAR1 that is smaller than `minimum_mib` fails. A GPU without BAR1 is not applicable. Neither is a
vGPU, because its host decides the size.

**To fix it** enable Above 4G Decoding and Resizable BAR in the BIOS. If the BIOS does not offer
them, update the BIOS and the VBIOS. Give a virtual machine enough 64-bit MMIO space. Many boards
(T4, GeForce before Ampere) cannot have more than 256 MiB: set `minimum_mib` for them.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.named import reads_of
from nodevet.evidence.across import IN_HAND, each_gpu
from nodevet.evidence.core import unread, unsupported
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, board, subject_of
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    Severity,
    fail,
    not_applicable,
    ok,
    unknown,
)

MIB = 1 << 20
BIOS = (
    "enable Above 4G Decoding and Resizable BAR in the BIOS and reboot; `lspci -vv` shows what the "
    "GPU offers (Physical Resizable BAR). In a virtual machine, enlarge its 64-bit MMIO window"
)


class Params(CheckParams):
    """`bar1: {}` or `bar1: 65536`"""

    bare: ClassVar[str] = "minimum_mib"

    minimum_mib: Annotated[int, Meta(ge=1)] | None = None
    """The smallest size that is allowed; without it BAR1 must cover the GPU's memory."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    for gpu in each_gpu(evidence):
        yield gpu if isinstance(gpu, Finding) else judge_gpu(gpu, params.minimum_mib)


def judge_gpu(gpu: Gpu, minimum_mib: int | None) -> Finding:
    subject = subject_of(gpu)
    if gpu.virtualization_mode == "VGPU":
        return not_applicable(subject, why="a vGPU: its host decides the size of BAR1")
    if unsupported(gpu, "bar1_total_b"):
        return not_applicable(subject, why="this GPU has no BAR1")
    if gpu.bar1_total_b is None:
        return unread(subject, gpu, "bar1_total_b")
    if gpu.bar1_total_b < 0:
        return unknown(subject, why=f"bar1_total_b: {gpu.bar1_total_b} is not a valid size")
    memory = max(gpu.memory_total_b or 0, 0) // MIB
    if minimum_mib is None and not memory:
        return unread(subject, gpu, "memory_total_b")
    least = minimum_mib or memory
    size = gpu.bar1_total_b // MIB
    expected = f"at least {least} MiB"
    if size >= least:
        return ok(subject, expected=expected, actual=f"{size} MiB")
    return fail(
        subject,
        expected=expected,
        actual=f"{size} MiB",
        why="smaller than the GPU's memory" if minimum_mib is None else "",
        advice=BIOS,
        details=board(gpu),
    )


def learn(evidence: Evidence) -> dict[str, int] | None:
    """`{}` if the BAR1 of every GPU covers its memory; otherwise the smallest BAR1 as
    `minimum_mib`."""
    sizes = [
        (gpu.bar1_total_b, gpu.memory_total_b)
        for gpu in each_gpu(evidence)
        if isinstance(gpu, Gpu) and gpu.bar1_total_b
    ]
    if not sizes:
        return None
    covered = all(memory is not None and bar1 >= memory for bar1, memory in sizes)
    least = min(bar1 for bar1, _ in sizes) // MIB
    return {} if covered else {"minimum_mib": least} if least else None


CHECK = Check(
    params=Params,
    area=Area.PCIE,
    reads=(
        *IN_HAND,
        *reads_of("gpu.gpus[]", "bar1_total_b", "memory_total_b", "virtualization_mode"),
    ),
    judge=judge,
    unasked="T4, A10G and GeForce cards may have a small BAR1 by design: say bar1: {} for others",
    learn=learn,
    severity=Severity.WARNING,
)
