"""Every GPU has a listed InfoROM image, or the same image as other GPUs of its board.

**Why it matters.** The InfoROM holds a board's configuration, its ECC counts and its repaired rows.
If it is corrupted, the driver forgets them or refuses the GPU. An image of another version means
that the board is of another delivery.

**Read from** NVML: nvmlDeviceGetInforomImageVersion, nvmlDeviceGetBoardPartNumber and the PCI ids
of the board. With `checksums`, also nvmlDeviceValidateInforom, which reads the InfoROM from the
flash of each GPU: use it in a nightly sweep, not before each job.

**Verdicts.** NVML_ERROR_CORRUPTED_INFOROM fails. With `one_of`, a GPU that has another version
fails. Without it, the GPUs of one node that have the same PCI ids and board part number are
compared. A GPU that differs from most of them fails; if no version is the most frequent, all of
them fail. A GPU that is the only one with its part number is then not applicable. A GPU without an
InfoROM is not applicable, either.

**To fix it** corrupted: drain the node and reboot; if the InfoROM stays corrupted, have the board
replaced. Another version: use the server vendor's firmware bundle for this board; no setting of the
node changes it.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.alike import BOARD, each_version, learn_versions
from nodevet.checking.named import READ_AGAIN, reads_of
from nodevet.evidence.across import each_gpu
from nodevet.evidence.core import NOT_ASKED, unread, unsupported
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, board, subject_of
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
    one_or_more,
    unknown,
)

CORRUPTED = "NVML_ERROR_CORRUPTED_INFOROM"
REPLACE = (
    "drain the node, run nvidia-bug-report.sh and reboot; if the InfoROM is still corrupted, "
    "have the board replaced"
)
ADVICE = (
    "ask the server vendor which firmware bundle has the version of the other boards; if this "
    "board was replaced, also ask whether it is the right part"
)


class Params(CheckParams):
    """`inforom: {}`, `inforom: G520.0200.00.05` or `inforom: {checksums: true}`"""

    bare: ClassVar[str] = "one_of"

    one_of: str | Annotated[tuple[str, ...], Meta(min_length=1)] | None = None
    """The image versions that are allowed; without it the GPUs must be alike."""
    checksums: bool = False
    """Whether NVML verifies the checksums in the flash."""

    def __post_init__(self) -> None:
        one_or_more(self, "one_of")


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    yield from each_version(
        evidence,
        "inforom_image_version",
        params.one_of,
        lacking="this GPU has no InfoROM image version",
        advice=ADVICE,
        untold=corrupted_or_unread,
    )
    if params.checksums:
        for gpu in each_gpu(evidence):
            if isinstance(gpu, Gpu):
                yield judge_checksums(gpu)


def judge_checksums(gpu: Gpu) -> Finding:
    subject = subject_of(gpu)
    if unsupported(gpu, "inforom_valid"):
        return not_applicable(subject, why="NVML cannot verify the checksums of this GPU")
    if gpu.inforom_valid is None and "inforom_valid" not in gpu.errors:
        return unknown(subject, why=f"checksums: {NOT_ASKED}", advice=READ_AGAIN)
    if gpu.inforom_valid is None:
        return unread(subject, gpu, "inforom_valid")
    if gpu.inforom_valid:
        return ok(subject, expected="checksums right", actual="checksums right")
    return corruption_finding(gpu)


def corrupted_or_unread(gpu: Gpu, field: str) -> Finding:
    if gpu.errors.get(field) != CORRUPTED:
        return unread(subject_of(gpu), gpu, field)
    return corruption_finding(gpu)


def corruption_finding(gpu: Gpu) -> Finding:
    return fail(
        subject_of(gpu),
        expected="readable",
        actual="corrupted",
        why=CORRUPTED,
        advice=REPLACE,
        details=board(gpu),
    )


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(*BOARD, *reads_of("gpu.gpus[]", "inforom_image_version", "inforom_valid")),
    judge=judge,
    unasked="for data center GPUs: other boards have no InfoROM image to compare",
    asks=lambda params: {"gpu": ("inforom_valid",)} if params.checksums else {},
    learn=lambda evidence: learn_versions(evidence, "inforom_image_version"),
    severity=Severity.WARNING,
    actions={REPLACE: NeededAction.REBOOT},
)
