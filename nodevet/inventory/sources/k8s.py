"""Hosts from Kubernetes: `k8s:` for all nodes, `k8s:LABELSELECTOR` for some.

A selector has kubectl's form: `k8s:nvidia.com/gpu.present=true,topology.kubernetes.io/zone!=b`. The
address of a host is the first InternalIP of the node. Its groups come from labels: `product:`,
`type:`, `zone:` and `pool:`, each with the value of the label.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from nodevet.base.host_names import name_problem
from nodevet.base.printable import brief
from nodevet.base.problems import Problem
from nodevet.inventory import cluster
from nodevet.inventory.cluster_objects import ClusterNode
from nodevet.inventory.entries import HostEntry, InventoryHosts, Setting
from nodevet.inventory.errors import InventoryError, inventory_error
from nodevet.inventory.settings import GROUP, validate

KIND = "nodes of Kubernetes (k8s:LABELSELECTOR)"
ENDINGS = ()
PREFIX = "k8s:"
SELECTOR = re.compile(r"[A-Za-z0-9 ._/=!,()-]{0,1000}")
LABELS = {
    "nvidia.com/gpu.product": "product",
    "node.kubernetes.io/instance-type": "type",
    "topology.kubernetes.io/zone": "zone",
    "cloud.google.com/gke-nodepool": "pool",
    "eks.amazonaws.com/nodegroup": "pool",
    "karpenter.sh/nodepool": "pool",
    "kubernetes.azure.com/agentpool": "pool",
}
"""The labels that become groups: those of NVIDIA's feature discovery, of Kubernetes, and of the
clouds' node pools."""


def recognizes(path: Path) -> bool:
    return bool(_name(path)) and not path.exists()


def read(path: Path) -> InventoryHosts:
    """The nodes, each with a group for each label. Raises InventoryError."""
    name = _name(path)
    selector = name.removeprefix(PREFIX)
    shown = name.removesuffix(":")
    if not SELECTOR.fullmatch(selector):
        raise inventory_error(shown, "not a label selector", "write one that kubectl -l takes")
    try:
        nodes = cluster.connect().nodes(selector)
    except cluster.ClusterError as error:
        raise inventory_error(shown, str(error)) from error
    if not nodes:
        raise inventory_error(shown, "no node has these labels" if selector else "no nodes")
    problems = [problem for node in nodes for problem in _problems(node, name)]
    if problems:
        raise InventoryError(problems)
    entries = tuple(_entry(node, name) for node in nodes)
    return InventoryHosts(entries, frozenset().union(*(entry.groups for entry in entries)))


def _name(path: Path) -> str:
    """`k8s:SELECTOR` in a path. nodevet.toml puts its own folder before it; labels have slashes.

    >>> _name(Path("/etc/nodevet/k8s:nvidia.com/gpu.present=true"))
    'k8s:nvidia.com/gpu.present=true'
    """
    at = next((at for at, part in enumerate(path.parts) if part.startswith(PREFIX)), None)
    return "" if at is None else "/".join(path.parts[at:])


def _address(node: ClusterNode) -> str | None:
    addresses = (
        address.address for address in node.status.addresses if address.type == "InternalIP"
    )
    return next(addresses, None)


def _problems(node: ClusterNode, where: str) -> Iterator[Problem]:
    shown = brief(node.name)
    if problem := name_problem(node.name):
        yield Problem(where, "", f"node {shown}: {problem}")
    for _, problem in validate({"address": _address(node)})[1]:
        yield Problem(where, "", f"node {shown}: InternalIP: {problem}")


def _entry(node: ClusterNode, where: str) -> HostEntry:
    labels = node.metadata.labels
    groups = (f"{group}:{labels[label]}" for label, group in LABELS.items() if labels.get(label))
    address = _address(node)
    return HostEntry(
        node.name,
        where,
        frozenset(group for group in groups if GROUP.fullmatch(group)),
        {"address": Setting(address, where)} if address else {},
    )
