"""Checks a version that all GPUs of one board share, and that a baseline may list: VBIOS,
InfoROM."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from nodevet.evidence.across import IN_HAND, each_gpu
from nodevet.evidence.core import unread, unsupported
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, board, subject_of
from nodevet.model import Finding, compare, fail, not_applicable, ok

Board = tuple[str | None, str | None, str | None]

BOARD = (
    *IN_HAND,
    "gpu.gpus[].board_part_number",
    "gpu.gpus[].pci_device",
    "gpu.gpus[].pci_subsystem",
)
"""The fields that distinguish boards: part of `reads` of a check that uses `each_version`."""


def board_of(gpu: Gpu) -> Board:
    """The kind of board. GPUs of two kinds in one node may differ, even if their model is the same.

    NVML reports two part numbers for an HGX board with a replaced module."""
    return gpu.pci_device, gpu.pci_subsystem, gpu.board_part_number


def each_version(
    evidence: Evidence,
    field: str,
    one_of: Sequence[str] | None,
    *,
    lacking: str,
    advice: str,
    untold: Callable[[Gpu, str], Finding] | None = None,
) -> Iterator[Finding]:
    """A finding for every GPU about one text field: whether it is listed, or equals the others'.

    `field`: of evidence.gpu.Gpu; `lacking`: why a GPU without the field is not applicable;
    `untold`: makes the finding if the field could not be read; by default it is unknown.
    """
    entries = tuple(each_gpu(evidence))
    versions = by_board((gpu for gpu in entries if isinstance(gpu, Gpu)), field)
    for gpu in entries:
        if isinstance(gpu, Finding):
            yield gpu
        elif unsupported(gpu, field):
            yield not_applicable(subject_of(gpu), why=lacking)
        elif getattr(gpu, field) is None:
            yield untold(gpu, field) if untold else unread(subject_of(gpu), gpu, field)
        elif one_of is not None:
            yield judge_by_list(gpu, getattr(gpu, field), one_of, advice)
        else:
            yield judge_by_majority(gpu, getattr(gpu, field), versions[board_of(gpu)], advice)


def by_board(gpus: Iterable[Gpu], field: str) -> Mapping[Board, Counter[str]]:
    """How many GPUs of each kind of board have each version."""
    versions: dict[Board, Counter[str]] = {}
    for gpu in gpus:
        if (version := getattr(gpu, field)) is not None:
            versions.setdefault(board_of(gpu), Counter())[version] += 1
    return versions


def judge_by_list(gpu: Gpu, version: str, one_of: Sequence[str], advice: str) -> Finding:
    expected = one_of[0] if len(one_of) == 1 else list(one_of)
    if version in one_of:
        return ok(subject_of(gpu), expected=expected, actual=version)
    return fail(
        subject_of(gpu), expected=expected, actual=version, advice=advice, details=board(gpu)
    )


def judge_by_majority(gpu: Gpu, version: str, versions: Counter[str], advice: str) -> Finding:
    """Whether the GPU has the version of most GPUs of its board; if two are equally frequent, all
    fail."""
    subject = subject_of(gpu)
    if versions.total() == 1:
        return not_applicable(subject, why="the node has no other GPU of this board to compare")
    (most, count), *others = versions.most_common()
    if others and others[0][1] == count:
        return fail(
            subject,
            expected="one version",
            actual=version,
            why=", ".join(
                f"{number} have {text[:40]}" for text, number in sorted(versions.items())
            ),
            advice=advice,
            details=board(gpu),
        )
    if version == most:
        return ok(subject, expected=most, actual=version)
    why = f"{count} of {versions.total()} GPUs of this board have {most[:40]}"
    return compare(
        subject, expected=most, actual=version, why=why, advice=advice, details=board(gpu)
    )


def learn_versions(evidence: Evidence, field: str) -> dict[str, list[str]] | None:
    """The value for a baseline: every version that a GPU of this node has."""
    gpus = [gpu for gpu in each_gpu(evidence) if isinstance(gpu, Gpu)]
    versions = sorted({version for gpu in gpus if (version := getattr(gpu, field)) is not None})
    return {"one_of": versions} if versions else None
