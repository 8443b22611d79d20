"""The node sees all installed memory, and every NUMA node has its share.

**Why it matters.** The firmware silently leaves out a DIMM that failed its training at boot: the
node boots with less memory, jobs that fitted are killed, and the missing memory channel lowers the
bandwidth of its NUMA node.

**Read from** /proc/meminfo, MemTotal, and /sys/devices/system/node/node*/meminfo.

**Verdicts.** `minimum_gib` is the installed memory; firmware and kernel keep a part of it, which
`tolerance_percent` allows for. With DIMMs of one size, one of sixteen is 6% of the memory, one of
thirty-two 3%: keep the tolerance below that. NUMA nodes are compared with the largest one, unless
`nodes_alike` is false; each may have a further GiB less, because firmware and a crash kernel may
keep it. A NUMA node without CPUs (the memory of a Grace Hopper's GPU, CXL, HBM) is neither compared
nor counted. A kernel without NUMA cannot show such memory separately, so there enough memory is
unknown.

**To fix it** `dmidecode -t memory` and the BMC's event log name the slot; `edac-util -v` and the
kernel log show whether the DIMM had errors before. Reseat or replace the DIMM. If the firmware
disabled it, enable it there again.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.named import reads_of
from nodevet.evidence.across import nodes_of
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.memory import Memory
from nodevet.evidence.numa import Numa, NumaNode, has_memory_alone
from nodevet.model import NODE, Area, Check, CheckParams, Finding, Subject, Value, fail, ok, unknown

GIB = 1 << 20  # KiB
KEPT = 1.0  # GiB that firmware and a crash kernel may keep of one NUMA node
ADVICE = (
    "a DIMM is missing or was disabled at boot: `dmidecode -t memory` and the BMC's event log "
    "name the slot; reseat or replace it"
)
Gib = Annotated[float, Meta(gt=0)]


class Params(CheckParams):
    """`memory_size: 2048` or `memory_size: {minimum_gib: 2048, tolerance_percent: 2}` or
    `memory_size: {minimum_gib: 1536, nodes_alike: false}`"""

    bare: ClassVar[str] = "minimum_gib"

    minimum_gib: Gib | None = None
    """Installed memory of the node in GiB."""
    minimum_node_gib: Gib | None = None
    """Installed memory of each NUMA node with CPUs, in GiB."""
    tolerance_percent: Annotated[float, Meta(ge=0, lt=100)] = 3
    """The share that firmware and kernel may keep, and by which NUMA nodes may differ."""
    nodes_alike: bool = True
    """Whether NUMA nodes must have as much memory as the largest one."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    if params.minimum_gib is not None:
        yield judge_total(evidence, params.minimum_gib * share(params))
    if params.nodes_alike or params.minimum_node_gib is not None:
        yield from judge_nodes(evidence, params)
    elif params.minimum_gib is None:
        yield unknown(why="the baseline names nothing to check")


def share(params: Params) -> float:
    return (100 - params.tolerance_percent) / 100


def judge_total(evidence: Evidence, minimum: float) -> Finding:
    section, numa, nodes = evidence[Memory], evidence[Numa], nodes_of(evidence)
    if section.data is None:
        return unknown(why=f"memory: {section.why}")
    total = section.data.total_kb
    if total is None:
        return unread(NODE, section.data, "total_kb")
    if total <= 0:
        return unknown(why=f"total_kb: {total}")
    apart, unread_why = without_cpus(nodes)
    actual = (total - apart) / GIB
    if actual < minimum:
        return fail(expected=at_least(minimum), actual=gib(actual), advice=ADVICE)
    if numa.status == "absent":
        unread_why = numa.why
    if unread_why:
        return unknown(why=f"memory of nodes without CPUs: {unread_why}")
    return ok(expected=at_least(minimum), actual=gib(actual))


def without_cpus(nodes: Mapping[int, NumaNode] | Finding) -> tuple[int, str]:
    """KiB of the NUMA nodes that have memory but no CPUs, and why some may be missing."""
    if isinstance(nodes, Finding):
        return 0, nodes.why
    total_kb, why = 0, ""
    for node in nodes.values():
        if why_cpus_unread(node):
            why = why or why_cpus_unread(node)
        elif has_memory_alone(node):
            if node.memory_total_kb is None or node.memory_total_kb < 0:
                why = why or f"memory_total_kb: {node.why('memory_total_kb')}"
            total_kb += max(0, node.memory_total_kb or 0)
    return total_kb, why


def why_cpus_unread(node: NumaNode) -> str:
    """Why it is unknown whether a NUMA node has CPUs; empty if it is known."""
    if node.cpulist is None:
        return f"cpulist: {node.why('cpulist')}"
    if node.cpulist == "" and node.cpus_present is None:
        return f"cpus_present: {node.why('cpus_present')}"
    return ""


def judge_nodes(evidence: Evidence, params: Params) -> Iterator[Finding]:
    nodes = nodes_of(evidence)
    if isinstance(nodes, Finding):
        yield nodes
        return
    with_cpus = [node for node in nodes.values() if not has_memory_alone(node)]
    known = {node.id: node.memory_total_kb for node in with_cpus if not why_unread(node)}
    largest = max((kb for kb in known.values() if kb is not None), default=0)
    alike = params.nodes_alike and len(with_cpus) > 1
    for node in with_cpus:
        subject = Subject(kind="numa", id=str(node.id))
        expected = (params.minimum_node_gib or 0) * share(params)
        if alike:
            expected = max(expected, largest / GIB * share(params) - KEPT)
        if why_unread(node):
            yield unknown(subject, why=why_unread(node))
        elif not expected:
            continue
        elif (actual := (node.memory_total_kb or 0) / GIB) < expected:
            yield fail(subject, expected=at_least(expected), actual=gib(actual), advice=ADVICE)
        elif alike and len(known) < len(with_cpus):
            yield unknown(subject, why="nodevet did not read the memory of every NUMA node")
        else:
            yield ok(subject, expected=at_least(expected), actual=gib(actual))
    if not with_cpus and nodes:
        yield unknown(why="no NUMA node has CPUs")
    elif params.minimum_gib is None and not (alike or params.minimum_node_gib):
        yield unknown(why="there is one NUMA node, and the baseline sets no minimum")


def why_unread(node: NumaNode) -> str:
    """Why the memory size of a node with CPUs is unknown; empty if it is known."""
    if why_cpus_unread(node):
        return why_cpus_unread(node)
    if node.memory_total_kb is None:
        return f"memory_total_kb: {node.why('memory_total_kb')}"
    return f"memory_total_kb: {node.memory_total_kb}" if node.memory_total_kb < 0 else ""


def at_least(value: float) -> str:
    return f"at least {gib(value)}"


def gib(value: float) -> str:
    return f"{value:.1f} GiB"


def learn(evidence: Evidence) -> Value:
    data, nodes = evidence[Memory].data, nodes_of(evidence)
    apart, why = without_cpus(nodes)
    if data is None or data.total_kb is None or isinstance(nodes, Finding) or why:
        return None
    sizes = [n.memory_total_kb for n in nodes.values() if not has_memory_alone(n)]
    known = [kb for kb in sizes if kb is not None]
    share = (100 - Params().tolerance_percent) / 100
    fields: dict[str, Value] = {"minimum_gib": installed_gib((data.total_kb - apart) / GIB, share)}
    if known and min(known) < max(known) * share:
        fields["nodes_alike"] = False
    return fields


def installed_gib(gib: float, share: float) -> float:
    """The likely installed memory if the node sees this much of it.

    >>> installed_gib(2015.5, 0.97), installed_gib(15.6, 0.97), installed_gib(1025, 0.97)
    (2048.0, 16.0, 1025.0)
    """
    if gib < 1:
        return round(gib, 2) or 0.01
    step = 2.0 ** math.ceil(math.log2(gib)) / 32
    rounded_gib = math.ceil(gib / step) * step
    return rounded_gib if rounded_gib * share <= gib else float(math.floor(gib))


CHECK = Check(
    params=Params,
    area=Area.MEMORY,
    reads=(
        "memory.total_kb",
        *reads_of("numa.nodes[]", "cpulist", "cpus_present", "id", "memory_total_kb"),
        "numa.online",
    ),
    judge=judge,
    unasked="for HGX boards, whose sockets have the same DIMMs; for others set minimum_gib",
    learn=learn,
)
