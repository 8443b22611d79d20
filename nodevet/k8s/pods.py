"""Which pods have to leave a node before it is changed, and which may stay. Pure.

As `kubectl drain`: pods of DaemonSets and mirror pods (of the kubelet's own manifests) stay,
finished pods do not count. A pod without a controller does not come back elsewhere, and an emptyDir
is deleted with its pod, so somebody has to allow both.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from nodevet.base.printable import brief
from nodevet.inventory.cluster_objects import ClusterNode, Meta, Pod

MIRROR = "kubernetes.io/config.mirror"
FINISHED = frozenset({"Succeeded", "Failed"})
SLURM_OPERATORS = ("slinky.slurm.net", "slurm.nebius.ai")
"""Domains of the labels, annotations and taints of Slinky's and Nebius' operators of Slurm."""
SHOWN = 5


class Allowed(NamedTuple):
    """What may be lost."""

    bare: bool = False  # pods that no controller starts again
    empty_dir: bool = False  # the data of emptyDir volumes


def leaving(pods: Iterable[Pod]) -> list[Pod]:
    """The pods that have to leave."""
    return [pod for pod in pods if not _stays(pod)]


def refusals(pods: Iterable[Pod], allowed: Allowed) -> Iterator[str]:
    """Why pods that have to leave may not be evicted."""
    for pod in pods:
        if pod.metadata.deletion_timestamp:
            continue  # it leaves already
        if not allowed.bare and not _controller(pod.metadata):
            yield f"{brief(pod.label)} has no controller and would not come back (--force)"
        if not allowed.empty_dir and _has_empty_dir(pod):
            yield f"{brief(pod.label)} has an emptyDir (--delete-emptydir-data)"


def slurm_operator(node: ClusterNode, pods: Iterable[Pod]) -> str:
    """What shows that an operator of Slurm works with this node; "" if nothing does."""
    taints = [taint.key for taint in node.spec.taints]
    if key := _of_operator([*_keys(node.metadata), *taints]):
        return f"{brief(node.name)} has {brief(key)}"
    for pod in pods:
        if key := _of_operator(_keys(pod.metadata)):
            return f"{brief(pod.label)} has {brief(key)}"
    return ""


def listed(texts: Iterable[str]) -> str:
    """The first of some texts, and how many more there are.

    >>> listed(["a", "b"])
    'a; b'
    """
    every = list(texts)
    more = f"; {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return "; ".join(every[:SHOWN]) + more


def _stays(pod: Pod) -> bool:
    is_mirror = MIRROR in pod.metadata.annotations
    is_of_daemon_set = _controller(pod.metadata) == "DaemonSet"
    return is_mirror or is_of_daemon_set or pod.status.phase in FINISHED


def _controller(meta: Meta) -> str:
    """The kind of the controller; "" if there is none."""
    return next((owner.kind for owner in meta.owner_references if owner.controller), "")


def _has_empty_dir(pod: Pod) -> bool:
    return any(volume.empty_dir is not None for volume in pod.spec.volumes)


def _keys(meta: Meta) -> Iterator[str]:
    yield from meta.labels
    yield from meta.annotations


def _of_operator(keys: Iterable[str]) -> str:
    for key in keys:
        domain = key.partition("/")[0]
        if any(domain == each or domain.endswith(f".{each}") for each in SLURM_OPERATORS):
            return key
    return ""
