"""The node has the expected number of GPUs; NVML, the PCI bus and /dev agree on it.

**Why it matters.** If a GPU fell off the bus, or the driver refused it, the node starts jobs and
fails them, or runs them on seven of eight GPUs.

**Read from** NVML (nvmlDeviceGetCount and a handle for each), the PCI bus (/sys/bus/pci/devices,
NVIDIA functions of class 0300 and 0302) and `/dev/nvidia<N>`. nodevet reads them separately, so if
one of them has lost a GPU, the others still show it.

**Verdicts.** Fails if a layer that was read contradicts the baseline or another layer, even if a
third layer could not be read. The unread layer then has an unknown finding of its own, which a
waiver of the count does not cover. Unknown if no layer contradicts but one is missing. If the
driver is loaded and its library is not installed, no GPU can be reached, which fails. A GPU that is
lost, or needs a reset, is not counted, and the count then always fails; `gpu_lost` says what is
wrong with each GPU. A PCI function whose revision reads ff no longer answers and is not counted,
either. Nor is a virtual function (SR-IOV), which a vGPU host has for its guests. GPUs that a driver
such as vfio-pci holds for virtual machines are left out if the count is right without them.

**To fix it** look for Xid 79 and PCIe errors in the kernel log, and reboot. If the same GPU is gone
again, power the node off, and reseat the GPU or have it replaced. If /dev nodes are missing:
`nvidia-modprobe -c 0 -u` now, and the nvidia-persistenced service at boot.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from nodevet.checking.named import reads_of
from nodevet.evidence.across import (
    DRIVER_FAULT,
    INSTALL_LIBRARY,
    every_gpu,
    gpu_functions,
    half_a_driver,
    located_gpus,
    losses,
)
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, Gpus, board, lost_error, subject_of
from nodevet.evidence.ids import is_id
from nodevet.evidence.modules import Modules
from nodevet.evidence.pci import KEPT_FOR_GUESTS, Pci, PciFunction
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    Subject,
    Value,
    Verdict,
    fail,
    not_applicable,
    ok,
    unknown,
)

NODE = re.compile(r"/dev/nvidia([0-9]{1,4})")

MOST_TOLD = 16  # addresses

REFUSED = (
    "`dmesg | grep NVRM` says why the driver refused it. `RmInitAdapter failed`: reboot, then "
    "try another slot or RMA it. `BAR is 0M`: enable Above 4G Decoding or Resizable BAR in the "
    "BIOS"
)
BOUND = {  # to a driver, or to none
    "": f"if `lsmod` has no nvidia, see kernel_modules; else {REFUSED}",
    "nvidia": REFUSED,
    "nouveau": "unload and blacklist nouveau (see kernel_modules); then the nvidia driver can "
    "bind it",
    "vfio-pci": "it is reserved for a virtual machine: release it, or expect one GPU fewer here",
}
FOREIGN = "unbind that driver, and find what binds it at boot (driverctl, modprobe.d, udev)"
OFF = (
    "drain the node and power it off and on: no reset reaches the GPU; gpu_lost says what to "
    "do next"
)
AT_BOOT = "an enabled nvidia-persistenced at every boot"
UNDRIVEN = "each GPU that the driver did not bind has a finding of its own, which says what to do"
APART = (
    "check again, in case the driver was still loading; if it stays, a /dev node may be missing "
    f"(`nvidia-modprobe`; {AT_BOOT}), or the GPU may be hidden from NVML"
)
MORE = "the node has more GPUs than the baseline: give it the right baseline, or correct the count"
ABSENT = (
    "the missing GPU is not on the PCI bus, so no reset brings it back: power the node off and "
    "on, then compare `lspci -d 10de:` with a healthy node to find the slot. Reseat it, check "
    "its power cables, and look for a disabled slot in the BIOS; in a virtual machine, check "
    "what its host passes through"
)

SEVERAL_ON_A_BOARD = frozenset(
    {
        *("10de:0ff2", "10de:102d", "10de:118f", "10de:11bf", "10de:13bd", "10de:13f2"),
        *("10de:25b6", "10de:2941", "10de:31c2"),
    }
)
"""GRID K1, Tesla K80, K10, GRID K2, Tesla M10, M60, A16 (and A2), GB200, GB300."""
TWICE = (
    "compare the labels of these boards: one InfoROM has another board's serial number, so "
    "records of repairs and an RMA may be about the wrong board; have the vendor correct it"
)

Layer = int | str  # the number of GPUs, or why it was not read
Number = Annotated[int, Meta(ge=0, le=4096)]


class Params(CheckParams):
    """`gpu_count: 8` or `gpu_count: {minimum: 4}`"""

    bare: ClassVar[str] = "count"

    count: Number | None = None
    minimum: Number | None = None

    def __post_init__(self) -> None:
        if (self.count is None) == (self.minimum is None):
            raise ValueError("give either count or minimum")

    def admits(self, number: int) -> bool:
        return number == self.count if self.minimum is None else number >= self.minimum


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    numbers = device_numbers(evidence)
    lost_gpus = [gpu for gpu, why in zip(every_gpu(evidence), losses(evidence), strict=True) if why]
    layers: dict[str, Layer] = {
        "NVML counts": listed_count(evidence),
        "NVML reaches": reached_count(evidence, lost_gpus),
        "PCI bus": on_bus(evidence),
        "/dev": len_or_why(numbers),
    }
    for_guests = guest_gpus(evidence, layers["PCI bus"], params)
    if isinstance(layers["PCI bus"], int):
        layers["PCI bus"] -= len(for_guests)
    finding = total(layers, params, lost_gpus)
    if half_a_driver(evidence) and not params.admits(0):
        finding = without_library(evidence, finding)
    if finding.verdict is Verdict.FAIL and not finding.advice:
        advice = advice_for(evidence, layers, params)
        present = [function.address for function in on_pci(evidence) if answers(function)]
        addresses = ", ".join(present) if advice == ABSENT and len(present) <= MOST_TOLD else ""
        details = {"on the PCI bus": addresses} if addresses else {}
        finding = msgspec.structs.replace(finding, advice=advice, details=details)
    if finding.verdict is Verdict.FAIL and evidence[Gpus].data is None:
        finding = msgspec.structs.replace(finding, cause=DRIVER_FAULT)
    yield finding
    reasons = [reason for reason in unread_layers(layers) if reason not in finding.why]
    if finding.verdict is Verdict.FAIL and reasons:
        yield unknown(expected=finding.expected, why="; ".join(reasons))
    if isinstance(layers["NVML reaches"], int) and isinstance(layers["PCI bus"], int):
        yield from one_sided(located_gpus(evidence), on_pci(evidence), for_guests)
    if isinstance(numbers, frozenset):
        yield from without_node(every_gpu(evidence), numbers)
    yield from same_serials([gpu for gpu in every_gpu(evidence) if gpu not in lost_gpus])


def without_library(evidence: Evidence, finding: Finding) -> Finding:
    """The finding if no GPU can be reached without the library, whatever the PCI bus shows."""
    counts = (
        finding.actual if isinstance(finding.actual, dict) else {"PCI bus, /dev": finding.actual}
    )
    return fail(
        expected=finding.expected,
        actual={"NVML reaches": 0, **counts},
        why=half_a_driver(evidence),
        advice=INSTALL_LIBRARY,
    )


def total(layers: Mapping[str, Layer], params: Params, lost_gpus: Sequence[Gpu]) -> Finding:
    counts = {name: layer for name, layer in layers.items() if isinstance(layer, int)}
    unread = "; ".join(unread_layers(layers))
    expected = params.count if params.minimum is None else f"at least {params.minimum}"
    agreed = len(set(counts.values())) == 1
    actual = next(iter(counts.values())) if agreed else counts
    if lost_gpus:
        advice = "gpu_lost says what to do for each GPU; keep the node drained until all are back"
        why = "; ".join(f"{subject_of(gpu).label}: {lost_error(gpu)}" for gpu in lost_gpus)
        return fail(expected=expected, actual=counts, why=why, advice=advice, cause="gpu_lost")
    if not agreed and counts:
        return fail(expected=expected, actual=actual)
    if not all(params.admits(count) for count in counts.values()):
        return fail(expected=expected, actual=actual)
    if unread:
        return unknown(expected=expected, actual=actual if counts else None, why=unread)
    return ok(expected=expected, actual=actual)


def unread_layers(layers: Mapping[str, Layer]) -> list[str]:
    """The reasons why layers were not read, without repetition."""
    return list(dict.fromkeys(layer for layer in layers.values() if isinstance(layer, str)))


def advice_for(evidence: Evidence, layers: Mapping[str, Layer], params: Params) -> str:
    """What to do about a wrong count if no GPU is reported as lost."""
    counts = {name: layer for name, layer in layers.items() if isinstance(layer, int)}
    bus, reached_count = counts.get("PCI bus"), counts.get("NVML reaches")
    if not all(answers(function) for function in on_pci(evidence)):
        return OFF
    if bus is not None and reached_count is not None and reached_count < bus:
        return UNDRIVEN
    if len(set(counts.values())) > 1:
        return APART
    if params.count is not None and max(counts.values()) > params.count:
        return MORE
    return ABSENT


def on_pci(evidence: Evidence) -> tuple[PciFunction, ...]:
    """The GPUs on the PCI bus, whatever driver holds them."""
    return data.of_kind("gpu") if (data := evidence[Pci].data) else ()


def listed_count(evidence: Evidence) -> Layer:
    section = evidence[Gpus]
    if section.data is None:
        return f"NVML: {section.why}"
    if section.data.count is None:
        return f"count: {section.data.why('count')}"
    return section.data.count


def reached_count(evidence: Evidence, lost_gpus: Sequence[Gpu]) -> Layer:
    section = evidence[Gpus]
    if section.data is None:
        return f"NVML: {section.why}"
    if section.data.gpus is None:
        return f"gpus: {section.data.why('gpus')}"
    unreachable = [
        gpu for gpu in section.data.gpus if "handle" in gpu.errors and gpu not in lost_gpus
    ]
    if unreachable and not lost_gpus:
        return ", ".join(sorted({gpu.why("handle") for gpu in unreachable}))
    return len(section.data.gpus) - len(lost_gpus) - len(unreachable)


def on_bus(evidence: Evidence) -> Layer:
    section = evidence[Pci]
    if section.data is None:
        return f"PCI: {section.why}"
    if section.data.functions is None:
        return f"functions: {section.data.why('functions')}"
    for function in filter(may_be_gpu, section.data.functions):
        for field in ("vendor", "class_code", "revision"):
            if getattr(function, field) is None:
                return f"{field}: {function.why(field)}"
        if "physfn" in function.errors:
            return f"physfn: {function.why('physfn')}"
    return sum(answers(function) for function in section.data.of_kind("gpu"))


def may_be_gpu(function: PciFunction) -> bool:
    """Whether no value that was read rules out that it is a GPU."""
    if function.vendor not in (None, "10de"):
        return False
    return function.class_code is None or function.class_code[:4] in ("0300", "0302")


def answers(function: PciFunction) -> bool:
    return function.revision != "ff"


def guest_gpus(evidence: Evidence, on_bus: Layer, params: Params) -> frozenset[str]:
    """The addresses of GPUs that are held for virtual machines, if the count is right without
    them."""
    present = (function for function in on_pci(evidence) if answers(function))
    for_guests = frozenset(
        function.address for function in present if function.driver in KEPT_FOR_GUESTS
    )
    fits = isinstance(on_bus, int) and params.admits(on_bus - len(for_guests))
    return for_guests if fits else frozenset()


def device_numbers(evidence: Evidence) -> frozenset[int] | str:
    section = evidence[Modules]
    if section.data is None:
        return f"/dev: {section.why}"
    if section.data.device_nodes is None:
        return f"device_nodes: {section.data.why('device_nodes')}"
    matches = (NODE.fullmatch(node.path) for node in section.data.device_nodes)
    return frozenset(int(match[1]) for match in matches if match)


def len_or_why(numbers: frozenset[int] | str) -> Layer:
    return numbers if isinstance(numbers, str) else len(numbers)


def one_sided(
    gpus: tuple[Gpu, ...], bus: tuple[PciFunction, ...], for_guests: frozenset[str]
) -> Iterator[Finding]:
    """The findings about GPUs that only NVML or only the PCI bus has. `for_guests`: the addresses
    of GPUs that NVML rightly does not have."""
    usable = [gpu for gpu in gpus if "handle" not in gpu.errors]
    answering = {function.address for function in bus if answers(function)}
    for gpu in usable:
        if gpu.bus_id is None:
            yield unread(subject_of(gpu), gpu, "bus_id")
        elif gpu.bus_id not in answering:
            advice = "look for its bus id in `lspci -d 10de:`; if it is not there, reboot"
            yield fail(
                subject_of(gpu), expected="on the PCI bus", actual="in NVML only", advice=advice
            )
    if any(gpu.bus_id is None for gpu in usable):
        return
    in_nvml = {gpu.bus_id: gpu for gpu in gpus}
    for function in bus:
        gpu_at_address = in_nvml.get(function.address)
        if gpu_at_address is not None and answers(function):
            continue
        pci = Subject(kind="pci", id=function.address, bus_id=function.address)
        subject = subject_of(gpu_at_address) if gpu_at_address else pci
        if gpu_at_address is None and function.address in for_guests:
            yield not_applicable(subject, why=f"held by {function.driver} for a virtual machine")
        elif not answers(function):
            yield fail(
                subject,
                expected="on the PCI bus",
                actual="off the bus",
                advice=OFF,
                cause="gpu_lost",
            )
        else:
            bound = f"bound to {function.driver}" if function.driver else "no driver bound"
            advice = BOUND.get(function.driver or "", FOREIGN)
            yield fail(
                subject, expected="in NVML", actual="on the PCI bus only", why=bound, advice=advice
            )


def without_node(gpus: tuple[Gpu, ...], numbers: frozenset[int]) -> Iterator[Finding]:
    for gpu in gpus:
        if "handle" in gpu.errors:
            continue
        if gpu.minor_number is None:
            yield unread(subject_of(gpu), gpu, "minor_number")
        elif gpu.minor_number not in numbers:
            number = gpu.minor_number
            advice = f"`nvidia-modprobe -c {number} -u` makes it now, and {AT_BOOT}"
            yield fail(subject_of(gpu), expected=f"/dev/nvidia{number}", actual=None, advice=advice)


def same_serials(gpus: Iterable[Gpu]) -> Iterator[Finding]:
    """The findings about GPUs that should have serial numbers of their own and share one. `gpus`:
    without lost ones."""
    by_serial: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        if gpu.serial and is_id(gpu.serial) and gpu.virtualization_mode != "VGPU":
            by_serial.setdefault(gpu.serial, []).append(gpu)
    sizes = {len(sharing) for sharing in by_serial.values()}
    if len(by_serial) > 1 and len(sizes) == 1:
        return
    for sharing in by_serial.values():
        for gpu in sharing if len(sharing) > 1 else ():
            others = ", ".join(subject_of(other).label for other in sharing if other is not gpu)
            shared = f"that of {others}"
            if gpu.pci_device is None:
                why = f"its serial number is {shared}; pci_device: {gpu.why('pci_device')}"
                yield unknown(subject_of(gpu), why=why)
            elif gpu.pci_device not in SEVERAL_ON_A_BOARD:
                yield fail(
                    subject_of(gpu),
                    expected="a serial number of its own",
                    actual=shared,
                    advice=TWICE,
                    details=board(gpu),
                )


def learn(evidence: Evidence) -> Value:
    return len(gpu_functions(evidence)) or None


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(
        "gpu.count",
        *reads_of("gpu.gpus[]", "bus_id", "minor_number", "pci_device", "serial"),
        "gpu.gpus[].virtualization_mode",
        *reads_of("pci.functions[]", "address", "class_code", "driver", "physfn", "vendor"),
        "pci.functions[].revision",
        "modules.device_nodes[].path",
        "modules.nvidia_version",
    ),
    judge=judge,
    learn=learn,
    actions={OFF: NeededAction.POWER_CYCLE, ABSENT: NeededAction.POWER_CYCLE},
)
