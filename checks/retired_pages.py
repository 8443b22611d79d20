"""No GPU before Ampere has more retired memory pages than the baseline allows.

**Why it matters.** A GPU before Ampere never uses a page with a faulty memory cell again: it
retires the page. There is room for 64 such pages; replace a GPU that is near this number. A GPU
with pending retirements still uses the faulty page until it is reset.

**Read from** NVML, nvmlDeviceGetRetiredPages by cause and nvmlDeviceGetRetiredPagesPendingStatus.

**Verdicts.** A pending retirement fails (`row_remapping` reports it too), and so do more pages than
`total` for both causes together. The check judges `single_bit` and `double_bit` if the baseline
sets a maximum. GPUs from Ampere on, which remap rows (see `row_remapping`), and GPUs without ECC
are not applicable.

**To fix it** pending: drain the node, then reset the GPU (`nvidia-smi --gpu-reset -i BUS_ID`)
or reboot. Too many: have the board replaced; no reset restores retired pages.
"""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from nodevet.checking.named import judge_each, reads_of
from nodevet.evidence.across import IN_HAND, each_gpu
from nodevet.evidence.core import unsupported
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, RetiredPages, board, subject_of
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    Severity,
    fail,
    not_applicable,
    ok,
    unknown,
)

CAUSES = ("single_bit", "double_bit")
RESET = (
    "drain the node, then reset the GPU after its last job has ended, or reboot: that completes "
    "the retirement; if one is still pending afterwards, run field diagnostics"
)
REPLACE = (
    "drain the node and have the GPU replaced; attach nvidia-bug-report.sh's output and these "
    "counts to the RMA: no reset restores retired pages"
)

Most = Annotated[int, Meta(ge=0)]


class Params(CheckParams):
    """`retired_pages: {}` or `retired_pages: {total: 30, double_bit: 5}`"""

    total: Most = 60
    """The most pages that may have been retired, whatever the cause; 64 fill the table."""
    single_bit: Most | None = None
    """The most pages retired because of repeated single-bit errors."""
    double_bit: Most | None = None
    """The most pages retired because of a double-bit error."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    yield from judge_each(each_gpu(evidence), lambda gpu: judge_gpu(gpu, params))


def judge_gpu(gpu: Gpu, params: Params) -> Iterator[Finding]:
    subject, pages = subject_of(gpu), gpu.retired_pages
    if all(unsupported(pages, field) for field in (*CAUSES, "pending")):
        yield not_applicable(subject, why="this GPU does not retire pages")
        return
    most = {"total": params.total, "single_bit": params.single_bit, "double_bit": params.double_bit}
    values = {"pending": pages.pending, **counts(pages)}
    limits = {"pending": False, **{name: most[name] for name in most if most[name] is not None}}
    above = {name: values[name] for name in limits if (values[name] or 0) > (limits[name] or 0)}
    unread = [
        f"{field}: {pages.why(field) if getattr(pages, field) is None else 'not a valid count'}"
        for field in (*CAUSES, "pending")
        if (value := getattr(pages, field)) is None or value < 0
    ]
    if above:
        pending_alone = list(above) == ["pending"]
        yield fail(
            subject,
            expected={name: limits[name] for name in above},
            actual=above,
            advice=RESET if pending_alone else REPLACE,
            details=board(gpu),
            **({"cause": "row_remapping"} if pending_alone else {}),
        )
    if unread:
        yield unknown(subject, why="; ".join(unread))
    elif not above:
        yield ok(subject, expected=limits, actual={name: values[name] for name in limits})


def counts(pages: RetiredPages) -> dict[str, int]:
    """The counts by cause and in total, as far as they were read."""
    read = {field: max(getattr(pages, field) or 0, 0) for field in CAUSES}
    return {"total": sum(read.values()), **read}


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(*IN_HAND, *reads_of("gpu.gpus[].retired_pages", "double_bit", "pending", "single_bit")),
    judge=judge,
    severity=Severity.WARNING,
    actions={RESET: NeededAction.GPU_RESET, REPLACE: NeededAction.RMA},
)
