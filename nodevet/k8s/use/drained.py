"""The drain hook of plan and apply: takes a node out of Kubernetes, and gives it back."""

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief
from nodevet.inventory.cluster import (
    CONFLICT,
    ENDING_NAMESPACE,
    GONE,
    TOO_MANY,
    ApiSilentError,
    Cluster,
    ClusterError,
)
from nodevet.inventory.cluster_objects import ClusterNode, Pod
from nodevet.k8s.pods import Allowed, leaving, listed, refusals, slurm_operator
from nodevet.k8s.use.find import node_of

PLAN = "nodevet.io/plan"
"""The annotation of a node that nodevet cordoned; its value is the id of the plan."""
PLAN_ID = re.compile(r"[A-Za-z0-9]{8,16}")
PAUSE, HELD = 1.0, 5.0  # seconds between looks at the pods, the second if a budget keeps one
TRIES = 8  # of a write, each after somebody else has changed the node since it was read
Tell = Callable[[str], None]
Pause = Callable[[float], None]


class DrainRules(NamedTuple):
    """What a drain may do."""

    allowed: Allowed = Allowed()
    cordoned: bool = False  # take a node that somebody else cordoned
    seconds: float = 1500.0  # that the pods have to leave


def drain(
    cluster: Cluster,
    host: str,
    plan: str,
    limits: DrainRules,
    offer: Tell,
    say: Tell,
    pause: Pause = time.sleep,
) -> None:
    """Cordon a node for a plan, evict its pods, and wait until they are gone. `offer` gets what
    the hook can do later. Raises ClusterError; a refused node is not changed."""
    _require_plan(plan)
    node = node_of(cluster, host)
    _require_movable(node, cluster.pods_on(node.name), limits.allowed)
    _require_ours(node, plan, limits)
    offer("undrain")
    node = _cordon(cluster, node, plan, limits)
    _evict(cluster, node.name, plan, limits, say, pause)


def undrain(cluster: Cluster, host: str, plan: str, say: Tell) -> None:
    """Uncordon a node if `drain` cordoned it for this plan. Raises ClusterError."""
    _require_plan(plan)

    def changes(node: ClusterNode) -> Mapping[str, Any] | None:
        if node.metadata.annotations.get(PLAN) != plan:
            return None
        return {"metadata": {"annotations": {PLAN: None}}, "spec": {"unschedulable": None}}

    node = _changed(cluster, node_of(cluster, host), changes)
    if node.metadata.annotations.get(PLAN) != plan:
        say(f"{node.name} is left as it is: {_standing(node)}")


def _cordon(cluster: Cluster, node: ClusterNode, plan: str, limits: DrainRules) -> ClusterNode:
    def changes(node: ClusterNode) -> Mapping[str, Any] | None:
        _require_ours(node, plan, limits)
        if node.spec.unschedulable:
            return None
        return {"metadata": {"annotations": {PLAN: plan}}, "spec": {"unschedulable": True}}

    return _changed(cluster, node, changes)


def _changed(
    cluster: Cluster, node: ClusterNode, changes: Callable[[ClusterNode], Mapping[str, Any] | None]
) -> ClusterNode:
    """The node as it was read before its `changes` were written; it is read again, and they are
    asked again, if somebody else changed it in between. Raises ClusterError."""
    tries = TRIES
    while wanted := changes(node):
        try:
            cluster.patch_node(node, wanted)
            return node
        except ClusterError as error:
            tries -= 1
            if error.status != CONFLICT or not tries:
                raise
            node = cluster.node(node.name)
    return node


def _evict(
    cluster: Cluster, name: str, plan: str, limits: DrainRules, say: Tell, pause: Pause
) -> None:
    """Evict the pods of a node until none is left that has to leave. apply ends a hook that takes
    too long; this one ends before, and names the pods."""
    end = time.monotonic() + limits.seconds
    told: set[str] = set()
    while True:
        try:
            _require_drained(cluster.node(name), plan, limits)
            left = leaving(cluster.pods_on(name))
        except ApiSilentError as error:
            if time.monotonic() > end:
                raise
            say(f"still waiting for {name}: {error}")
            pause(HELD)
            continue
        if not left:
            return
        if why := listed(refusals(left, limits.allowed)):
            raise ClusterError(f"{name} is not drained: {why}")
        held = {pod.label: why for pod in left if (why := _why_held(cluster, pod))}
        for label in held.keys() - told:
            say(f"{brief(label)} stays for now: {held[label]}")
        told |= held.keys()
        if time.monotonic() > end:
            texts = (f"{brief(pod.label)} ({held.get(pod.label, 'is ending')})" for pod in left)
            raise ClusterError(f"after {elapsed(limits.seconds)}, {name} still has {listed(texts)}")
        pause(HELD if held else PAUSE)


def _why_held(cluster: Cluster, pod: Pod) -> str:
    """Evict a pod. Why it stays for now, for example a PodDisruptionBudget; "" if it leaves. Raises
    ClusterError."""
    if pod.metadata.deletion_timestamp:
        return ""
    try:
        cluster.evict(pod)
    except ClusterError as error:
        if error.status == TOO_MANY:
            return str(error)
        if ENDING_NAMESPACE in error.causes:
            return "its namespace is being terminated"
        if error.status not in (GONE, CONFLICT):  # another pod has its name by now
            raise
    return ""


def _require_plan(plan: str) -> None:
    if not PLAN_ID.fullmatch(plan):
        raise ClusterError("NODEVET_PLAN names no plan: nodevet apply calls this hook and sets it")


def _require_movable(node: ClusterNode, pods: list[Pod], allowed: Allowed) -> None:
    """Raises ClusterError if a pod may not be evicted, or the node is an operator's to drain."""
    if sign := slurm_operator(node, pods):
        raise ClusterError(
            f"an operator of Slurm works with {node.name} ({sign}): "
            "drain it in Slurm, with nodevet slurm hook"
        )
    if why := listed(refusals(leaving(pods), allowed)):
        raise ClusterError(f"{node.name} is left alone: {why}")


def _require_ours(node: ClusterNode, plan: str, limits: DrainRules) -> None:
    """Raises ClusterError if somebody else is at work on the node."""
    own = node.metadata.annotations.get(PLAN)
    if own and own != plan:
        raise ClusterError(f"{node.name} is left alone: {_standing(node)}")
    if node.spec.unschedulable and not own and not limits.cordoned:
        raise ClusterError(
            f"{node.name} is left alone: somebody cordoned it; if that was for you, see --cordoned"
        )


def _require_drained(node: ClusterNode, plan: str, limits: DrainRules) -> None:
    _require_ours(node, plan, limits)
    if not node.spec.unschedulable:
        raise ClusterError(f"somebody has uncordoned {node.name}")


def _standing(node: ClusterNode) -> str:
    plan = node.metadata.annotations.get(PLAN)
    if plan:
        return f"it is cordoned for plan {brief(plan)}"
    return "somebody else cordoned it" if node.spec.unschedulable else "it is not cordoned"
