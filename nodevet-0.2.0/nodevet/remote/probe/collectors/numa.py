"""NUMA nodes: /sys/devices/system/node, /proc/sys/kernel/numa_balancing."""

import re

from nodevet.remote.probe.cpulist import format_cpulist, normal, normal_mask, normal_some
from nodevet.remote.probe.files import Absent, Reading, first_readable, integer, numbered, parsed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NODES = "/sys/devices/system/node"
LARGEST = 1024  # nodes; the kernel's limit
CPUS = 8192


def parse_amount(text: str, key: str) -> int:
    """One row of node<id>/meminfo in KiB: "Node 0 MemTotal: 131072 kB". Raises ValueError."""
    match = re.search(r"^Node [0-9]+ {}: +([0-9]+) kB$".format(re.escape(key)), text, re.M)
    if match is None:
        raise ValueError("no {} in the node's meminfo".format(key))
    return integer(match.group(1))


def parse_distances(text: str) -> "list[int]":
    """Distances to every online node: [10, 21] of "10 21". Raises ValueError."""
    distances = [integer(word) for word in text.split()]
    if not distances:
        raise ValueError("the kernel lists no distance")
    return distances


def present_cpus(root: str, folder: str) -> str:
    """The CPUs of a node, offline ones too, as a list: its links cpu<N>. Raises OSError."""
    return format_cpulist(numbered(root, folder, "cpu", CPUS))


def node(root: str, id: int) -> "Reading":
    folder = "{}/node{}/".format(NODES, id)
    record = Reading(id=id)
    record.take(
        "cpulist", first_readable, root, folder, ("cpulist", normal), ("cpumap", normal_mask)
    )
    record.take("cpus_present", present_cpus, root, folder)
    record.take("memory_total_kb", parsed, root, folder + "meminfo", parse_amount, "MemTotal")
    record.take("memory_free_kb", parsed, root, folder + "meminfo", parse_amount, "MemFree")
    record.take("distances", parsed, root, folder + "distance", parse_distances)
    return record


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    try:
        ids = numbered(root, NODES, "node", LARGEST)
    except FileNotFoundError:
        raise Absent("the kernel has no NUMA support: no " + NODES)
    numa = Reading()
    numa.take("online", parsed, root, NODES + "/online", normal_some)
    if ids:
        numa["nodes"] = [node(root, id) for id in ids]
    else:
        numa.fail("nodes", "no node<id> in " + NODES)
    numa.take("numa_balancing", parsed, root, "/proc/sys/kernel/numa_balancing", integer)
    return numa
