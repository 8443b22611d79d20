"""No GPU has a pending or failed row remap.

**Why it matters.** A GPU replaces a faulty row of its memory with a spare one, but only at the next
reset; until then the faulty row may be in use. If a bank has no spare rows left, remapping fails
and the errors are permanent.

**Read from** NVML, nvmlDeviceGetRemappedRows and nvmlDeviceGetRowRemapperHistogram; for GPUs before
Ampere, which retire pages instead of rows, nvmlDeviceGetRetiredPagesPendingStatus.

**Verdicts.** A failed or pending remap fails. Remapped rows are not a fault: the check judges their
number, and the number of banks without spare rows, only if the baseline sets a maximum. A GPU that
neither remaps rows nor retires pages is not applicable. A GPU in MIG mode for which NVML reports no
remaps is not applicable either, unless a MIG device reports a failed or pending remap (`xid` sees
63 and 64 in any case). If nodevet could not read its MIG devices, it is unknown.

**To fix it** pending: drain the node, then reset the GPU (`nvidia-smi --gpu-reset -i BUS_ID`)
or reboot. Failed: have the board replaced.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated

from msgspec import Meta
from msgspec.structs import asdict

from nodevet.checking.named import judge_each, reads_of
from nodevet.evidence.across import IN_HAND, each_gpu
from nodevet.evidence.core import NOT_SUPPORTED, Record, unsupported
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

NOT_REPORTED = (*NOT_SUPPORTED, "NVML_ERROR_FUNCTION_NOT_FOUND", "NVML_ERROR_INVALID_ARGUMENT")

RESET = (
    "drain the node, then reset the GPU after its last job has ended, or reboot: that completes "
    "the remap; if one is still pending afterwards, run field diagnostics"
)
REPLACE = (
    "drain the node and have the GPU replaced; attach nvidia-bug-report.sh's output to the RMA"
)

Most = Annotated[int, Meta(ge=0)]


class Params(CheckParams):
    """`row_remapping: {}` or `row_remapping: {uncorrected: 512, banks_none: 0}`"""

    uncorrected: Most | None = None
    """The most rows that may have been replaced because of uncorrectable errors."""
    banks_none: Most | None = None
    """The most banks that may have no spare row."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    counts = {name: most for name, most in asdict(params).items() if most is not None}
    yield from judge_each(each_gpu(evidence), lambda gpu: judge_gpu(gpu, counts))


def judge_gpu(gpu: Gpu, counts: dict[str, int]) -> Iterator[Finding]:
    rows, pages = gpu.remapping, gpu.retired_pages
    if not all(unsupported(rows, field) for field in ("pending", "failure")):
        yield from judge_record(gpu, rows, {"failure": False, "pending": False, **counts})
    elif not unsupported(pages, "pending"):
        yield from judge_record(gpu, pages, {"pending": False})
    elif gpu.mig_current:
        yield from judge_mig_devices(gpu)
    else:
        yield not_applicable(subject_of(gpu), why="this GPU neither remaps rows nor retires pages")


def judge_mig_devices(gpu: Gpu) -> Iterator[Finding]:
    """The findings of a GPU in MIG mode that does not report its own remaps: its MIG devices report
    a part."""
    subject = subject_of(gpu)
    above = {
        sign: True
        for sign in ("failure", "pending")
        if any(getattr(device.remapping, sign) for device in gpu.mig_devices or ())
    }
    if above:
        allowed, why = dict.fromkeys(above, False), "reported by a MIG device"
        yield fail(
            subject,
            expected=allowed,
            actual=above,
            why=why,
            advice=advice(above),
            details=board(gpu),
        )
    doubt = of_mig_devices(gpu)
    if doubt:
        yield unknown(subject, why=doubt)
    elif not above:
        yield not_applicable(subject, why="NVML does not report it in MIG mode")


def of_mig_devices(gpu: Gpu) -> str:
    """Why a MIG device may have a remap that was not read; empty if none has."""
    if gpu.errors.get("mig_devices", NOT_REPORTED[0]) not in NOT_REPORTED:
        return f"mig_devices: {gpu.why('mig_devices')}"
    for device in gpu.mig_devices or ():
        for sign in ("failure", "pending"):
            why = device.errors.get("handle") or device.remapping.why(sign)
            if getattr(device.remapping, sign) is None and why not in NOT_REPORTED:
                return f"a MIG device: {sign}: {why}"
    return ""


def judge_record(gpu: Gpu, record: Record, most: dict[str, int]) -> Iterator[Finding]:
    subject = subject_of(gpu)
    values = {field: getattr(record, field) for field in most}
    read = {field: count for field, count in values.items() if count is not None and count >= 0}
    above = {field: count for field, count in read.items() if count > most[field]}
    unread = "; ".join(
        f"{field}: {record.why(field) if count is None else f'{count} is not a valid count'}"
        for field, count in values.items()
        if field not in read
    )
    if above:
        allowed = {field: most[field] for field in above}
        yield fail(
            subject, expected=allowed, actual=above, advice=advice(above), details=board(gpu)
        )
    if unread:
        yield unknown(subject, why=unread)
    elif not above:
        yield ok(subject, expected=most, actual=read)


def advice(above: Mapping[str, int]) -> str:
    if list(above) == ["pending"]:
        return RESET
    if "failure" in above:
        return f"{REPLACE} and the kernel log's Xid 64. A reset does not fix it"
    return f"{REPLACE} and these row counts: no reset restores spare rows"


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(
        *IN_HAND,
        "gpu.gpus[].mig_current",
        *reads_of("gpu.gpus[].mig_devices[].remapping", "failure", "pending"),
        *reads_of("gpu.gpus[].remapping", "pending", "failure", "uncorrected", "banks_none"),
        "gpu.gpus[].retired_pages.pending",
    ),
    judge=judge,
    actions={RESET: NeededAction.GPU_RESET, REPLACE: NeededAction.RMA},
)
