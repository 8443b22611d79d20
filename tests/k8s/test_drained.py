"""`nodevet k8s drained`, the drain hook, with the real client on a stand-in for the API server."""

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner
from kubernetes_api import ApiServer

from nodevet.cli import nodevet as command_line
from nodevet.inventory.cluster import ApiSilentError, Cluster, ClusterError
from nodevet.k8s.pods import Allowed
from nodevet.k8s.use import drained
from nodevet.k8s.use.drained import PLAN, DrainRules

NONE = DrainRules()
P1, P2 = "plan0001", "plan0002"
REPLICAS = [{"kind": "ReplicaSet", "controller": True}]
DAEMON = [{"kind": "DaemonSet", "controller": True}]


def add_pod(
    api: ApiServer, name: str, owners: list[Any] = REPLICAS, node: str = "gpu1", **more: Any
) -> None:
    spec = {"nodeName": node, "volumes": more.pop("volumes", [])}
    status = {"phase": more.pop("phase", "Running")}
    meta = {"ownerReferences": owners, **more}
    api.add("pods", name, "jobs", metadata=meta, spec=spec, status=status)


def cordon(api: ApiServer, **annotations: str) -> None:
    node = api.node("gpu1")
    meta = {**node["metadata"], "annotations": annotations}
    api.store(("nodes", "", "gpu1"), {**node, "metadata": meta, "spec": {"unschedulable": True}})


def uncordon(api: ApiServer) -> None:
    api.store(("nodes", "", "gpu1"), {**api.node("gpu1"), "spec": {}})


@pytest.fixture
def gpu1(api: ApiServer) -> ApiServer:
    api.add("nodes", "gpu1", spec={"podCIDR": "10.1.0.0/24"}, status={})
    return api


class Hook:
    """The hook, and what it said."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.said: list[str] = []
        self.pauses = 0
        self.meanwhile: Callable[[], object] = lambda: None

    def pause(self, seconds: float) -> None:
        assert seconds in (1.0, 5.0)
        self.pauses += 1
        assert self.pauses < 20
        self.meanwhile()

    def drain(self, plan: str = P1, limits: DrainRules = NONE) -> None:
        def offer(words: str) -> None:
            self.said.append(f"offer {words}")

        drained.drain(self.cluster, "gpu1", plan, limits, offer, self.said.append, self.pause)

    def undrain(self, plan: str = P1) -> None:
        drained.undrain(self.cluster, "gpu1", plan, self.said.append)


@pytest.fixture
def hook(cluster: Cluster) -> Hook:
    return Hook(cluster)


def is_cordoned(api: ApiServer) -> bool:
    return bool(api.node("gpu1").get("spec", {}).get("unschedulable"))


def pods(api: ApiServer) -> set[str]:
    return {name for resource, _, name in api.objects if resource == "pods"}


def test_the_hook_cordons_evicts_waits_and_uncordons(gpu1: ApiServer, hook: Hook) -> None:
    add_pod(gpu1, "train")
    add_pod(gpu1, "dcgm", DAEMON)
    add_pod(gpu1, "apiserver", [], annotations={"kubernetes.io/config.mirror": "x"})
    add_pod(gpu1, "done", [], phase="Succeeded")
    add_pod(gpu1, "elsewhere", node="gpu2")
    gpu1.stay = True
    hook.meanwhile = gpu1.end_pods
    hook.drain()
    assert hook.said == ["offer undrain"] and hook.pauses == 1
    assert pods(gpu1) == {"dcgm", "apiserver", "done", "elsewhere"}
    assert gpu1.asked.count(("create", "pods/eviction")) == 1
    assert is_cordoned(gpu1)
    assert gpu1.node("gpu1")["metadata"]["annotations"] == {PLAN: P1}
    hook.drain()  # again, as a resumed apply does
    hook.undrain()
    assert not is_cordoned(gpu1)
    assert gpu1.node("gpu1")["metadata"]["annotations"] == {}
    assert gpu1.node("gpu1")["spec"] == {"podCIDR": "10.1.0.0/24"}


def test_a_disruption_budget_holds_and_is_reported_once(gpu1: ApiServer, hook: Hook) -> None:
    add_pod(gpu1, "etcd")
    gpu1.budgets["etcd"] = 0

    def allow_the_third() -> None:
        gpu1.budgets["etcd"] = int(hook.pauses == 3)

    hook.meanwhile = allow_the_third
    hook.drain()
    assert hook.pauses == 4
    (_, told) = hook.said
    assert told.startswith("cannot evict jobs/etcd yet: ") and "disruption budget" in told
    assert pods(gpu1) == set()


def test_a_server_that_does_not_answer_is_asked_again(gpu1: ApiServer, hook: Hook) -> None:
    add_pod(gpu1, "train")
    asked = hook.cluster.pods_on
    answers = [asked, None, asked, asked]

    def pods_on(node: str) -> Any:
        if answer := answers.pop(0):
            return answer(node)
        raise ApiSilentError("no route")

    hook.cluster.pods_on = pods_on  # type: ignore[method-assign]
    hook.drain()
    assert hook.said == ["offer undrain", "still waiting for gpu1: no route"]
    assert pods(gpu1) == set()


@pytest.mark.parametrize("status", [429, 500, 503, 504])
def test_a_server_that_is_too_busy_to_list_pods_is_asked_again(
    gpu1: ApiServer, hook: Hook, status: int
) -> None:
    add_pod(gpu1, "train")
    gpu1.stay = True

    def be_busy_once() -> None:
        gpu1.end_pods()
        if hook.pauses == 1:
            gpu1.busy.append(status)

    hook.meanwhile = be_busy_once
    hook.drain()
    assert hook.pauses == 2 and pods(gpu1) == set()
    (_, told) = hook.said
    assert told.startswith("still waiting for gpu1: ") and f"with {status}" in told


def test_an_eviction_that_the_server_cannot_judge_ends_the_drain(
    gpu1: ApiServer, hook: Hook
) -> None:
    add_pod(gpu1, "etcd")
    gpu1.broken_budgets = True
    with pytest.raises(ClusterError, match="more than one PodDisruptionBudget"):
        hook.drain()
    assert hook.pauses == 0


def test_the_drain_waits_for_a_pod_of_a_terminating_namespace(gpu1: ApiServer, hook: Hook) -> None:
    add_pod(gpu1, "train")
    gpu1.ending_namespaces.add("jobs")
    hook.meanwhile = lambda: gpu1.objects.pop(("pods", "jobs", "train"), None)
    hook.drain()
    assert hook.pauses == 1 and pods(gpu1) == set()


def test_pods_that_do_not_leave_in_time_are_named(gpu1: ApiServer, hook: Hook) -> None:
    add_pod(gpu1, "etcd")
    add_pod(gpu1, "slow")
    gpu1.budgets["etcd"], gpu1.stay = 0, True
    with pytest.raises(ClusterError, match=r"gpu1 still has jobs/etcd \(.*budget.*\); jobs/slow"):
        hook.drain(limits=DrainRules(seconds=-1.0))
    assert is_cordoned(gpu1)
    hook.undrain()
    assert not is_cordoned(gpu1)


@pytest.mark.parametrize(
    ("pod", "message", "allowed"),
    [
        ({"owners": []}, "jobs/p has no controller to restart it", Allowed(bare=True)),
        ({"volumes": [{"emptyDir": {}}]}, "jobs/p has an emptyDir", Allowed(empty_dir=True)),
    ],
)
def test_bare_pods_and_empty_dir_volumes_are_refused_unless_allowed(
    gpu1: ApiServer, hook: Hook, pod: dict[str, Any], message: str, allowed: Allowed
) -> None:
    add_pod(gpu1, "p", **pod)
    with pytest.raises(ClusterError, match=message):
        hook.drain()
    assert not is_cordoned(gpu1) and hook.said == []
    hook.drain(limits=DrainRules(allowed))
    assert pods(gpu1) == set()


def test_a_bare_pod_that_comes_after_the_cordon_is_refused(gpu1: ApiServer, hook: Hook) -> None:
    gpu1.before += [lambda: add_pod(gpu1, "late", [])]
    with pytest.raises(ClusterError, match="stopped draining gpu1: jobs/late has no controller"):
        hook.drain()
    assert pods(gpu1) == {"late"} and hook.said == ["offer undrain"]


def test_the_cordon_of_someone_else_is_kept(gpu1: ApiServer, hook: Hook) -> None:
    cordon(gpu1)
    with pytest.raises(ClusterError, match="someone else cordoned it"):
        hook.drain()
    assert hook.said == []
    add_pod(gpu1, "train")
    hook.drain(limits=DrainRules(cordoned=True))
    assert pods(gpu1) == set()
    hook.undrain()
    assert is_cordoned(gpu1)
    assert hook.said[-1] == "gpu1 is unchanged: someone else cordoned it"


def test_a_cordon_of_another_plan_is_not_touched(gpu1: ApiServer, hook: Hook) -> None:
    hook.drain(P2)
    with pytest.raises(ClusterError, match=f"cordoned for plan {P2}"):
        hook.drain(P1, DrainRules(cordoned=True))
    hook.undrain(P1)
    assert is_cordoned(gpu1)
    assert hook.said[-1] == f"gpu1 is unchanged: it is cordoned for plan {P2}"


def test_the_drain_stops_if_someone_else_cordons_the_node_meanwhile(
    gpu1: ApiServer, hook: Hook
) -> None:
    gpu1.before += [lambda: cordon(gpu1)]
    with pytest.raises(ClusterError, match="someone else cordoned it"):
        hook.drain()
    assert PLAN not in gpu1.node("gpu1")["metadata"]["annotations"]


def test_the_drain_stops_if_someone_uncordons_the_node_while_it_waits(
    gpu1: ApiServer, hook: Hook
) -> None:
    add_pod(gpu1, "train")
    gpu1.stay = True
    hook.meanwhile = lambda: uncordon(gpu1)
    with pytest.raises(ClusterError, match="stopped draining gpu1: someone uncordoned it"):
        hook.drain()
    hook.undrain()  # only the annotation is left to remove
    assert PLAN not in gpu1.node("gpu1")["metadata"]["annotations"]


def test_a_status_that_changes_in_between_does_no_harm(gpu1: ApiServer, hook: Hook) -> None:
    gpu1.before += [lambda: gpu1.touch("gpu1")]
    hook.drain()
    gpu1.before += [lambda: gpu1.touch("gpu1")]
    hook.undrain()
    assert not is_cordoned(gpu1)


def test_a_pod_of_the_same_name_is_not_evicted_in_its_place(gpu1: ApiServer, hook: Hook) -> None:
    add_pod(gpu1, "web-0")
    asked = hook.cluster.evict

    def replaced(pod: Any) -> None:
        hook.cluster.evict = asked  # type: ignore[method-assign]
        old = gpu1.objects["pods", "jobs", "web-0"]
        meta = {**old["metadata"], "uid": "another"}
        moved = {**old, "metadata": meta, "spec": {"nodeName": "gpu2"}}
        gpu1.store(("pods", "jobs", "web-0"), moved)
        asked(pod)

    hook.cluster.evict = replaced  # type: ignore[method-assign]
    hook.drain()
    assert pods(gpu1) == {"web-0"}


@pytest.mark.parametrize(
    "sign",
    [
        {"labels": {"nodeset.slinky.slurm.net/pod-index": "0"}},
        {"annotations": {"slinky.slurm.net/slurm-node": "x"}},
        {"labels": {"slurm.nebius.ai/webhook": "true"}},
    ],
)
def test_a_node_that_a_slurm_operator_manages_is_refused(
    gpu1: ApiServer, hook: Hook, sign: dict[str, Any]
) -> None:
    add_pod(gpu1, "slurmd", [{"kind": "NodeSet", "controller": True}], **sign)
    with pytest.raises(ClusterError, match="a Slurm operator manages gpu1"):
        hook.drain()
    assert not is_cordoned(gpu1) and pods(gpu1) == {"slurmd"}
    gpu1.objects.pop(("pods", "jobs", "slurmd"))
    node = gpu1.node("gpu1")
    gpu1.store(
        ("nodes", "", "gpu1"), {**node, "spec": {"taints": [{"key": "slinky.slurm.net/managed"}]}}
    )
    with pytest.raises(ClusterError, match="gpu1 has slinky"):
        hook.drain()


def test_a_label_similar_to_those_of_slurm_operators_is_ignored(
    gpu1: ApiServer, hook: Hook
) -> None:
    add_pod(gpu1, "x", labels={"notslinky.slurm.net/a": "", "app": "slinky.slurm.net"})
    hook.drain()
    assert pods(gpu1) == set()


def test_a_cordon_of_another_run_of_the_plan_is_not_touched(gpu1: ApiServer, hook: Hook) -> None:
    first, second = f"{P1}-0c51b9e4", f"{P1}-11111111"
    hook.drain(first)
    hook.drain(first)
    with pytest.raises(ClusterError, match=f"cordoned for plan {first}"):
        hook.drain(second)
    hook.undrain(second)
    assert gpu1.node("gpu1")["metadata"]["annotations"] == {PLAN: first}
    hook.undrain(P1)  # by hand
    assert gpu1.node("gpu1")["metadata"]["annotations"] == {}


@pytest.mark.parametrize("plan", ["", "x", "../../../x", "plan 0001"])
def test_without_a_plan_nothing_is_done(gpu1: ApiServer, hook: Hook, plan: str) -> None:
    for call in (hook.drain, hook.undrain):
        with pytest.raises(ClusterError, match="is not a plan id"):
            call(plan)
    assert gpu1.asked == []


def test_apply_can_call_the_hook_by_its_environment(gpu1: ApiServer) -> None:
    add_pod(gpu1, "train")
    env = {"NODEVET_PLAN": P1, "NODEVET_HOOK": "drain", "NODEVET_CHECKS": "power_limit"}
    words = ["k8s", "drained", "gpu1.example.com"]
    done = CliRunner().invoke(command_line, words, env=env)
    assert (done.exit_code, done.output) == (0, "nodevet-hook: undrain\n")
    assert is_cordoned(gpu1) and pods(gpu1) == set()
    done = CliRunner().invoke(command_line, words, env={**env, "NODEVET_HOOK": "undrain"})
    assert (done.exit_code, done.output) == (0, "")
    assert not is_cordoned(gpu1)
    lost = CliRunner().invoke(command_line, ["k8s", "drained", "gpu9"], env=env)
    assert isinstance(lost.exception, ClusterError)
    assert str(lost.exception) == "Kubernetes has no node gpu9"
