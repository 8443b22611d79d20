"""The node has the expected number of NUMA nodes, with the expected CPUs.

**Why it matters.** NPS and SNC are firmware settings, which a BIOS reset or a replaced board
changes back. Jobs that bind by NUMA node then bind to other CPUs, GPUs and NICs are no longer
local, and the memory bandwidth per rank changes.

**Read from** /sys/devices/system/node: online, node*/cpulist and the node*/cpu* entries.

**Verdicts.** `nodes` counts NUMA nodes with CPUs, online or not. `memory_only_nodes` counts nodes
without CPUs (a Grace Hopper's GPU memory, CXL, HBM), if the baseline sets it. `cpus_per_node`
counts online CPUs. A kernel without NUMA has one node.

**To fix it** change the firmware's set-up: NPS (AMD), SNC or sub-NUMA clustering (Intel), and NUMA
or node interleaving. `numa=off` and `numa=fake=` in /proc/cmdline also change it.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.named import reads_of
from nodevet.evidence.across import nodes_of
from nodevet.evidence.document import Evidence
from nodevet.evidence.lists import numbers
from nodevet.evidence.numa import Numa, NumaNode, has_memory_alone
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    Severity,
    Subject,
    Value,
    compare,
    fail,
    not_applicable,
    unknown,
)

FIRMWARE = (
    "check NPS (AMD), SNC (Intel) and node interleaving in the firmware's set-up, then numa=off "
    "and numa=fake in /proc/cmdline"
)
OFFLINE = "`lscpu -e` shows which CPUs are offline; then check the firmware's core count"


class Params(CheckParams):
    """`numa_topology: 2` or `numa_topology: {nodes: 8, cpus_per_node: 24}` or
    `numa_topology: {nodes: 2, memory_only_nodes: 8}`"""

    bare: ClassVar[str] = "nodes"

    nodes: Annotated[int, Meta(ge=1)]
    """The number of NUMA nodes with CPUs."""
    cpus_per_node: Annotated[int, Meta(ge=1)] | None = None
    """Online CPUs of each of these nodes: two for each core with SMT."""
    memory_only_nodes: Annotated[int, Meta(ge=0)] | None = None
    """The number of NUMA nodes without CPUs."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Numa]
    by_number = nodes_of(evidence)
    if section.status == "absent":
        why = "the kernel has no NUMA support"
        if params.nodes > 1:
            yield fail(
                expected={"with CPUs": params.nodes},
                actual={"with CPUs": 1},
                why=why,
                advice=FIRMWARE,
            )
        else:
            yield not_applicable(why=why)
    elif isinstance(by_number, Finding):
        yield by_number
    else:
        nodes = [by_number[id] for id in sorted(by_number)]
        yield judge_count(nodes, params)
        if params.cpus_per_node is not None:
            for node in nodes:
                if not has_memory_alone(node):
                    yield judge_cpus(node, params.cpus_per_node)


def judge_count(nodes: list[NumaNode], params: Params) -> Finding:
    for node in nodes:
        for field in ("cpulist", "cpus_present"):
            if numbers(getattr(node, field)) is None:
                is_unread = getattr(node, field) is None
                why = node.why(field) if is_unread else "not a list of CPUs"
                return unknown(why=f"NUMA node {node.id}: {field}: {why}")
    alone = sum(has_memory_alone(node) for node in nodes)
    expected = {"with CPUs": params.nodes}
    actual = {"with CPUs": len(nodes) - alone}
    if params.memory_only_nodes is not None:
        expected["memory only"] = params.memory_only_nodes
        actual["memory only"] = alone
    return compare(Subject(), expected=expected, actual=actual, advice=FIRMWARE)


def judge_cpus(node: NumaNode, expected: int) -> Finding:
    subject = Subject(kind="numa", id=str(node.id))
    cpus = numbers(node.cpulist)
    if cpus is None:
        why = node.why("cpulist") if node.cpulist is None else "not a list of CPUs"
        return unknown(subject, why=f"cpulist: {why}")
    return compare(subject, expected=expected, actual=len(cpus), unit="CPUs", advice=OFFLINE)


def learn(evidence: Evidence) -> Value:
    nodes = nodes_of(evidence)
    if isinstance(nodes, Finding) or not nodes:
        return None
    with_cpus = [node for node in nodes.values() if not has_memory_alone(node)]
    fields: dict[str, Value] = {"nodes": len(with_cpus)}
    if len(nodes) > len(with_cpus):
        fields["memory_only_nodes"] = len(nodes) - len(with_cpus)
    counts = {len(numbers(node.cpulist) or ()) for node in with_cpus}
    if len(counts) == 1 and counts != {0}:
        fields["cpus_per_node"] = counts.pop()
    return fields


CHECK = Check(
    params=Params,
    area=Area.CPU,
    reads=(*reads_of("numa.nodes[]", "cpulist", "cpus_present", "id"), "numa.online"),
    judge=judge,
    unasked="each site chooses NPS and SNC: write numa_topology: 2",
    learn=learn,
    severity=Severity.WARNING,
)
