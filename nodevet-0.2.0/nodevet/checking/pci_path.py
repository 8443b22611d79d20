"""How near two PCI functions are to each other: PIX, PXB, PHB, NODE, SYS, as `nvidia-smi topo -m`.

PIX: through one switch, or one port; PXB: through several switches, but not through the CPU; PHB:
through the CPU's host bridge that both share; NODE: through two host bridges of one NUMA node; SYS:
through the link between NUMA nodes. NVLinks are not PCI and do not count here.
"""

from collections.abc import Collection, Iterator
from typing import Literal, NamedTuple

from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.evidence.lists import numbers
from nodevet.evidence.numa import Numa
from nodevet.evidence.pci import PciFunction
from nodevet.model import Finding, not_applicable, unknown

Level = Literal["PIX", "PXB", "PHB", "NODE", "SYS"]
LEVELS: tuple[Level, ...] = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""The nearest first."""
REAL = (None, "none", "container")
"""Virtualization in which the PCI bus is the machine's own."""
READS = (
    "host.virtualization",
    "numa.online",
    "pci.functions[].address",
    "pci.functions[].numa_node",
    "pci.functions[].upstream[]",
)
"""The fields that this module reads: part of `reads` of a check that uses it."""
MOST_PORTS = 32  # above one function; no server has five levels of switches
WITHIN_A_SWITCH = 1  # ports from a function to the top of its switch, the first is 0


class Distance(NamedTuple):
    """A level; if it is empty, why it is not known."""

    level: Level | Literal[""]
    why: str = ""

    @property
    def rank(self) -> int:
        """0 is the nearest; an unknown level is the farthest."""
        return LEVELS.index(self.level) if self.level else len(LEVELS)


def without_real_bus(evidence: Evidence) -> Finding | None:
    """The finding if the PCI bus is the hypervisor's, or may be; None if it is the machine's
    own."""
    host = evidence[HostInfo].data
    if host is None:
        return unknown(why=f"host: {evidence[HostInfo].why}")
    if not host.virtualization:
        return unknown(why=f"virtualization: {host.why('virtualization')}")
    if host.virtualization not in REAL:
        return not_applicable(why="in a virtual machine the PCI topology is the hypervisor's")
    return None


def one_node(evidence: Evidence) -> bool | None:
    """Whether the machine has only one NUMA node; None if that is not known."""
    section = evidence[Numa]
    online = numbers(section.data.online) if section.data else None
    return len(online) == 1 if online else None


def distance_between(first: PciFunction, second: PciFunction, alone: bool | None) -> Distance:
    """How near two functions are. `alone`: whether there is only one NUMA node."""
    for function in (first, second):
        if function.upstream is None or "upstream" in function.errors:
            return Distance("", f"{function.address}: upstream: {function.why('upstream')}")
        if len(function.upstream) > MOST_PORTS:
            return Distance("", f"{function.address}: {len(function.upstream)} ports above it")
    above_one, above_other = first.upstream or (), second.upstream or ()
    for place, address in enumerate(above_one):
        if address in above_other:
            far = max(place, above_other.index(address)) > WITHIN_A_SWITCH
            return Distance("PXB" if far else "PIX")
    if host_bridge(first) == host_bridge(second):
        return Distance("PHB")
    nodes = []
    for function in (first, second):
        if function.numa_node is None:
            return Distance("", f"{function.address}: numa_node: {function.why('numa_node')}")
        if function.numa_node < 0 and alone is not True:
            why = f"the firmware does not say on which NUMA node {function.address} is"
            return Distance("", why)
        nodes.append(function.numa_node)
    return Distance("NODE" if nodes[0] == nodes[1] or min(nodes) < 0 else "SYS")


def host_bridge(function: PciFunction) -> str:
    """The domain and bus of a function's host bridge: 0000:16."""
    top = function.upstream[-1] if function.upstream else function.address
    return top.rpartition(":")[0]


def card(function: PciFunction) -> str:
    """The address without the function number, which the ports of one NIC share."""
    return function.address.rpartition(".")[0]


def cards(functions: Collection[PciFunction]) -> Iterator[PciFunction]:
    """The first function of each card."""
    addresses = set()
    for function in functions:
        if card(function) not in addresses:
            addresses.add(card(function))
            yield function
