"""The drain hook of plan and apply: drains a node, and uncordons it afterwards."""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from nodevet.base.durations import elapsed
from nodevet.base.plan_marks import is_mark, is_of
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
"""The annotation of a node that nodevet cordoned; its value is the mark of the run, or the id of
the plan: see nodevet.base.plan_marks."""
PAUSE, HELD = 1.0, 5.0  # seconds between reads of the pods; HELD if a budget protects one
TRIES = 8  # writes, each repeated because someone else changed the node meanwhile
Tell = Callable[[str], None]
Pause = Callable[[float], None]


class DrainRules(NamedTuple):
    """What a drain may do."""

    allowed: Allowed = Allowed()
    cordoned: bool = False  # also drain a node that someone else cordoned
    seconds: float = 1500.0  # how long the pods may take to leave


def drain(
    cluster: Cluster,
    host: str,
    plan: str,
    limits: DrainRules,
    offer: Tell,
    say: Tell,
    pause: Pause = time.sleep,
) -> None:
    """Cordon a node for a plan, evict its pods, and wait until they are gone. `offer` gets the
    words for later calls of the hook. Raises ClusterError; a refused node stays unchanged."""
    _require_plan(plan)
    node = node_of(cluster, host)
    _require_movable(node, cluster.pods_on(node.name), limits.allowed)
    _require_ours(node, plan, limits)
    offer("undrain")
    node = _cordon(cluster, node, plan, limits)
    _evict(cluster, node.name, plan, limits, say, pause)


def undrain(cluster: Cluster, host: str, plan: str, unchanged: Tell) -> None:
    """Uncordon a node if `drain` cordoned it for this plan; else `unchanged` gets who holds it.
    Raises ClusterError."""
    _require_plan(plan)

    def changes(node: ClusterNode) -> Mapping[str, Any] | None:
        if not is_of(node.metadata.annotations.get(PLAN) or "", plan):
            return None
        return {"metadata": {"annotations": {PLAN: None}}, "spec": {"unschedulable": None}}

    node = _changed(cluster, node_of(cluster, host), changes)
    if not is_of(node.metadata.annotations.get(PLAN) or "", plan):
        unchanged(f"{node.name} is unchanged: {_standing(node)}")


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
    """Write `changes` of the node, and return the node as it was before. If someone else changed
    it meanwhile, read it and compute `changes` again. Raises ClusterError."""
    tries = TRIES
    while patch := changes(node):
        try:
            cluster.patch_node(node, patch)
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
    """Evict pods until all that must leave are gone. It ends before apply kills the hook, so its
    error can name the pods."""
    end = time.monotonic() + limits.seconds
    reported: set[str] = set()
    while True:
        try:
            _require_drained(cluster.node(name), plan, limits)
            pods = leaving(cluster.pods_on(name))
        except ApiSilentError as error:
            if time.monotonic() > end:
                raise
            say(f"still waiting for {name}: {error}")
            pause(HELD)
            continue
        if not pods:
            return
        if why := listed(refusals(pods, limits.allowed)):
            raise ClusterError(f"stopped draining {name}: {why}")
        held = {pod.label: why for pod in pods if (why := _why_held(cluster, pod))}
        for label in held.keys() - reported:
            say(f"cannot evict {brief(label)} yet: {held[label]}")
        reported |= held.keys()
        if time.monotonic() > end:
            texts = (f"{brief(pod.label)} ({held.get(pod.label, 'terminating')})" for pod in pods)
            raise ClusterError(f"after {elapsed(limits.seconds)}, {name} still has {listed(texts)}")
        pause(HELD if held else PAUSE)


def _why_held(cluster: Cluster, pod: Pod) -> str:
    """Evict a pod. Returns why it stays for now, such as a PodDisruptionBudget; "" if it leaves.
    Raises ClusterError."""
    if pod.metadata.deletion_timestamp:
        return ""
    try:
        cluster.evict(pod)
    except ClusterError as error:
        if error.status == TOO_MANY:
            return str(error)
        if ENDING_NAMESPACE in error.causes:
            return "its namespace is terminating"
        if error.status not in (GONE, CONFLICT):  # another pod has its name by now
            raise
    return ""


def _require_plan(plan: str) -> None:
    if not is_mark(plan):
        raise ClusterError("NODEVET_PLAN is not a plan id; nodevet apply sets it for this hook")


def _require_movable(node: ClusterNode, pods: list[Pod], allowed: Allowed) -> None:
    """Raises ClusterError if nodevet may not evict a pod, or a Slurm operator manages the node."""
    if sign := slurm_operator(node, pods):
        raise ClusterError(
            f"a Slurm operator manages {node.name} ({sign}): "
            "drain it in Slurm, with `nodevet slurm hook`"
        )
    if why := listed(refusals(leaving(pods), allowed)):
        raise ClusterError(f"refused to drain {node.name}: {why}")


def _require_ours(node: ClusterNode, plan: str, limits: DrainRules) -> None:
    """Raises ClusterError if another plan or another person has the node out of service."""
    own = node.metadata.annotations.get(PLAN)
    if own and not is_of(own, plan):
        raise ClusterError(f"refused to drain {node.name}: {_standing(node)}")
    if node.spec.unschedulable and not own and not limits.cordoned:
        raise ClusterError(
            f"refused to drain {node.name}: someone else cordoned it; --cordoned drains it anyway"
        )


def _require_drained(node: ClusterNode, plan: str, limits: DrainRules) -> None:
    _require_ours(node, plan, limits)
    if not node.spec.unschedulable:
        raise ClusterError(f"stopped draining {node.name}: someone uncordoned it")


def _standing(node: ClusterNode) -> str:
    plan = node.metadata.annotations.get(PLAN)
    if plan:
        return f"it is cordoned for plan {brief(plan)}"
    return "someone else cordoned it" if node.spec.unschedulable else "it is not cordoned"
