"""What several sections say together: which GPUs there are, and where they are."""

from collections.abc import Collection, Iterator, Mapping

import msgspec

from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence, once
from nodevet.evidence.gpu import NO_LIBRARY, Gpu, Gpus, lost, subject_of
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
"""What says how many GPUs there are to be judged: part of `reads` of whoever uses `each_gpu`."""


@once
def gpu_functions(evidence: Evidence) -> tuple[PciFunction, ...]:
    """The GPUs on the PCI bus that the NVIDIA driver of this machine has, or ought to have."""
    mine = data.of_kind("gpu") if (data := evidence[Pci].data) else ()
    return tuple(each for each in mine if each.driver not in KEPT_FOR_GUESTS)


def unlisted(evidence: Evidence, judged: Collection[str] = ()) -> Finding | None:
    """The unknown finding if NVML lists fewer GPUs than it counts, or than are on the bus.

    `judged`: addresses on the bus that the check has judged without NVML.
    """
    data = evidence[Gpus].data
    if data is None or data.gpus is None:
        return None
    named = {gpu.bus_id for gpu in data.gpus}
    functions = (each.address for each in gpu_functions(evidence))
    on_bus = [address for address in functions if address in named or address not in judged]
    there = max(data.count or 0, len(on_bus))
    if len(data.gpus) >= there:
        return None
    left = [address for address in on_bus if address not in named]
    told = f": not {', '.join(left[:8])}" if 0 < len(left) <= there - len(data.gpus) else ""
    return unknown(why=f"NVML lists {len(data.gpus)} of {there} GPUs{told}")


def each_gpu(evidence: Evidence) -> Iterator[Gpu | Finding]:
    """Every GPU that NVML lists; in place of one that cannot be asked, the finding that says so.

    Never empty: without NVML, or without a GPU, it is one unknown finding. So it is, after the
    others, if NVML lists fewer than there are.
    """
    yield from _in_hand(evidence)


@once
def _in_hand(evidence: Evidence) -> tuple[Gpu | Finding, ...]:
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
        for gpu, found in zip(section.data.gpus, located(evidence), strict=True):
            if "handle" in gpu.errors:
                yield unknown(subject_of(found), why=f"NVML: {gpu.why('handle')}")
            else:
                yield gpu
        short = unlisted(evidence)
        if short is not None:
            yield short


def every_gpu(evidence: Evidence) -> tuple[Gpu, ...]:
    """Every GPU that NVML lists, lost ones too; none without NVML."""
    return (data.gpus if (data := evidence[Gpus].data) else None) or ()


@once
def answering(evidence: Evidence) -> tuple[Gpu, ...]:
    """The GPUs that NVML can ask; none without NVML."""
    return tuple(gpu for gpu in every_gpu(evidence) if "handle" not in gpu.errors)


def logged(evidence: Evidence) -> KernelLog | Finding:
    """The kernel log since boot, with its events; in place of one that cannot be read, the
    finding that says so. Captured files without a log are excepted."""
    section = evidence[KernelLog]
    if section.status == "absent":
        return not_applicable(why=section.why)
    if section.data is None:
        return unknown(why=f"kernel log: {section.why}")
    if section.data.events is None:
        return unknown(why=f"events: {section.data.why('events')}")
    return section.data


@once
def off_the_bus(evidence: Evidence) -> frozenset[str]:
    """The addresses of the GPUs that no longer answer a read of their configuration."""
    gpus = data.of_kind("gpu") if (data := evidence[Pci].data) else ()
    return frozenset(each.address for each in gpus if each.revision == "ff")


@once
def located(evidence: Evidence) -> tuple[Gpu, ...]:
    """Every GPU of NVML's list, a lost one of no known address with the one that is left over.

    NVML may have forgotten where a GPU is that it cannot reach; the PCI bus has not: it is the
    one function that no longer answers, or the only one that NVML does not name and that no
    other driver has.
    """
    gpus = every_gpu(evidence)
    nameless = [gpu for gpu in gpus if gpu.bus_id is None and lost(gpu)]
    if len(nameless) != 1:
        return gpus
    named = {gpu.bus_id for gpu in gpus}
    functions = gpu_functions(evidence)
    mine = frozenset(each.address for each in functions if each.driver in (None, "nvidia"))
    left = (off_the_bus(evidence) - named) or (mine - named)
    if len(left) != 1:
        return gpus
    found = msgspec.structs.replace(nameless[0], bus_id=next(iter(left)))
    return tuple(found if gpu is nameless[0] else gpu for gpu in gpus)


@once
def losses(evidence: Evidence) -> tuple[str | None, ...]:
    """Of each GPU of NVML's list the error that says that it is lost; see `lost`."""
    return tuple(lost(gpu) for gpu in located(evidence))


def pci_of(evidence: Evidence, gpu: Gpu) -> PciFunction | Finding:
    """The PCI function of a GPU, or the unknown finding that says why it cannot be told."""
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
    """What is there of a driver whose kernel module is loaded and whose library is not there.

    Empty without a loaded module: then there is no driver, or another one, and kernel_modules
    says which. So it is if the library is there and does not load, or refuses the module.
    """
    section, modules = evidence[Gpus], evidence[Modules].data
    missing = section.status == "absent" and section.why.startswith(NO_LIBRARY)
    if not missing or modules is None or not modules.nvidia_version:
        return ""
    return f"kernel module nvidia {modules.nvidia_version} is loaded; NVML: {section.why}"


DRIVER_FAULT = "kernel_modules module nvidia"
"""The finding that others follow from if the driver is not loaded or not whole."""
INSTALL_LIBRARY = (
    "install the library of the loaded module's own version (Ubuntu and Debian: libnvidia-compute "
    "of the branch, RHEL: nvidia-driver-cuda-libs); of a driver that a container brings (GPU "
    "Operator: /run/nvidia/driver) the node's loader must know its libraries"
)


@once
def nodes_of(evidence: Evidence) -> Mapping[int, NumaNode] | Finding:
    """Every NUMA node that is online, by number; none of them if the kernel has no NUMA."""
    section = evidence[Numa]
    if section.status == "absent":
        return {}
    if section.data is None:
        return unknown(why=f"NUMA: {section.why}")
    if not section.data.nodes:
        return unknown(why=f"nodes: {section.data.why('nodes')}")
    found = {node.id: node for node in section.data.nodes}
    online = numbers(section.data.online)
    if not online:
        told = section.data.online
        return unknown(why=f"online: {section.data.why('online') if told is None else told[:60]}")
    if online - found.keys():
        there = len(online & found.keys())
        return unknown(why=f"{there} of {len(online)} NUMA nodes that are online were read")
    if found.keys() - online:
        return unknown(why=f"NUMA nodes that are not online: {spans(found.keys() - online)}")
    return found


def nearest(
    evidence: Evidence, node: NumaNode, nodes: Mapping[int, NumaNode]
) -> tuple[NumaNode, ...] | str:
    """The nodes whose CPUs are nearest to a node, itself if it has some; or why not known."""
    if not has_memory_alone(node):
        return (node,)
    order = sorted(numbers(data.online if (data := evidence[Numa].data) else None) or ())
    if node.distances is None or len(node.distances) != len(order):
        known = node.why("distances") if node.distances is None else "not one for each node"
        return f"NUMA node {node.id} has no CPUs, and its distances were not read: {known}"
    away = dict(zip(order, node.distances, strict=True))
    if any(each.cpulist is None for each in nodes.values()):
        return "a NUMA node's cpulist was not read"
    with_cpus = [each for each in nodes.values() if numbers(each.cpulist) and each.id in away]
    least = min((away[each.id] for each in with_cpus), default=None)
    if least is None:
        return "no NUMA node has CPUs"
    return tuple(each for each in with_cpus if away[each.id] == least)


def is_virtual(evidence: Evidence) -> bool:
    """Whether it is known to be a virtual machine, whose drives are those of its host."""
    data = evidence[HostInfo].data
    return data is not None and data.virtualization not in (None, "none", "container")
