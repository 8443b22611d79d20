"""Every process that computes on a GPU is bound to that GPU's NUMA node.

**Why it matters.** If the scheduler may move a process to the other socket, or the process has its
memory there, it reaches its GPU over the link between sockets. Times then vary from run to run, and
the slowest rank slows down the job.

**Read from** NVML, nvmlDeviceGetComputeRunningProcesses, and `/proc/<pid>/status`:
Cpus_allowed_list and Mems_allowed_list; the GPU's numa_node under /sys/bus/pci/devices and the
nodes' cpulist.

**Verdicts.** A process may use the CPUs and memory of the nodes of all GPUs on which it computes. A
process that only has a GPU open, such as a monitor, is not applicable. If nodevet could not inspect
other users' processes, the node has an unknown finding for them. Mems_allowed shows the limits of
cgroups and cpusets, not the policy of numactl: for jobs bound by numactl set `memory: false`.
Memory-only nodes (a Grace Hopper GPU's own, CXL) belong to the node with the nearest CPUs, by
`node*/distance`. If only one node of a machine has CPUs, every process is bound.

**To fix it** let the scheduler bind processes: Slurm with `--gpu-bind` or `--cpus-per-gpu` and
task/affinity and task/cgroup, Kubernetes with the topology manager. nodevet has a fix for systemd
services: CPUAffinity= and NUMAPolicy=, and AllowedMemoryNodes= if the memory is judged, which needs
the unified cgroup hierarchy.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import ClassVar, Literal, NamedTuple

from nodevet.checking.named import reads_of
from nodevet.evidence.across import IN_HAND, each_gpu, nearest, nodes_of, pci_of
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, subject_of
from nodevet.evidence.lists import numbers
from nodevet.evidence.numa import NumaNode, has_memory_alone
from nodevet.evidence.processes import Process, Processes
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    Severity,
    Subject,
    fail,
    not_applicable,
    ok,
    unknown,
)


class Params(CheckParams):
    """`numa_binding: true` or `numa_binding: {bound: true, memory: false}`"""

    bare: ClassVar[str] = "bound"

    bound: Literal[True]
    memory: bool = True
    """Whether to judge the memory nodes too."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    users, unread_findings = users_of(evidence)
    complete = not unread_findings
    yield from unread_findings
    section = evidence[Processes]
    if section.data is None or section.data.processes is None:
        why = section.data.why("processes") if section.data else section.why
        yield unknown(why=f"processes: {why}")
        return
    known = {process.pid: process for process in section.data.processes}
    nodes = nodes_of(evidence)
    machine = nodes if isinstance(nodes, Finding) else machine_of(evidence, nodes)
    for pid, gpus in users.items():
        subject = Subject(kind="process", id=str(pid))
        if pid not in known:
            yield unknown(
                subject,
                why="NVML lists it, but /proc does not: it has ended, or runs in another pid "
                "namespace",
            )
        elif isinstance(machine, Finding):
            yield unknown(subject, why=machine.why)
        else:
            yield judge_process(known[pid], gpus, machine, params)
    for pid in sorted(known.keys() - users.keys()):
        subject = Subject(kind="process", id=str(pid))
        if complete:
            yield not_applicable(subject, why="it does not compute on a GPU")
        else:
            yield unknown(subject, why="NVML did not list the processes of every GPU")
    if section.data.complete is not True:
        why = section.data.errors.get("complete", "nodevet could not read other users' open files")
        yield unknown(why=f"there may be more processes: {why}")
    elif complete and not known and not users:
        yield not_applicable(why="no process uses a GPU")


def users_of(evidence: Evidence) -> tuple[dict[int, list[Gpu]], list[Finding]]:
    """The GPUs on which each process computes, by pid; and findings about those not read."""
    users: dict[int, list[Gpu]] = {}
    unread_findings = []
    for gpu in each_gpu(evidence):
        if isinstance(gpu, Finding):
            unread_findings.append(gpu)
        elif gpu.processes is None:
            unread_findings.append(unread(subject_of(gpu), gpu, "processes"))
        else:
            for process in gpu.processes:
                users.setdefault(process.pid, []).append(gpu)
    return users, unread_findings


class CpuLayout(NamedTuple):
    """The layout that all processes of a machine share; each part is computed once."""

    flat: bool  # at most one node has CPUs
    elsewhere: Callable[[Gpu], bool]
    homes: Callable[[Sequence[Gpu]], dict[int, NumaNode] | str]
    memory: Callable[[tuple[int, ...]], dict[int, NumaNode] | str]


def machine_of(evidence: Evidence, nodes: Mapping[int, NumaNode]) -> CpuLayout:
    near = cache(lambda node: nearest(evidence, nodes[node], nodes))
    memories = cache(
        lambda homes: memory_of(evidence, {node: nodes[node] for node in homes}, nodes, near)
    )
    return CpuLayout(
        flat=sum(not has_memory_alone(node) for node in nodes.values()) < 2,
        elsewhere=lambda gpu: is_elsewhere(evidence, gpu, nodes),
        homes=lambda gpus: homes_of(evidence, gpus, nodes, near),
        memory=memories,
    )


def judge_process(process: Process, gpus: list[Gpu], machine: CpuLayout, params: Params) -> Finding:
    subject = Subject(kind="process", id=str(process.pid))
    if machine.flat and not any(map(machine.elsewhere, gpus)):
        return not_applicable(subject, why="the machine has one NUMA node")
    homes = machine.homes(gpus)
    if isinstance(homes, str):
        return unknown(subject, why=homes)
    if any(numbers(home.cpulist) is None for home in homes.values()):
        return unknown(subject, why="a NUMA node's cpulist was not read")
    local = ",".join(home.cpulist or "" for home in homes.values())
    sides = {"cpus": (process.cpus_allowed, local)}
    if params.memory:
        memory = machine.memory(tuple(homes))
        if isinstance(memory, str):
            return unknown(subject, why=memory)
        sides["memory"] = (process.mems_allowed, ",".join(map(str, sorted(memory))))
    for key, (allowed, _) in sides.items():
        if not numbers(allowed):
            field = "cpus_allowed" if key == "cpus" else "mems_allowed"
            return unread(subject, process, field)
    outside = [
        key
        for key, (allowed, home) in sides.items()
        if not (numbers(allowed) or frozenset()) <= (numbers(home) or frozenset())
    ]
    shown = outside or list(sides)
    return (fail if outside else ok)(
        subject,
        expected={key: sides[key][1] for key in shown},
        actual={key: sides[key][0] for key in shown},
        why=process.command or "",
    )


def is_elsewhere(evidence: Evidence, gpu: Gpu, nodes: Mapping[int, NumaNode]) -> bool:
    """Whether the bus puts a GPU on a NUMA node that does not exist."""
    function = pci_of(evidence, gpu)
    node = None if isinstance(function, Finding) else function.numa_node
    return node is not None and node >= 0 and node not in (nodes or {0})


Near = Callable[[int], tuple[NumaNode, ...] | str]  # like nodevet.evidence.across.nearest


def homes_of(
    evidence: Evidence, gpus: Sequence[Gpu], nodes: Mapping[int, NumaNode], near: Near | None = None
) -> dict[int, NumaNode] | str:
    """The nodes with the CPUs nearest to these GPUs, by number; or why they are unknown."""
    near = near or (lambda node: nearest(evidence, nodes[node], nodes))
    homes: dict[int, NumaNode] = {}
    for gpu in gpus:
        home = home_of(evidence, gpu, nodes)
        if isinstance(home, str):
            return f"GPU {gpu.index}: {home}"
        near_nodes = near(home.id)
        if isinstance(near_nodes, str):
            return f"GPU {gpu.index}: {near_nodes}"
        homes.update({node.id: node for node in near_nodes})
    return homes


def memory_of(
    evidence: Evidence,
    homes: Mapping[int, NumaNode],
    nodes: Mapping[int, NumaNode],
    near: Near | None = None,
) -> dict[int, NumaNode] | str:
    """These nodes and the memory-only nodes nearest to them; or why these are unknown."""
    near = near or (lambda node: nearest(evidence, nodes[node], nodes))
    with_memory = dict(homes)
    for node in nodes.values():
        near_nodes = near(node.id) if has_memory_alone(node) else ()
        if isinstance(near_nodes, str):
            return near_nodes
        if near_nodes and {near_node.id for near_node in near_nodes} <= homes.keys():
            with_memory[node.id] = node
    return with_memory


def home_of(evidence: Evidence, gpu: Gpu, nodes: Mapping[int, NumaNode]) -> NumaNode | str:
    """The node of a GPU; or why it is unknown."""
    function = pci_of(evidence, gpu)
    if isinstance(function, Finding):
        return function.why
    if function.numa_node is None:
        return f"numa_node: {function.why('numa_node')}"
    if function.numa_node not in nodes:
        return "its NUMA node is unknown"
    return nodes[function.numa_node]


CHECK = Check(
    params=Params,
    area=Area.CPU,
    reads=(
        *IN_HAND,
        "gpu.gpus[].bus_id",
        "gpu.gpus[].processes[].pid",
        *reads_of("numa.nodes[]", "cpulist", "cpus_present", "distances[]", "id"),
        "numa.online",
        *reads_of("pci.functions[]", "address", "numa_node"),
        "processes.complete",
        *reads_of("processes.processes[]", "cpus_allowed", "mems_allowed", "pid"),
    ),
    judge=judge,
    unasked="sites bind jobs in their own way, or not at all: write numa_binding: true",
    severity=Severity.WARNING,
)
