"""Which pods must leave a node before nodevet changes it, and which may stay. Pure.

The rules are those of `kubectl drain`. Pods of DaemonSets and mirror pods (from the kubelet's own
manifests) stay; finished pods do not count. Nothing restarts a pod without a controller, and an
emptyDir is deleted with its pod, so an option must allow either.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from nodevet.base.printable import brief
from nodevet.inventory.cluster_objects import ClusterNode, Meta, Pod

MIRROR = "kubernetes.io/config.mirror"
FINISHED = frozenset({"Succeeded", "Failed"})
SLURM_OPERATORS = ("slinky.slurm.net", "slurm.nebius.ai")
"""Domains of the labels, annotations and taints of Slinky's and Nebius' Slurm operators."""
SHOWN = 5


class Allowed(NamedTuple):
    """What the user allows a drain to destroy."""

    bare: bool = False  # pods that no controller starts again
    empty_dir: bool = False  # the data of emptyDir volumes


def leaving(pods: Iterable[Pod]) -> list[Pod]:
    """The pods that must leave."""
    return [pod for pod in pods if not _stays(pod)]


def refusals(pods: Iterable[Pod], allowed: Allowed) -> Iterator[str]:
    """Why nodevet may not evict these pods."""
    for pod in pods:
        if pod.metadata.deletion_timestamp:
            continue  # it is already terminating
        if not allowed.bare and not _controller(pod.metadata):
            yield f"{brief(pod.label)} has no controller to restart it (--force)"
        if not allowed.empty_dir and _has_empty_dir(pod):
            yield f"{brief(pod.label)} has an emptyDir (--delete-emptydir-data)"


def slurm_operator(node: ClusterNode, pods: Iterable[Pod]) -> str:
    """What shows that a Slurm operator manages this node; "" if nothing does."""
    taints = [taint.key for taint in node.spec.taints]
    if key := _of_operator([*_keys(node.metadata), *taints]):
        return f"{brief(node.name)} has {brief(key)}"
    for pod in pods:
        if key := _of_operator(_keys(pod.metadata)):
            return f"{brief(pod.label)} has {brief(key)}"
    return ""


def listed(texts: Iterable[str]) -> str:
    """The first texts, and the number of further ones.

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
        if any(
            domain == operator or domain.endswith(f".{operator}") for operator in SLURM_OPERATORS
        ):
            return key
    return ""
