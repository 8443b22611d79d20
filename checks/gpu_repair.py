"""No GPU has a pending repair of memory channels or cores, or unrepairable memory.

**Why it matters.** From Blackwell on, a GPU disables a faulty memory channel or group of cores
(TPC) by itself at its next reset; until then the fault can hit a job. Unrepairable memory keeps
failing.

**Read from** NVML: nvmlDeviceGetRepairStatus and nvmlDeviceGetUnrepairableMemoryFlag_v1.

**Verdicts.** A pending repair fails, and so does unrepairable memory. A value that the GPU or
driver does not report is not applicable; see `row_remapping` and `ecc_errors` there.

**To fix it** pending: drain the node, then reset the GPU (`nvidia-smi --gpu-reset -i BUS_ID`)
or reboot. Unrepairable: have the board replaced.
"""

from collections.abc import Iterator

from nodevet.checking.named import judge_each
from nodevet.checking.recovery import RESET_IT
from nodevet.evidence.across import IN_HAND, each_gpu
from nodevet.evidence.core import NOT_SUPPORTED
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, board, subject_of
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    fail,
    not_applicable,
    ok,
    unknown,
)

NOT_TOLD = (*NOT_SUPPORTED, "NVML_ERROR_FUNCTION_NOT_FOUND", "NVML_ERROR_ARGUMENT_VERSION_MISMATCH")
SIGNS = ("channel_pending", "tpc_pending", "unrepairable_memory")
RESET = (
    f"drain the node, then {RESET_IT}: that completes the repair; if one is still pending "
    "afterwards, run field diagnostics"
)
REPLACE = (
    "drain the node and have the GPU replaced; attach nvidia-bug-report.sh's output to the RMA: no "
    "reset repairs this memory"
)


class Params(CheckParams):
    """`gpu_repair: {}`"""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    yield from judge_each(each_gpu(evidence), judge_gpu)


def judge_gpu(gpu: Gpu) -> Iterator[Finding]:
    subject, repair = subject_of(gpu), gpu.repair
    values = {sign: value for sign in SIGNS if (value := getattr(repair, sign)) is not None}
    wrong = {sign: True for sign, value in values.items() if value}
    unreported = [
        sign for sign in SIGNS if sign not in values and repair.errors.get(sign) in NOT_TOLD
    ]
    unread = [sign for sign in SIGNS if sign not in values and sign not in unreported]
    if wrong:
        yield fail(
            subject,
            expected=dict.fromkeys(wrong, False),
            actual=wrong,
            advice=REPLACE if "unrepairable_memory" in wrong else RESET,
            details=board(gpu),
        )
    if unread:
        yield unknown(subject, why="; ".join(f"{sign}: {repair.why(sign)}" for sign in unread))
    elif values and not wrong:
        yield ok(subject, expected=dict.fromkeys(values, False), actual=values)
    if unreported:
        why = f"this GPU or driver does not report: {', '.join(unreported)}"
        yield not_applicable(subject, why=why)


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(*IN_HAND, *(f"gpu.gpus[].repair.{sign}" for sign in SIGNS)),
    judge=judge,
    unasked="for data center GPUs: other GPUs do not report it",
    actions={RESET: NeededAction.GPU_RESET, REPLACE: NeededAction.RMA},
)
