"""The GPUs of the node are alike: model, board, memory, clocks, default power limit.

**Why it matters.** In a job over all GPUs of a node, the weakest GPU sets the pace. A board of
another variant, installed during a repair, has the same name and less memory, clock or power.

**Read from** NVML: nvmlDeviceGetName, nvmlDeviceGetPciInfo, nvmlDeviceGetMemoryInfo,
nvmlDeviceGetMaxClockInfo, nvmlDeviceGetPowerManagementDefaultLimit and
nvmlDeviceGetGpuMaxPcieLinkGeneration.

**Verdicts.** A GPU that differs from most of the others fails; if no value is the most frequent,
all GPUs fail. `ignore` names values that are not compared. A value that no GPU reports is not
applicable; a value that only some GPUs report is unknown for the others. A node with one GPU is not
applicable. Part numbers are not compared: a replacement module may have another part number and
still be the same. Firmware has its own checks (`vbios`, `inforom`, `gsp_firmware`); the check
`gpu_model` judges which model is right.

**To fix it** have the odd board replaced with one that has the others' part number. If the mix is
intended, as on a workstation, leave this check out.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal

from nodevet.evidence.across import IN_HAND, each_gpu
from nodevet.evidence.core import unsupported
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
    unknown,
)

Field = Literal[
    "name",
    "pci_device",
    "pci_subsystem",
    "memory_total_b",
    "max_clock_sm_mhz",
    "max_clock_memory_mhz",
    "power_limit_default_mw",
    "pcie_generation_device_max",
]
FIELDS: tuple[Field, ...] = Field.__args__  # type: ignore[attr-defined]
ODD = (
    "compare part numbers (`nvidia-smi -q`, board and GPU part number) with the others and have "
    "the odd one replaced with the right part; no setting changes it"
)


class Params(CheckParams):
    """`gpus_alike: {}` or `gpus_alike: {ignore: [power_limit_default_mw]}`"""

    ignore: tuple[Field, ...] = ()
    """Values that may differ."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    entries = tuple(each_gpu(evidence))
    gpus = [gpu for gpu in entries if isinstance(gpu, Gpu)]
    fields = [field for field in FIELDS if field not in params.ignore]
    unreported = [field for field in fields if all(unsupported(gpu, field) for gpu in gpus)]
    values = {
        field: Counter(value for gpu in gpus if (value := getattr(gpu, field)) is not None)
        for field in fields
        if field not in unreported
    }
    common = {field: usual(counts) for field, counts in values.items() if counts}
    for gpu in entries:
        if isinstance(gpu, Finding):
            yield gpu
        elif len(entries) == 1:
            yield not_applicable(subject_of(gpu), why="the node has one GPU")
        else:
            yield from judge_gpu(gpu, values, common)
            if unreported:
                why = f"no GPU here reports: {', '.join(unreported)}"
                yield not_applicable(subject_of(gpu), why=why)


def judge_gpu(
    gpu: Gpu, values: Mapping[Field, Counter[object]], common: Mapping[Field, object]
) -> Iterator[Finding]:
    subject = subject_of(gpu)
    expected: dict[str, object] = {}
    doubts = []
    for field, counts in values.items():
        value = getattr(gpu, field)
        if value is None:
            doubts.append(f"{field}: {gpu.why(field)}")
        elif counts.total() == 1:
            doubts.append(f"{field}: no other GPU here reports it")
        elif value != common[field]:
            expected[field] = "alike" if common[field] is None else common[field]
    if expected:
        actual = {field: getattr(gpu, field) for field in expected}
        yield fail(subject, expected=expected, actual=actual, advice=ODD, details=board(gpu))
    if doubts:
        yield unknown(subject, why="; ".join(doubts))
    elif not expected:
        yield ok(subject, expected="alike", actual="alike")


def usual(counts: Counter[object]) -> object:
    """The most frequent value; None if two values are equally frequent."""
    (value, most), *others = counts.most_common(2)
    return None if others and others[0][1] == most else value


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(*IN_HAND, *(f"gpu.gpus[].{field}" for field in FIELDS)),
    judge=judge,
    unasked="for boards that are delivered together: elsewhere a mix may be intended",
    severity=Severity.WARNING,
    actions={ODD: NeededAction.RMA},
)
