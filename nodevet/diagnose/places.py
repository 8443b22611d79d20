"""How far a job's CPUs and memory are from its GPU (pure)."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from nodevet.diagnose.hot import ticks_by_cpu
from nodevet.diagnose.model import Figure
from nodevet.diagnose.series import percent
from nodevet.evidence.across import nearest
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu_activity import GpuActivity
from nodevet.evidence.lists import numbers
from nodevet.evidence.numa import Numa, NumaNode
from nodevet.evidence.pci import Pci
from nodevet.evidence.process_activity import CgroupActivity, ProcessActivity

NAMES = {
    "remote_cpus": "CPU time of the job far from its GPU",
    "remote_memory": "memory of the job far from its GPU",
}
REMOTE = 20  # the distance of another socket's nodes at least: linux/topology.h
AT_LEAST = "at least, by its cgroup"
Nodes = Mapping[int, NumaNode]


class GpuHome(NamedTuple):
    """Where a GPU is."""

    node: int
    cpus: frozenset[int]  # of its socket
    far: frozenset[str]  # the nodes of other sockets; one without CPUs is of none


def place_figures(
    processes: Sequence[ProcessActivity],
    cgroups: Iterable[CgroupActivity],
    evidence: Evidence,
    gpu: GpuActivity,
    unread: str,
) -> Iterator[Figure]:
    """`unread`: why the threads of these processes are not known."""
    home = home_of(evidence, gpu)
    if isinstance(home, str):
        yield from (_figure(name, None, home) for name in NAMES)
        return
    note = f"its GPU is on NUMA node {home.node}"
    yield _figure("remote_cpus", None if unread else _far_ticks(processes, home), unread, note)
    share = _far_pages(processes, home)
    if share is None:
        share, note = _far_at_least(processes, cgroups, home), f"{AT_LEAST}; {note}"
    yield _figure("remote_memory", share, "nodevet could not read where its pages are", note)


def _figure(name: str, value: float | None, why: str = "", note: str = "") -> Figure:
    return Figure(name, value, "%", NAMES[name], why if value is None else "", note)


def _far_ticks(processes: Iterable[ProcessActivity], home: GpuHome) -> float:
    """Percent of their CPU time; 0 of none."""
    ticks_at = [
        cpu_ticks
        for process in processes
        for thread in process.threads or ()
        for cpu_ticks in ticks_by_cpu(thread)
    ]
    far = sum(ticks for cpu, ticks in ticks_at if cpu not in home.cpus)
    return percent(far, sum(ticks for _, ticks in ticks_at)) or 0.0


def _far_pages(processes: Sequence[ProcessActivity], home: GpuHome) -> float | None:
    """Percent of their pages; None unless those of each process were read."""
    pages = [process.pages for process in processes]
    listed = [by_node for by_node in pages if by_node is not None]
    if len(listed) < len(pages):
        return None
    far = sum(_far_of(by_node, home) for by_node in listed)
    return percent(far, sum(sum(by_node.values()) for by_node in listed))


def _far_of(pages: Mapping[str, int], home: GpuHome) -> int:
    return sum(number for node, number in pages.items() if node in home.far)


def _far_at_least(
    processes: Iterable[ProcessActivity], cgroups: Iterable[CgroupActivity], home: GpuHome
) -> float | None:
    """Percent of the largest process: what its cgroup has near its GPU may all be of this process,
    and may all be of others, or of the page cache."""
    largest = max(processes, key=lambda process: process.resident_kb or 0, default=None)
    group = next((cgroup for cgroup in cgroups if largest and cgroup.path == largest.cgroup), None)
    if largest is None or group is None or group.pages_b is None:
        return None
    near_kb = (sum(group.pages_b.values()) - _far_of(group.pages_b, home)) / 1024
    far_kb = (largest.resident_kb or 0) - near_kb
    return percent(max(0.0, far_kb), largest.resident_kb)


def home_of(evidence: Evidence, gpu: GpuActivity) -> GpuHome | str:
    """What is near a GPU, or why that is not known. On a machine with one node, everything is."""
    numa = evidence[Numa]
    if numa.data is None or numa.data.nodes is None:
        return numa.why or "the NUMA nodes were not read"
    nodes = {node.id: node for node in numa.data.nodes}
    with_cpus = [node.id for node in nodes.values() if node.cpulist]
    if len(with_cpus) == 1:
        return _home(with_cpus[0], with_cpus, nodes)
    own = nodes.get(_node_of(evidence, gpu))
    if own is None:
        return "the NUMA node of the GPU is not known"
    homes = nearest(evidence, own, nodes)
    if isinstance(homes, str):
        return homes
    home = _home(
        own.id, {near for home_node in homes for near in _of_socket(home_node, nodes)}, nodes
    )
    return home if home.cpus else "the CPUs near the GPU are not known"


def _node_of(evidence: Evidence, gpu: GpuActivity) -> int:
    """The NUMA node of its PCI function; -1 if that is not known."""
    pci = evidence[Pci].data
    functions = (pci.functions if pci else None) or ()
    found = (function.numa_node for function in functions if function.address == gpu.bus_id)
    return -1 if (node := next(found, None)) is None else node


def _of_socket(node: NumaNode, nodes: Nodes) -> frozenset[int]:
    """The nodes of its socket, of which firmware can make several (SNC, NPS): by their distances,
    or itself."""
    distances = node.distances or ()
    if len(distances) != len(nodes):
        return frozenset({node.id})
    near = (node_id for node_id, far in zip(sorted(nodes), distances, strict=True) if far < REMOTE)
    return frozenset({node.id, *near})


def _home(node: int, near: Collection[int], nodes: Nodes) -> GpuHome:
    cpus = (numbers(nodes[node_id].cpulist) or frozenset() for node_id in near)
    far = frozenset(
        str(other.id) for other in nodes.values() if other.cpulist and other.id not in near
    )
    return GpuHome(node, frozenset().union(*cpus), far)
