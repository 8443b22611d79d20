"""Section numa."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import NumberList
from nodevet.evidence.core import Record, SectionRecord


class NumaNode(Record, frozen=True, kw_only=True):
    """/sys/devices/system/node/node<id>/*."""

    volatile = ("memory_free_kb",)

    id: int
    cpulist: NumberList | None = None  # empty: a node without CPUs
    cpus_present: NumberList | None = None  # its cpu<N> entries: those that are offline too
    memory_total_kb: int | None = None
    memory_free_kb: int | None = None
    # to every online node, in their order
    distances: Annotated[tuple[int, ...], bounds.NUMA_NODES] | None = None


class Numa(SectionRecord, frozen=True, kw_only=True):
    """`absent` if the kernel has no NUMA support."""

    unique = ("nodes[].id",)
    plural = "NUMA nodes"

    online: NumberList | None = None  # node list
    nodes: Annotated[tuple[NumaNode, ...], bounds.NUMA_NODES] | None = None
    numa_balancing: int | None = None  # /proc/sys/kernel/numa_balancing

    def contradiction(self) -> str:
        if sum(len(node.cpulist or "") for node in self.nodes or ()) > bounds.LONGEST_LIST:
            return "the nodes have more CPUs together than a machine can have"
        return ""


def has_memory_alone(node: NumaNode) -> bool:
    """Whether a node has no CPU at all: a GPU's memory (Grace Hopper), CXL, HBM.

    A node whose CPUs are all offline keeps its cpu<N> entries: register_cpu_under_node() in the
    kernel.
    """
    return node.cpulist == "" and node.cpus_present == ""
