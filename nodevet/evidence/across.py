"""Facts from several sections: which GPUs there are, and where they are."""

from collections.abc import Collection, Iterator, Mapping

import msgspec

from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence, answer_once
from nodevet.evidence.gpu import NO_LIBRARY, Gpu, Gpus, lost_error, subject_of
from nodevet.evidence.host import HostInfo
from nodevet.evidence.kernel_log import KernelLog
from nodevet.evidence.lists import numbers, spans
from nodevet.evidence.modules import Modules
from nodevet.evidence.numa import Numa, NumaNode, has_memory_alone
from nodevet.evidence.pci import KEPT_FOR_GUESTS, Pci, PciFunction
from nodevet.model import Finding, not_applicable, unknown

IN_HAND = (
    "gpu.count",
    "pci.functions[].class_code",
    "pci.functions[].driver",
    "pci.functions[].physfn",
    "pci.functions[].vendor",
)
"""The fields that give the number of GPUs: part of `reads` of a check with `each_gpu`."""


@answer_once
def gpu_functions(evidence: Evidence) -> tuple[PciFunction, ...]:
    """The GPUs on the PCI bus for this machine's NVIDIA driver, not for guests."""
    functions = data.of_kind("gpu") if (data := evidence[Pci].data) else ()
    return tuple(function for function in functions if function.driver not in KEPT_FOR_GUESTS)


def unlisted_gpus_finding(evidence: Evidence, judged: Collection[str] = ()) -> Finding | None:
    """The unknown finding if NVML lists fewer GPUs than it counts, or than are on the bus.

    `judged`: PCI addresses that the check has judged without NVML.
    """
    data = evidence[Gpus].data
    if data is None or data.gpus is None:
        return None
    listed_ids = {gpu.bus_id for gpu in data.gpus}
    functions = (function.address for function in gpu_functions(evidence))
    expected = [address for address in functions if address in listed_ids or address not in judged]
    expected_count = max(data.count or 0, len(expected))
    if len(data.gpus) >= expected_count:
        return None
    unlisted_ids = [address for address in expected if address not in listed_ids]
    detail = (
        f": not {', '.join(unlisted_ids[:8])}"
        if 0 < len(unlisted_ids) <= expected_count - len(data.gpus)
        else ""
    )
    return unknown(why=f"NVML lists {len(data.gpus)} of {expected_count} GPUs{detail}")


def each_gpu(evidence: Evidence) -> Iterator[Gpu | Finding]:
    """Every GPU that NVML lists, or an unknown finding for one without a handle.

    Never empty: without NVML, or without a GPU, it is one unknown finding. One more follows if NVML
    lists too few GPUs.
    """
    yield from _cached_gpus(evidence)


@answer_once
def _cached_gpus(evidence: Evidence) -> tuple[Gpu | Finding, ...]:
    return tuple(_each_gpu(evidence))


def _each_gpu(evidence: Evidence) -> Iterator[Gpu | Finding]:
    section = evidence[Gpus]
    if section.data is None:
        yield unknown(why=f"NVML: {section.why}")
    elif section.data.gpus is None:
        yield unknown(why=f"NVML: {section.data.why('gpus')}")
    elif not section.data.gpus:
        yield unknown(why="NVML lists no GPU")
    else:
        for gpu, located_gpu in zip(section.data.gpus, located_gpus(evidence), strict=True):
            if "handle" in gpu.errors:
                yield unknown(subject_of(located_gpu), why=f"NVML: {gpu.why('handle')}")
            else:
                yield gpu
        missing = unlisted_gpus_finding(evidence)
        if missing is not None:
            yield missing


def every_gpu(evidence: Evidence) -> tuple[Gpu, ...]:
    """Every GPU that NVML lists, lost ones too; none without NVML."""
    return (data.gpus if (data := evidence[Gpus].data) else None) or ()


@answer_once
def answering_gpus(evidence: Evidence) -> tuple[Gpu, ...]:
    """The GPUs with a handle; none without NVML."""
    return tuple(gpu for gpu in every_gpu(evidence) if "handle" not in gpu.errors)


def read_kernel_log(evidence: Evidence) -> KernelLog | Finding:
    """The kernel log since boot with its events, or an unknown finding; not_applicable for captured
    files without a log."""
    section = evidence[KernelLog]
    if section.status == "absent":
        return not_applicable(why=section.why)
    if section.data is None:
        return unknown(why=f"kernel log: {section.why}")
    if section.data.events is None:
        return unknown(why=f"events: {section.data.why('events')}")
    return section.data


@answer_once
def off_the_bus(evidence: Evidence) -> frozenset[str]:
    """The addresses of the GPUs that no longer answer a read of their configuration."""
    gpus = data.of_kind("gpu") if (data := evidence[Pci].data) else ()
    return frozenset(function.address for function in gpus if function.revision == "ff")


@answer_once
def located_gpus(evidence: Evidence) -> tuple[Gpu, ...]:
    """Every GPU of NVML's list; a single lost one without an address gets its PCI address.

    It is the only function that no longer answers, or the only one that NVML does not name and no
    other driver has.
    """
    gpus = every_gpu(evidence)
    unlocated = [gpu for gpu in gpus if gpu.bus_id is None and lost_error(gpu)]
    if len(unlocated) != 1:
        return gpus
    known_ids = {gpu.bus_id for gpu in gpus}
    functions = gpu_functions(evidence)
    candidates = frozenset(
        function.address for function in functions if function.driver in (None, "nvidia")
    )
    addresses = (off_the_bus(evidence) - known_ids) or (candidates - known_ids)
    if len(addresses) != 1:
        return gpus
    replacement = msgspec.structs.replace(unlocated[0], bus_id=next(iter(addresses)))
    return tuple(replacement if gpu is unlocated[0] else gpu for gpu in gpus)


@answer_once
def losses(evidence: Evidence) -> tuple[str | None, ...]:
    """For each GPU of NVML's list its error if it is lost; see `lost`."""
    return tuple(lost_error(gpu) for gpu in located_gpus(evidence))


def pci_of(evidence: Evidence, gpu: Gpu) -> PciFunction | Finding:
    """The PCI function of a GPU, or an unknown finding with the reason."""
    subject, section = subject_of(gpu), evidence[Pci]
    if gpu.bus_id is None:
        return unread(subject, gpu, "bus_id")
    if section.data is None:
        return unknown(subject, why=f"PCI: {section.why}")
    if section.data.functions is None:
        return unread(subject, section.data, "functions")
    function = section.data.by_address.get(gpu.bus_id)
    return function or unknown(subject, why="not among the functions on the PCI bus")


def half_a_driver(evidence: Evidence) -> str:
    """The parts of a driver whose kernel module is loaded but whose library is missing; else "".

    It is "" without a loaded module, which kernel_modules reports, and if the library exists but
    does not load or refuses the module.
    """
    section, modules = evidence[Gpus], evidence[Modules].data
    is_missing = section.status == "absent" and section.why.startswith(NO_LIBRARY)
    if not is_missing or modules is None or not modules.nvidia_version:
        return ""
    return f"kernel module nvidia {modules.nvidia_version} is loaded; NVML: {section.why}"


DRIVER_FAULT = "kernel_modules module nvidia"
"""The finding that explains others if the driver is not loaded or incomplete."""
INSTALL_LIBRARY = (
    "install the library of the loaded module's own version (Ubuntu and Debian: libnvidia-compute "
    "of the branch, RHEL: nvidia-driver-cuda-libs); if a container provides the driver (GPU "
    "Operator: /run/nvidia/driver), the node's loader must find its libraries"
)


@answer_once
def nodes_of(evidence: Evidence) -> Mapping[int, NumaNode] | Finding:
    """{number: online NUMA node}; empty if the kernel has no NUMA."""
    section = evidence[Numa]
    if section.status == "absent":
        return {}
    if section.data is None:
        return unknown(why=f"NUMA: {section.why}")
    if not section.data.nodes:
        return unknown(why=f"nodes: {section.data.why('nodes')}")
    nodes = {node.id: node for node in section.data.nodes}
    online = numbers(section.data.online)
    if not online:
        online_text = section.data.online
        return unknown(
            why=f"online: {section.data.why('online') if online_text is None else online_text[:60]}"
        )
    if online - nodes.keys():
        read_count = len(online & nodes.keys())
        return unknown(why=f"{read_count} of {len(online)} NUMA nodes that are online were read")
    if nodes.keys() - online:
        return unknown(why=f"NUMA nodes that are not online: {spans(nodes.keys() - online)}")
    return nodes


def nearest(
    evidence: Evidence, node: NumaNode, nodes: Mapping[int, NumaNode]
) -> tuple[NumaNode, ...] | str:
    """The nodes with CPUs nearest to a node, itself if it has CPUs; or why they are unknown."""
    if not has_memory_alone(node):
        return (node,)
    order = sorted(numbers(data.online if (data := evidence[Numa].data) else None) or ())
    if node.distances is None or len(node.distances) != len(order):
        why = node.why("distances") if node.distances is None else "not one for each node"
        return f"NUMA node {node.id} has no CPUs, and its distances were not read: {why}"
    distance_of = dict(zip(order, node.distances, strict=True))
    if any(other.cpulist is None for other in nodes.values()):
        return "a NUMA node's cpulist was not read"
    nodes_with_cpus = [
        other for other in nodes.values() if numbers(other.cpulist) and other.id in distance_of
    ]
    shortest = min((distance_of[other.id] for other in nodes_with_cpus), default=None)
    if shortest is None:
        return "no NUMA node has CPUs"
    return tuple(other for other in nodes_with_cpus if distance_of[other.id] == shortest)


def is_virtual(evidence: Evidence) -> bool:
    """Whether the node is known to be a virtual machine, with virtual drives."""
    data = evidence[HostInfo].data
    return data is not None and data.virtualization not in (None, "none", "container")
