"""Every GPU is attached to the expected NUMA node and local CPUs.

**Why it matters.** A process on the wrong socket reaches its GPU over the link between sockets:
less bandwidth and more latency for every copy and every kernel launch. To bind a process to the
right socket, the firmware must report which one it is.

**Read from** `/sys/bus/pci/devices/*/{numa_node,local_cpulist}` of each GPU, joined to NVML's
list by bus id, and `/sys/devices/system/node/node*/cpulist`.

**Verdicts.** `platform` expects that the node exists and that the GPU's local CPUs are the CPUs of
that node. A map from GPU indices to nodes expects these nodes; a GPU that is not in the map is not
applicable. A memory-only node (a Grace Hopper GPU's own, CXL) is not a fault: a GPU on it counts as
on the node with the nearest CPUs, by `node*/distance`. If the firmware reports no node (-1), the
GPU is unknown, unless only one node has CPUs. A kernel without NUMA has one node, 0.

**To fix it** a GPU on another node is in another slot, or the indices shifted because a GPU is
missing (`gpu_count`). For -1 on a machine of several nodes, enable NUMA in the BIOS and disable
node interleaving, update the BIOS, or pass the topology to the guest.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from nodevet.checking.aspects import each_fact
from nodevet.checking.named import reads_of
from nodevet.evidence.across import IN_HAND, answering_gpus, each_gpu, nearest, nodes_of, pci_of
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, Gpus, subject_of
from nodevet.evidence.lists import numbers, spans
from nodevet.evidence.numa import NumaNode, has_memory_alone
from nodevet.evidence.pci import PciFunction
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    FieldError,
    Finding,
    Subject,
    Value,
    Verdict,
    fail,
    not_applicable,
    ok,
    unknown,
)

MOVED = (
    "check the GPU's slot and riser cable: one of them belongs to the other socket; compare the "
    "labels with a healthy node and move the GPU. Until then, bind its jobs to its present node"
)
ALL_MOVED = (
    "no GPU is on the expected node, so no single slot is at fault: NPS (AMD) or Sub-NUMA "
    "Clustering (Intel) in the BIOS splits the sockets differently, or the GPU indices shifted "
    "because one is missing (see gpu_count)"
)
NO_NUMA = "remove numa=off from the kernel's command line; disable node interleaving in the BIOS"
UNREPORTED = (
    "enable NUMA and disable node interleaving in the BIOS, or update it; for a virtual machine, "
    "the hypervisor must pass the topology to the guest"
)
NO_NODE = (
    "the firmware names a node that the kernel did not bring up: check `numactl -H` for a socket "
    "without memory, and the kernel's command line for numa=, mem= or maxcpus=; otherwise update "
    "the BIOS"
)
OFFLINE = (
    "check `lscpu` for offline CPUs and bring them online; if there are none, the firmware's "
    "tables are wrong: update the BIOS, or correct the virtual machine's topology"
)


Node = Annotated[int, Meta(ge=0, lt=1024)]


class Params(CheckParams):
    """`numa_locality: platform` or `numa_locality: {gpus: {0-3: 0, 4-7: 1}}`"""

    bare: ClassVar[str] = "gpus"

    gpus: Literal["platform"] | Annotated[dict[str, Node], Meta(min_length=1)]
    """The NUMA node of GPU indices."""

    def __post_init__(self) -> None:
        named: set[int] = set()
        for key in self.gpus if isinstance(self.gpus, dict) else ():
            indices = numbers(key)
            if not indices:
                text = f"{key!r} is not a list of GPU indices (examples: 0-3, 0,2)"
                raise FieldError(text, "gpus", key)
            if named & indices:
                text = f"GPU {min(named & indices)} is in more than one list"
                raise FieldError(text, "gpus", key)
            named |= indices

    @property
    def node_of(self) -> Mapping[int, int]:
        if isinstance(self.gpus, str):
            return {}
        return {index: node for key, node in self.gpus.items() for index in numbers(key) or ()}


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    findings = tuple(findings_of(evidence, params))
    moved = [finding for finding in findings if finding.advice == MOVED]
    right = any(finding.verdict is Verdict.OK for finding in findings)
    for finding in findings:
        if finding.advice == MOVED:
            advice = MOVED if right or len(moved) == 1 else ALL_MOVED
            yield msgspec.structs.replace(finding, advice=advice)
        else:
            yield finding


def findings_of(evidence: Evidence, params: Params) -> Iterator[Finding]:
    nodes, homes = nodes_of(evidence), params.node_of
    for gpu in each_gpu(evidence):
        if isinstance(gpu, Finding):
            yield gpu
        elif params.gpus != "platform" and gpu.index not in homes:
            yield not_applicable(subject_of(gpu), why="the baseline names no NUMA node for it")
        elif isinstance(nodes, Finding):
            yield unknown(subject_of(gpu), why=nodes.why)
        else:
            yield from judge_gpu(evidence, gpu, nodes, homes.get(gpu.index))
    gpus = data.gpus if (data := evidence[Gpus].data) else None
    missing = set(homes) - {gpu.index for gpu in gpus or ()}
    for index in sorted(missing) if gpus else ():
        yield unknown(Subject(kind="gpu", id=str(index)), why="NVML lists no such GPU")


def judge_gpu(
    evidence: Evidence, gpu: Gpu, nodes: Mapping[int, NumaNode], expected: int | None
) -> Iterator[Finding]:
    subject, function = subject_of(gpu), pci_of(evidence, gpu)
    if not nodes:
        yield without_numa(subject, function, expected)
    elif isinstance(function, Finding):
        yield function
    elif function.numa_node is None:
        yield unread(subject, function, "numa_node")
    else:
        with_cpus = [node.id for node in nodes.values() if not has_memory_alone(node)]
        actual = function.numa_node
        if actual < 0 and len(with_cpus) == 1:
            actual = with_cpus[0]
        yield from judge_node(evidence, subject, function, nodes, actual, expected)


def without_numa(
    subject: Subject, function: PciFunction | Finding, expected: int | None
) -> Finding:
    if isinstance(function, PciFunction) and (function.numa_node or 0) > 0:
        why = f"no NUMA nodes were found, but the GPU is on node {function.numa_node}"
        return unknown(subject, expected=expected, why=why)
    why = "the kernel has no NUMA"
    if expected:
        return fail(subject, expected=expected, actual="none", why=why, advice=NO_NUMA)
    return not_applicable(subject, why=why)


def judge_node(
    evidence: Evidence,
    subject: Subject,
    function: PciFunction,
    nodes: Mapping[int, NumaNode],
    actual: int,
    expected: int | None,
) -> Iterator[Finding]:
    """Whether the GPU is on the expected node, and whether its local CPUs belong to that node."""
    if actual < 0:
        why = "the firmware does not report its NUMA node"
        yield unknown(subject, expected=expected, why=why, advice=UNREPORTED)
    elif actual in nodes and has_memory_alone(nodes[actual]):
        yield from judge_memory(evidence, subject, function, nodes, actual, expected)
    else:
        facts = [ok(subject, expected=actual, actual=actual)]
        if expected not in (None, actual):
            facts.append(fail(subject, expected=expected, actual=actual, advice=MOVED))
        elif actual not in nodes:
            why = "this node does not exist"
            facts.append(
                fail(subject, expected=sorted(nodes), actual=actual, why=why, advice=NO_NODE)
            )
        if actual in nodes:
            facts.append(judge_cpus(subject, function, nodes[actual]))
        yield from each_fact(facts)


def judge_memory(
    evidence: Evidence,
    subject: Subject,
    function: PciFunction,
    nodes: Mapping[int, NumaNode],
    actual: int,
    expected: int | None,
) -> Iterator[Finding]:
    """A GPU on a memory-only node: judged by that node and by the nodes of the nearest CPUs."""
    homes = nearest(evidence, nodes[actual], nodes)
    if isinstance(homes, str):
        yield unknown(subject, expected=expected, why=homes)
        return
    near = spans(home.id for home in homes)
    why = f"node {actual} has no CPUs; the nearest CPUs are on node {near}"
    shown = actual if expected is None else expected
    facts = [ok(subject, expected=shown, actual=shown, why=why)]
    if expected is not None and expected not in (actual, *(home.id for home in homes)):
        facts.append(fail(subject, expected=expected, actual=actual, why=why, advice=MOVED))
    local = numbers(function.local_cpulist)
    cpus = frozenset().union(*(numbers(home.cpulist) or () for home in homes))
    if local is None:
        facts.append(unread(subject, function, "local_cpulist"))
    elif local and local != cpus:
        misplaced = fail(
            subject,
            expected=spans(cpus),
            actual=function.local_cpulist,
            why=f"its local CPUs are not those nearest to its NUMA node {actual}",
            advice=OFFLINE,
        )
        facts.append(misplaced)
    yield from each_fact(facts)


def judge_cpus(subject: Subject, function: PciFunction, node: NumaNode) -> Finding:
    local, cpus = numbers(function.local_cpulist), numbers(node.cpulist)
    if local is None:
        return unread(subject, function, "local_cpulist")
    if cpus is None:
        return unread(subject, node, "cpulist")
    if not local and not cpus:
        return unknown(subject, why=f"no CPU of NUMA node {node.id} is online")
    if local != cpus:
        return fail(
            subject,
            expected=node.cpulist,
            actual=function.local_cpulist,
            why=f"its local CPUs are not those of its NUMA node {node.id}",
            advice=OFFLINE,
        )
    return ok(subject, expected=node.id, actual=node.id)


def learn(evidence: Evidence) -> Value:
    return "platform" if answering_gpus(evidence) else None


CHECK = Check(
    params=Params,
    area=Area.CPU,
    reads=(
        *IN_HAND,
        *reads_of("gpu.gpus[]", "bus_id", "index"),
        *reads_of("numa.nodes[]", "cpulist", "cpus_present", "distances[]", "id"),
        "numa.online",
        *reads_of("pci.functions[]", "address", "local_cpulist", "numa_node"),
    ),
    judge=judge,
    unasked="for servers: a workstation has one NUMA node, or reports none",
    learn=learn,
)
