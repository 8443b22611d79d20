"""The node has as many GPUs as the baseline says, and every layer agrees on it.

**Why it matters.** A GPU that fell off the bus, or that the driver refused, leaves
a node that starts jobs and fails them, or runs them on seven of eight.

**Read from** NVML (nvmlDeviceGetCount and a handle for each), the PCI bus
(/sys/bus/pci/devices, NVIDIA functions of class 0300 and 0302) and
`/dev/nvidia<N>`. They are read apart from one another, so a GPU that one of them
lost is named by the others.

**Verdicts.** Wrong where a layer that was read contradicts the baseline or another
layer, even if a third could not be read; unknown where nothing contradicts but a
layer is missing. A GPU that is lost, or needs a reset, is not counted, and the count
is then wrong in any case; `gpu_lost` says of each GPU what is the matter. A PCI
function whose revision reads ff no longer answers and is not counted either.

**To put it right** look for Xid 79 and PCIe errors in the kernel log, reboot, and if
the same GPU is gone again power the node off, reseat it or have it replaced. Missing
/dev nodes: `nvidia-modprobe -c 0 -u`, and the nvidia-persistenced service at boot.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from nodevet.evidence import Evidence, Gpu, PciFunction, lost, subject_of, unread
from nodevet.model import Check, Finding, Subject, Want, ok, unknown, wrong

NODE = re.compile(r"/dev/nvidia([0-9]{1,4})")

Layer = int | str  # what it counts, or why that was not read
Number = Annotated[int, Field(ge=0, le=4096)]


class GpuCount(Want):
    """`gpu_count: 8` or `gpu_count: {minimum: 4}`"""

    bare: ClassVar[str] = "count"

    count: Number | None = None
    minimum: Number | None = None

    @model_validator(mode="after")
    def _one(self) -> "GpuCount":
        if (self.count is None) == (self.minimum is None):
            raise ValueError("give either count or minimum")
        return self

    def admits(self, number: int) -> bool:
        return number == self.count if self.minimum is None else number >= self.minimum


def judge(evidence: Evidence, want: GpuCount) -> Iterator[Finding]:
    layers: dict[str, Layer] = {
        "NVML counts": listed(evidence),
        "NVML reaches": reached(evidence),
        "PCI bus": on_bus(evidence),
        "/dev": len_or_why(device_numbers(evidence)),
    }
    yield total(layers, want, [gpu for gpu in gpus(evidence) if lost(gpu)])
    if isinstance(layers["NVML reaches"], int) and isinstance(layers["PCI bus"], int):
        yield from one_sided(gpus(evidence), functions(evidence))
    numbers = device_numbers(evidence)
    if isinstance(numbers, frozenset):
        yield from without_node(gpus(evidence), numbers)


def total(layers: Mapping[str, Layer], want: GpuCount, gone: Sequence[Gpu]) -> Finding:
    counts = {name: layer for name, layer in layers.items() if isinstance(layer, int)}
    reasons = [layer for layer in layers.values() if isinstance(layer, str)]
    reasons += [f"{subject_of(gpu).label}: {lost(gpu)}" for gpu in gone]
    why = "; ".join(dict.fromkeys(reasons))
    expected = want.count if want.minimum is None else f"at least {want.minimum}"
    agreed = len(set(counts.values())) == 1
    actual = next(iter(counts.values())) if agreed else counts
    if gone:
        advice = "reset the GPU or reboot; if it is lost again, reseat or replace it"
        return wrong(expected=expected, actual=counts, why=why, advice=advice)
    if not agreed and counts:
        return wrong(expected=expected, actual=actual, why=why)
    if not all(want.admits(count) for count in counts.values()):
        return wrong(expected=expected, actual=actual, why=why)
    if why:
        return unknown(expected=expected, actual=actual if counts else None, why=why)
    return ok(expected=expected, actual=actual)


def gpus(evidence: Evidence) -> tuple[Gpu, ...]:
    return (evidence.gpu.data.gpus if evidence.gpu.data else None) or ()


def functions(evidence: Evidence) -> tuple[PciFunction, ...]:
    return (evidence.pci.data.functions if evidence.pci.data else None) or ()


def listed(evidence: Evidence) -> Layer:
    section = evidence.gpu
    if section.data is None:
        return f"NVML: {section.why}"
    if section.data.count is None:
        return f"count: {section.data.why('count')}"
    return section.data.count


def reached(evidence: Evidence) -> Layer:
    section = evidence.gpu
    if section.data is None:
        return f"NVML: {section.why}"
    if section.data.gpus is None:
        return f"gpus: {section.data.why('gpus')}"
    gone = [gpu for gpu in section.data.gpus if lost(gpu)]
    mute = [gpu for gpu in section.data.gpus if "handle" in gpu.errors and not lost(gpu)]
    if mute and not gone:
        return ", ".join(sorted({gpu.why("handle") for gpu in mute}))
    return len(section.data.gpus) - len(gone) - len(mute)


def on_bus(evidence: Evidence) -> Layer:
    section = evidence.pci
    if section.data is None:
        return f"PCI: {section.why}"
    if section.data.functions is None:
        return f"functions: {section.data.why('functions')}"
    for function in section.data.functions:
        for field in ("vendor", "class_code", "revision"):
            if getattr(function, field) is None and may_be_gpu(function):
                return f"{field}: {function.why(field)}"
    return sum(answers(function) for function in section.data.functions)


def may_be_gpu(function: PciFunction) -> bool:
    """Whether nothing that was read rules it out."""
    code = function.class_code
    return function.vendor in (None, "10de") and (code is None or code[:4] in ("0300", "0302"))


def answers(function: PciFunction) -> bool:
    return function.kind == "gpu" and function.revision != "ff"


def device_numbers(evidence: Evidence) -> frozenset[int] | str:
    section = evidence.modules
    if section.data is None:
        return f"/dev: {section.why}"
    if section.data.device_nodes is None:
        return f"device_nodes: {section.data.why('device_nodes')}"
    matches = (NODE.fullmatch(node.path) for node in section.data.device_nodes)
    return frozenset(int(match[1]) for match in matches if match)


def len_or_why(numbers: frozenset[int] | str) -> Layer:
    return numbers if isinstance(numbers, str) else len(numbers)


def one_sided(found: tuple[Gpu, ...], bus: tuple[PciFunction, ...]) -> Iterator[Finding]:
    """GPUs that only one of NVML and the PCI bus has."""
    usable = [gpu for gpu in found if "handle" not in gpu.errors]
    on_pci = {function.address for function in bus if answers(function)}
    for gpu in usable:
        if gpu.bus_id is None:
            yield unread(subject_of(gpu), gpu, "bus_id")
        elif gpu.bus_id not in on_pci:
            yield wrong(subject_of(gpu), expected="on the PCI bus", actual="in NVML only")
    if any(gpu.bus_id is None for gpu in usable):
        return
    in_nvml = {gpu.bus_id for gpu in found}
    for function in bus:
        subject = Subject(kind="pci", id=function.address, bus_id=function.address)
        if function.kind != "gpu":
            continue
        if function.revision == "ff":
            advice = "power the node off and on; if it is lost again, reseat or replace it"
            yield wrong(subject, expected="on the PCI bus", actual="off the bus", advice=advice)
        elif function.address not in in_nvml:
            bound = f"bound to {function.driver}" if function.driver else "no driver bound"
            yield wrong(subject, expected="in NVML", actual="on the PCI bus only", why=bound)


def without_node(found: tuple[Gpu, ...], numbers: frozenset[int]) -> Iterator[Finding]:
    for gpu in found:
        if "handle" in gpu.errors:
            continue
        if gpu.minor_number is None:
            yield unread(subject_of(gpu), gpu, "minor_number")
        elif gpu.minor_number not in numbers:
            yield wrong(subject_of(gpu), expected=f"/dev/nvidia{gpu.minor_number}", actual=None)


CHECK = Check(
    wants=GpuCount,
    reads=(
        "gpu.count",
        "gpu.gpus[].bus_id",
        "gpu.gpus[].minor_number",
        "pci.functions[].address",
        "pci.functions[].class_code",
        "pci.functions[].vendor",
        "pci.functions[].revision",
        "modules.device_nodes[].path",
    ),
    judge=judge,
)
