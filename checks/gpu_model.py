"""Every GPU is the board that the baseline names.

**Why it matters.** Power limits, clocks and memory differ between boards that share a name:
A100-SXM4-80GB exists with 400 W and with 500 W. A baseline applied to another board reports
faults that are not there and misses real ones.

**Read from** NVML, nvmlDeviceGetPciInfo and nvmlDeviceGetName, and the PCI bus:
`/sys/bus/pci/devices/*/{vendor,device,subsystem_vendor,subsystem_device}`. Both must agree.

**Verdicts.** The PCI device id identifies the chip, the subsystem id the board. `name` is the
marketing name; it distinguishes a vGPU from the physical GPU, which has the same ids.

**To fix it** a GPU that is a different board from its neighbours was swapped: replace it with the
right board. If all of them differ, the node has the wrong baseline.
"""

from collections.abc import Iterator
from typing import ClassVar

from msgspec.structs import force_setattr, replace

from nodevet.checking.aspects import aspect_findings, aspect_if, unknown_aspect, unread_aspect
from nodevet.checking.named import reads_of
from nodevet.checking.params import PciIds, no_pci_ids
from nodevet.evidence.across import IN_HAND, answering_gpus, each_gpu, pci_of
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, board, subject_of
from nodevet.evidence.pci import PciFunction
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    Value,
    Verdict,
    fail,
    one_or_more,
    refuse,
)

NAME = (
    "the ids match and the name does not: a different vGPU profile, or a driver that spells the "
    "name differently; correct the vGPU's profile, or the name in the baseline"
)
SWAPPED = (
    "other GPUs here are the right board, so this one was probably installed in a repair or "
    "swap: have it replaced with the right part number; no setting changes it"
)
ALL = (
    "no GPU here is this board: either the baseline is for other nodes (`nodevet list baselines` "
    "shows the others), or the node was delivered with the wrong boards"
)
APART = (
    "the driver and the PCI bus report different boards at this address: drain the node and "
    "reboot; if it stays, check what the firmware or the hypervisor presents there"
)


class Params(CheckParams):
    """`gpu_model: "10de:2330"` or `gpu_model: {device: "10de:20b2", subsystem: ["10de:1463"]}`"""

    bare: ClassVar[str] = "device"

    device: PciIds
    """One or several PCI vendor:device ids."""
    subsystem: PciIds | None = None
    """One or several PCI subsystem vendor:device ids."""
    name: str | None = None
    """The name as NVML spells it: NVIDIA H100 80GB HBM3."""

    def __post_init__(self) -> None:
        one_or_more(self, "device", "subsystem")
        for field in ("device", "subsystem"):
            ids = getattr(self, field) or ()
            refuse(no_pci_ids(field, ids))
            force_setattr(self, field, tuple(pci_id.lower() for pci_id in ids))


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    judged_gpus: list[tuple[Gpu | None, list[Finding]]] = [
        (None, [gpu])
        if isinstance(gpu, Finding)
        else (gpu, [*judge_gpu(gpu, pci_of(evidence, gpu), params)])
        for gpu in each_gpu(evidence)
    ]
    verdicts = [findings[0].verdict for gpu, findings in judged_gpus if gpu]
    fine = verdicts.count(Verdict.OK)
    for gpu, findings in judged_gpus:
        for finding in findings:
            yield with_advice(gpu, finding, fine, len(verdicts)) if gpu else finding


def with_advice(gpu: Gpu, finding: Finding, fine: int, aspect_findings: int) -> Finding:
    """A failure with advice that depends on the node's other GPUs. `fine`: how many are the right
    board."""
    if finding.verdict is not Verdict.FAIL or finding.advice:
        return finding
    if set(finding.actual) == {"name"}:
        advice = NAME
    elif fine:
        advice = SWAPPED
    else:
        advice = ALL
    details = {**board(gpu), "right boards here": f"{fine} of {aspect_findings}"}
    return replace(finding, advice=advice, details=details)


def judge_gpu(gpu: Gpu, function: PciFunction | Finding, params: Params) -> Iterator[Finding]:
    subject = subject_of(gpu)
    by_nvml = {"device": gpu.pci_device, "subsystem": gpu.pci_subsystem, "name": gpu.name}
    by_pci = {} if isinstance(function, Finding) else ids(function)
    expected = {"device": params.device, "subsystem": params.subsystem or ()}
    expected["name"] = (params.name,) if params.name else ()
    aspects = [unknown_aspect("PCI", function.why)] if isinstance(function, Finding) else []
    conflicting: list[str] = []
    for key, values in ((key, values) for key, values in expected.items() if values):
        actual_ids = [
            actual_id for actual_id in (by_nvml[key], by_pci.get(key)) if actual_id is not None
        ]
        wrong = [actual_id for actual_id in actual_ids if actual_id not in values]
        if wrong:
            right = values[0] if len(values) == 1 else list(values)
            actual: Value = wrong[-1] if len(set(wrong)) == 1 else wrong
            aspects.append(aspect_if(key, False, expected=right, actual=actual))
        elif len(set(actual_ids)) > 1:
            conflicting.append(key)
        elif actual_ids:
            aspects.append(aspect_if(key, True, expected=actual_ids[0], actual=actual_ids[0]))
        if by_nvml[key] is None:
            aspects.append(unread_aspect(gpu, key if key == "name" else f"pci_{key}"))
        if not isinstance(function, Finding) and key in by_pci and by_pci[key] is None:
            aspects.append(unknown_aspect(key, f"PCI {key}: {pci_why(function, key)}"))
    for key in conflicting:
        nvml, pci = {"NVML": by_nvml[key]}, {"PCI bus": by_pci[key]}
        yield fail(subject, expected=nvml, actual=pci, advice=APART)
    yield from aspect_findings(
        subject,
        [aspect for aspect in aspects if not conflicting or aspect.verdict is not Verdict.OK],
    )


def ids(function: PciFunction) -> dict[str, str | None]:
    """The ids as sysfs has them; None if half of an id is missing."""
    pairs = {
        "device": (function.vendor, function.device),
        "subsystem": (function.subsystem_vendor, function.subsystem_device),
    }
    return {key: f"{a}:{b}" if a and b else None for key, (a, b) in pairs.items()}


def pci_why(function: PciFunction, key: str) -> str:
    fields = ("vendor", "device") if key == "device" else ("subsystem_vendor", "subsystem_device")
    return next(function.why(field) for field in fields if not getattr(function, field))


def learn(evidence: Evidence) -> Value:
    """The ids of the boards: subsystem ids distinguish boards that share a device id."""
    gpus = answering_gpus(evidence)
    devices = {gpu.pci_device for gpu in gpus}
    subsystems = {gpu.pci_subsystem for gpu in gpus}
    if not gpus or None in devices:
        return None
    board_ids: dict[str, Value] = {"device": sorted(filter(None, devices))}
    if None not in subsystems:
        board_ids["subsystem"] = sorted(filter(None, subsystems))
    return board_ids


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(
        *IN_HAND,
        *reads_of("gpu.gpus[]", "bus_id", "name", "pci_device", "pci_subsystem"),
        *reads_of("pci.functions[]", "address", "device", "subsystem_vendor", "subsystem_device"),
    ),
    judge=judge,
    unasked="each board has its own ids: a common part names none",
    learn=learn,
    actions={SWAPPED: NeededAction.RMA, APART: NeededAction.REBOOT},
)
