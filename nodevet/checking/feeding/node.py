"""The limits of the input of a node's GPUs, from its evidence; and why some limits are not
known."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce

import msgspec

from nodevet.checking.feeding.interval import UNKNOWN, Interval, smaller
from nodevet.checking.feeding.units import link_rate
from nodevet.checking.feeding.workload import usable_rate
from nodevet.evidence.across import nearest, nodes_of, pci_of
from nodevet.evidence.cpu import Cpu
from nodevet.evidence.document import Evidence, answer_once
from nodevet.evidence.gpu import Gpu, Gpus
from nodevet.evidence.host import HostInfo
from nodevet.evidence.infiniband import Infiniband
from nodevet.evidence.lists import numbers
from nodevet.evidence.memory import Memory
from nodevet.evidence.network import Interface, Network
from nodevet.evidence.nvme import Nvme
from nodevet.evidence.pci import RATES, WIDTHS, Pci, PciFunction, generation_of
from nodevet.model import Finding

READS = (
    "cpu.cores",
    "cpu.threads",
    "gpu.count",
    "gpu.gpus[].bus_id",
    "gpu.gpus[].pcie_generation",
    "gpu.gpus[].pcie_generation_max",
    "gpu.gpus[].pcie_width",
    "host.virtualization",
    "pci.functions[].address",
    "pci.functions[].link_gts",
    "pci.functions[].link_gts_max",
    "pci.functions[].link_width",
    "pci.functions[].upstream[]",
)
"""The fields that `cores_and_links` reads: part of `reads` of a check that uses it."""
IDLE_GENERATIONS = 2  # the highest generation to which an idle link is lowered


class FeedNode(msgspec.Struct, frozen=True, kw_only=True):
    """One node. An interval without bounds, or null, is not known, and `unknown` says why."""

    gpus: int | None = None  # that NVML lists
    gpu_model: str = ""
    cores: int | None = None
    threads: int | None = None  # logical CPUs online
    near_cores: int | None = None  # the smallest share of a GPU in the cores of its NUMA node
    link: Interval = UNKNOWN  # bytes/s between host and GPU, for the slowest GPU
    link_best: Interval = UNKNOWN  # bytes/s that this GPU's slot can move
    link_words: str = ""  # Gen4 x16
    nvme: Interval = UNKNOWN  # bytes/s of the links of all NVMe drives together
    nvme_words: str = ""
    network: Interval = UNKNOWN  # bytes/s of all network links that are up
    network_words: str = ""
    memory_b: int | None = None
    unknown: Mapping[str, str] = {}  # why, by gpus, cores, near_cores, link, nvme, network, memory


class LinkFact(msgspec.Struct, frozen=True, kw_only=True):
    """The path between the host and a GPU."""

    now: Interval = UNKNOWN  # bytes/s
    best: Interval = UNKNOWN
    words: str = ""
    why: str = ""  # why it is not known


def feed_node(evidence: Evidence, job: int | None = None) -> FeedNode:
    """The limits of a node. `job`: the number of the job's GPUs on it; None: all GPUs."""
    node = cores_and_links(evidence, job)
    near, no_near = near_cores(evidence)
    nvme, nvme_words = nvme_links(evidence)
    network, network_words = network_links(evidence)
    memory = data.total_kb if (data := evidence[Memory].data) else None
    missing = {
        "near_cores": no_near if near is None else "",
        "nvme": nvme_words if nvme.high is None else "",
        "network": network_words if network.high is None else "",
        "memory": _why_no_memory(evidence) if memory is None else "",
    }
    return msgspec.structs.replace(
        node,
        gpu_model=_model(evidence),
        near_cores=near,
        nvme=nvme,
        nvme_words=nvme_words if nvme.high is not None else "",
        network=network,
        network_words=network_words if network.high is not None else "",
        memory_b=None if memory is None else memory * 1024,
        unknown={**node.unknown, **{name: why for name, why in missing.items() if why}},
    )


def cores_and_links(evidence: Evidence, job: int | None = None) -> FeedNode:
    """Only the limits of the CPU's and the link's stage, and the number of GPUs. `job`: the number
    of the job's GPUs, which may be any of the node's; None: all GPUs."""
    gpus = listed_gpus(evidence)
    bound, no_cpus = cpus(evidence)
    link = gpu_link(evidence, job)
    missing = {"gpus": gpus if isinstance(gpus, str) else "", "cores": no_cpus, "link": link.why}
    return FeedNode(
        gpus=None if isinstance(gpus, str) else len(gpus),
        cores=None if bound.high is None else round(bound.low),
        threads=None if bound.high is None else round(bound.high),
        link=link.now,
        link_best=link.best,
        link_words=link.words,
        unknown={name: why for name, why in missing.items() if why},
    )


@answer_once
def listed_gpus(evidence: Evidence) -> tuple[Gpu, ...] | str:
    """Every GPU that NVML counts; or why the GPUs are not known."""
    section = evidence[Gpus]
    if section.data is None:
        return f"NVML: {section.why}"
    gpus = section.data.gpus
    for field in ("gpus", "count"):
        if getattr(section.data, field) is None:
            return f"NVML: {field}: {section.data.why(field)}"
    if not gpus or len(gpus) != section.data.count:
        return f"NVML lists {len(gpus or ())} of {section.data.count} GPUs"
    for gpu in gpus:
        if "handle" in gpu.errors:
            return f"GPU {gpu.index}: NVML: {gpu.why('handle')}"
    return gpus


def _model(evidence: Evidence) -> str:
    gpus = listed_gpus(evidence)
    names = {gpu.name for gpu in gpus if gpu.name} if not isinstance(gpus, str) else ()
    return ", ".join(sorted(names)[:4])


def cpus(evidence: Evidence) -> tuple[Interval, str]:
    """How many workers can run at full speed at once: at least one for each core, and at most one
    for each logical CPU, because the second logical CPU of a core adds less than the first."""
    section = evidence[Cpu]
    if section.data is None:
        return UNKNOWN, f"cpu: {section.why}"
    for field in ("cores", "threads"):
        if getattr(section.data, field) is None:
            return UNKNOWN, f"cpu: {field}: {section.data.why(field)}"
    cores, threads = section.data.cores or 0, section.data.threads or 0
    if not 1 <= cores <= threads:
        return UNKNOWN, f"cpu: {cores} cores with {threads} logical CPUs"
    return Interval(cores, threads), ""


def near_cores(evidence: Evidence) -> tuple[int | None, str]:
    """The smallest share that a GPU has of the cores of its own NUMA node; or why it is not
    known."""
    bound, why = cpus(evidence)
    nodes, gpus = nodes_of(evidence), listed_gpus(evidence)
    if bound.high is None or isinstance(nodes, Finding):
        return None, why or (nodes.why if isinstance(nodes, Finding) else "")
    if isinstance(gpus, str):
        return None, gpus
    near: list[frozenset[int]] = []
    for gpu in gpus:
        function = pci_of(evidence, gpu)
        if isinstance(function, Finding):
            return None, function.why
        place = function.numa_node
        if len(nodes) == 1 and (place is None or place < 0):
            place = next(iter(nodes))
        if place is None or place not in nodes:
            return None, f"{function.address}: the firmware does not say on which NUMA node it is"
        nodes_beside = nearest(evidence, nodes[place], nodes)
        if isinstance(nodes_beside, str):
            return None, nodes_beside
        lists = [numbers(node.cpulist) for node in nodes_beside]
        if not all(lists):
            return None, f"NUMA node {place}: its CPUs are not known"
        near.append(frozenset().union(*(cpus_of_gpu for cpus_of_gpu in lists if cpus_of_gpu)))
    shared = Counter(near)
    threads = min(len(gpu) / shared[gpu] for gpu in near)
    return int(threads * bound.low / bound.high), ""


def gpu_link(evidence: Evidence, job: int | None = None) -> LinkFact:
    """The slowest path between the host and a GPU, including ports that the GPU shares with others
    of the job."""
    gpus = listed_gpus(evidence)
    if isinstance(gpus, str):
        return LinkFact(why=gpus)
    listed = len(gpus)
    ways = [_way(evidence, gpu, min(job or listed, listed), listed) for gpu in gpus]
    unknown = next((way for way in ways if way.why), None)
    known = [way for way in ways if way.now.high is not None]
    slowest = min(known, key=lambda way: way.now.high or 0.0, default=LinkFact())
    now = reduce(smaller, (way.now for way in ways))
    return LinkFact(
        now=now, best=slowest.best, words=slowest.words, why=unknown.why if unknown else ""
    )


def _way(evidence: Evidence, gpu: Gpu, job: int, listed: int) -> LinkFact:
    """The GPU's own link, and its share of the links above. `job`: how many of the `listed` GPUs
    the job has."""
    own = _own_link(gpu)
    if own.why:
        return own
    ports = _shared_ports(evidence, gpu)
    if isinstance(ports, str):
        return LinkFact(now=Interval(0.0, own.now.high), best=own.best, words=own.words, why=ports)
    for port, gpus in ports:
        rate, best = _port_rate(port)
        if rate is UNKNOWN:
            why = f"{port.address}: the link is not known"
            return LinkFact(now=Interval(0.0, own.now.high), words=own.words, why=why)
        share, share_best = (_share(port_rate, gpus, job, listed) for port_rate in (rate, best))
        most = min(gpus, job)
        if most > 1 and share.low < own.now.low:
            words = f"{_words(port)} for {most} GPUs, at {port.address}"
            own = msgspec.structs.replace(own, words=words)
        own = msgspec.structs.replace(
            own, now=smaller(own.now, share), best=smaller(own.best, share_best)
        )
    return own


def _share(port: Interval, below: int, job: int, listed: int) -> Interval:
    """The share of a port that a GPU of the job has: between the cases that as many and as few
    other GPUs of the job as possible share the port."""
    most, least = min(below, job), max(1, below - (listed - job))
    return Interval(port.low / most, None if port.high is None else port.high / least)


def _own_link(gpu: Gpu) -> LinkFact:
    """The GPU's link as NVML reports it. An idle GPU lowers its link, and raises it under load."""
    now, most, width = gpu.pcie_generation, gpu.pcie_generation_max, gpu.pcie_width
    label = f"GPU {gpu.index}"
    if now not in RATES:
        return LinkFact(why=f"{label}: pcie_generation: {_why_unusable(gpu, 'pcie_generation')}")
    if width not in WIDTHS:
        return LinkFact(why=f"{label}: pcie_width: {_why_unusable(gpu, 'pcie_width')}")
    full = usable_rate(link_rate(now, width))
    if now > IDLE_GENERATIONS:
        best = full if most not in RATES else usable_rate(link_rate(max(most, now), width))
        return LinkFact(now=full, best=best, words=f"Gen{now} x{width}")
    if most not in RATES:
        why = f"{label}: pcie_generation_max: {_why_unusable(gpu, 'pcie_generation_max')}"
        return LinkFact(now=Interval(full.low, None), words=f"Gen{now} x{width}", why=why)
    best = usable_rate(link_rate(max(most, now), width))
    words = f"Gen{now} x{width}" + (f" while idle, up to Gen{most}" if most > now else "")
    return LinkFact(now=Interval(full.low, best.high), best=best, words=words)


def _why_unusable(gpu: Gpu, field: str) -> str:
    value = getattr(gpu, field)
    return gpu.why(field) if value is None else f"NVML says {value}"


def _shared_ports(evidence: Evidence, gpu: Gpu) -> tuple[tuple[PciFunction, int], ...] | str:
    """The ports above the GPU, each with the number of GPUs below it, or why they are not known. A
    virtual machine has none, because its ports are not real."""
    host = evidence[HostInfo].data
    if host is None or not host.virtualization:
        return f"virtualization: {host.why('virtualization') if host else evidence[HostInfo].why}"
    if host.virtualization not in ("none", "container"):
        return ()
    function = pci_of(evidence, gpu)
    if isinstance(function, Finding):
        return function.why
    if function.upstream is None or "upstream" in function.errors:
        return f"{function.address}: upstream: {function.why('upstream')}"
    known = data.by_address if (data := evidence[Pci].data) else {}
    below = _gpus_below(evidence)
    ports = []
    for address in function.upstream:
        if address not in known:
            return f"{address}, a port above the GPU, is not in the evidence"
        ports.append((known[address], max(1, below[address])))
    return tuple(ports)


@answer_once
def _gpus_below(evidence: Evidence) -> Counter[str]:
    """The number of NVML's GPUs below each port."""
    counts: Counter[str] = Counter()
    gpus = listed_gpus(evidence)
    for gpu in () if isinstance(gpus, str) else gpus:
        function = pci_of(evidence, gpu)
        if isinstance(function, PciFunction):
            counts.update(set(function.upstream or ()))
    return counts


def _port_rate(port: PciFunction) -> tuple[Interval, Interval]:
    """The rates of a port's link, now and at best. An idle link may be lowered, too."""
    now, most = generation_of(port.link_gts), generation_of(port.link_gts_max)
    if not now or port.link_width not in WIDTHS:
        return UNKNOWN, UNKNOWN
    rate = usable_rate(link_rate(now, port.link_width))
    best = usable_rate(link_rate(max(now, most), port.link_width))
    if now > IDLE_GENERATIONS:
        return rate, best
    return Interval(rate.low, best.high if most else None), best


def _words(port: PciFunction) -> str:
    return f"Gen{generation_of(port.link_gts)} x{port.link_width}"


def nvme_links(evidence: Evidence) -> tuple[Interval, str]:
    """The highest rate of the links of all NVMe drives together, and its text, or why it is not
    known. The drives' flash may be slower."""
    section, bus = evidence[Nvme], evidence[Pci].data
    if section.data is None or section.data.controllers is None:
        return UNKNOWN, f"nvme: {section.data.why('controllers') if section.data else section.why}"
    rates = []
    for drive in section.data.controllers:
        function = bus.by_address.get(drive.address or "") if bus else None
        rate = _port_rate(function)[1] if function else UNKNOWN
        if rate.high is None:
            return UNKNOWN, f"{drive.name[:40]}: the PCIe link is not known"
        rates.append(rate.high)
    if not rates:
        return UNKNOWN, "the node has no NVMe drive"
    return Interval(0.0, sum(rates)), f"{len(rates)} NVMe drives" if len(rates) > 1 else "one drive"


def network_links(evidence: Evidence) -> tuple[Interval, str]:
    """The highest rate of all network links together that are up, Ethernet and InfiniBand."""
    section = evidence[Network]
    if section.data is None or section.data.interfaces is None:
        why = section.data.why("interfaces") if section.data else section.why
        return UNKNOWN, f"network: {why}"
    gbps: list[float] = []
    for interface in _ethernets(section.data.interfaces):
        if interface.speed_mbps is None or interface.speed_mbps <= 0:
            return UNKNOWN, f"{interface.name[:40]}: speed: {interface.why('speed_mbps')}"
        gbps.append(interface.speed_mbps / 1000)
    ports = _infiniband_gbps(evidence)
    if isinstance(ports, str):
        return UNKNOWN, ports
    gbps += ports
    if not gbps:
        return UNKNOWN, "no network link is up"
    speeds = Counter(gbps).most_common(4)
    words = ", ".join(f"{number} × {speed:g} Gbit/s" for speed, number in speeds)
    return Interval(0.0, sum(gbps) * 1e9 / 8), words


def _ethernets(interfaces: Iterable[Interface]) -> Iterator[Interface]:
    """The ports of NICs that are up, or may be up."""
    for interface in interfaces:
        if interface.kind == "physical" and interface.type == 1 and interface.operstate != "down":
            yield interface


def _infiniband_gbps(evidence: Evidence) -> list[float] | str:
    """The rates of all InfiniBand ports that are up; or why the rates are not known."""
    section = evidence[Infiniband]
    if section.status == "absent":
        return []
    if section.data is None or section.data.devices is None:
        why = section.data.why("devices") if section.data else section.why
        return f"infiniband: {why}"
    rates = []
    for device in section.data.devices:
        if device.ports is None:
            return f"{device.name[:40]}: ports: {device.why('ports')}"
        for port in device.ports:
            if port.link_layer == "Ethernet" or port.state in ("DOWN", "INIT"):
                continue
            if port.rate_gbps is None:
                return f"{device.name[:40]}: rate: {port.why('rate_gbps')}"
            rates.append(port.rate_gbps)
    return rates


def _why_no_memory(evidence: Evidence) -> str:
    section = evidence[Memory]
    return f"memory: {section.data.why('total_kb') if section.data else section.why}"
