"""Each GPU module sits at the PCI address that the baseline gives for it.

**Why it matters.** A cabling list, a cold plate's leak report and a service order name a module by
its place; NVML and the scheduler name it by PCI address or index. If the two drift apart, because a
baseboard was replaced or two cables were swapped, someone pulls the wrong GPU.

**Read from** NVML: nvmlDeviceGetModuleId, the place on the baseboard that the GPU itself reports,
and its PCI address.

**Verdicts.** A GPU whose module id differs from the baseline's id for its address fails. An address
without a GPU fails, too: inspect its module. So does a GPU at an address that the baseline does not
name. A GPU that does not report its module is not applicable.

**To fix it** compare the cables between baseboard, retimers and PCIe switches with the vendor's
plan. If every GPU of many nodes differs, the firmware now numbers the bus differently: correct the
baseline.
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
    Subject,
    compare,
    fail,
    not_applicable,
    unknown,
)

CABLES = (
    "compare the cabling of the baseboard and the PCIe switches with the vendor's plan; if the "
    "firmware or a new baseboard numbers the bus differently, correct the baseline"
)
EMPTY = (
    "gpu_count and gpu_lost say whether the GPU is gone altogether; inspect this module: reseat "
    "it, or swap it with a known-good one"
)

Address = Annotated[str, Meta(pattern=r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")]


class Params(CheckParams):
    """`gpu_slots: {"0000:19:00.0": 2, "0000:3b:00.0": 4}`"""

    whole: ClassVar[str] = "modules"

    modules: Annotated[dict[Address, Annotated[int, Meta(ge=0, le=255)]], Meta(min_length=1)]
    """The module id of every GPU, by PCI address."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    modules, has_nameless = dict(params.modules), False
    for gpu in each_gpu(evidence):
        if isinstance(gpu, Finding):
            modules.pop(gpu.subject.bus_id or "", None)
            has_nameless = has_nameless or gpu.subject.bus_id is None
            yield gpu
        elif gpu.bus_id is None:
            has_nameless = True
            yield unread(subject_of(gpu), gpu, "bus_id")
        else:
            yield judge_gpu(gpu, modules.pop(gpu.bus_id, None))
    for address, module in modules.items():
        subject = Subject(kind="pci", id=address, bus_id=address)
        if has_nameless:
            yield unknown(subject, why="not every GPU reports its PCI address")
        else:
            yield fail(subject, expected=module, actual="no GPU", advice=EMPTY, cause="gpu_count")


def judge_gpu(gpu: Gpu, module: int | None) -> Finding:
    subject = subject_of(gpu)
    if module is None:
        expected, actual = "an address of the baseline", gpu.bus_id
        return fail(subject, expected=expected, actual=actual, advice=CABLES, details=board(gpu))
    if unsupported(gpu, "module_id"):
        return not_applicable(subject, why="this GPU does not report its module")
    if gpu.module_id is None:
        return unread(subject, gpu, "module_id")
    same = gpu.module_id == module
    more = {} if same else {"advice": CABLES, "details": board(gpu)}
    return compare(subject, expected=module, actual=gpu.module_id, **more)


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(*IN_HAND, *reads_of("gpu.gpus[]", "bus_id", "module_id")),
    judge=judge,
    unasked="only a site knows where its modules sit",
    severity=Severity.WARNING,
)
