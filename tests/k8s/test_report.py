"""`nodevet k8s report` and `expire`, with the real client on a stand-in for the API server."""

import json
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner
from kubernetes_api import ApiServer
from msgspec.structs import replace

from nodevet.base.age import instant
from nodevet.base.errors import UserError
from nodevet.base.project import Project
from nodevet.base.schema_kinds import kinds
from nodevet.cli import nodevet as command_line
from nodevet.inventory.cluster import Cluster, ClusterError
from nodevet.k8s.condition import WrittenCondition
from nodevet.k8s.use.report import TRIES, Reporter, expire, report
from nodevet.model import Finding, HostReport, Severity, Status, Subject, Verdict
from nodevet.model.run import Run
from nodevet.vet import formats

NOW = 1_790_000_000.0
OK = Finding(verdict=Verdict.OK, check="gpu_count")
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
MACHINE, BOOT = "0f" * 16, "1c9d0a55-8b1e-4c0e-9a52-3f0a6d1b7c11"
PASSED = "as site expects, in boot 1c9d0a55"
INFO = {"machineID": MACHINE, "bootID": BOOT}


def capped(*gpus: int, watts: int = 490, **more: Any) -> list[Finding]:
    return [
        Finding(
            verdict=Verdict.FAIL,
            check="power_limit",
            subject=Subject(kind="gpu", id=str(gpu)),
            expected=700,
            actual=watts,
            unit="W",
            **more,
        )
        for gpu in gpus
    ]


def a_run(*findings: Finding, host: str = "gpu1", age: float = 60.0, **more: Any) -> Run:
    known = {"machine_id": MACHINE, "boot_id": BOOT, "status": Status.VETTED, "baseline": "site"}
    one = HostReport(host=host, findings=findings, arrived=instant(NOW - age), **{**known, **more})
    started = instant(NOW - age - 30)
    return Run(id=f"run-{age:g}", nodevet="0", started=started, seconds=1.0, hosts=(one,))


@pytest.fixture
def gpu1(api: ApiServer) -> ApiServer:
    api.add("nodes", "gpu1", status={"conditions": [dict(READY)], "nodeInfo": INFO})
    return api


def written(cluster: Cluster, run: Run, now: float = NOW, name: str = "") -> WrittenCondition:
    (done,) = report(Reporter(cluster, now, 1800.0), run, name)
    return done


def test_a_passing_node_gets_condition_true_and_keeps_other_conditions(
    gpu1: ApiServer, cluster: Cluster
) -> None:
    assert written(cluster, a_run(OK)) == WrittenCondition("gpu1", "True", PASSED)
    assert gpu1.condition("gpu1") == {
        "type": "NodevetPassed",
        "status": "True",
        "reason": "AsExpected",
        "message": PASSED,
        "lastHeartbeatTime": instant(NOW - 60).replace("+00:00", "Z"),
        "lastTransitionTime": instant(NOW).replace("+00:00", "Z"),
    }
    assert gpu1.condition("gpu1", "Ready") == READY
    assert gpu1.events() == []


@pytest.mark.parametrize(
    ("findings", "more", "status", "message"),
    [
        (capped(0, 1), {}, "False", "power_limit (GPU 0-1): 490 W, expected 700 W"),
        (capped(0, severity=Severity.INFO), {}, "True", PASSED),  # below fail-on
        ((OK, Finding(verdict=Verdict.UNKNOWN, check="xid", why="no log; x: y")), {},
         "Unknown", "xid: unknown, no log, x: y"),
        ((), {}, "Unknown", "visit: unknown, nothing was judged: no expectations"),
        ((), {"status": Status.UNREACHABLE, "why": "refused"},
         "Unknown", "visit: unreachable, refused"),
        ((OK,), {"machine_id": "ab" * 16},
         "Unknown", "the verdict belongs to a machine with another machine-id"),
        ((OK,), {"boot_id": BOOT.replace("1", "2")},
         "Unknown", "the verdict belongs to another boot"),
        ((OK,), {"boot_id": None}, "Unknown", "the verdict has no boot id"),
        ((OK,), {"machine_id": None}, "True", PASSED),  # the boot is of one machine
        (capped(0), {"boot_id": None}, "False", "power_limit (GPU 0): 490 W, expected 700 W"),
        ((OK,), {"age": 1801.0}, "Unknown", "last vetted 30 min ago"),
        ((OK,), {"age": -600.0}, "Unknown", "the verdict is dated in the future: a clock is wrong"),
        ((OK,), {"arrived": "nonsense"}, "Unknown", "the verdict has no valid time"),
    ],
)  # fmt: skip
def test_only_a_fresh_pass_of_the_current_boot_makes_the_condition_true(
    gpu1: ApiServer,
    cluster: Cluster,
    findings: list[Finding],
    more: dict[str, Any],
    status: str,
    message: str,
) -> None:
    age, arrived = more.pop("age", 60.0), more.pop("arrived", "")
    run = a_run(*findings, age=age, **more)
    if arrived:
        run = replace(run, hosts=(replace(run.hosts[0], arrived=arrived),))
    assert written(cluster, run) == WrittenCondition("gpu1", status, message)
    assert gpu1.condition("gpu1")["status"] == status


def test_a_node_whose_kubelet_names_no_boot_passes_without_one(
    api: ApiServer, cluster: Cluster
) -> None:
    api.add("nodes", "gpu1", status={"conditions": []})
    assert written(cluster, a_run(OK, boot_id=None, machine_id=None)).status == "True"


@pytest.mark.parametrize("more", [{"only": ("xid",)}, {"skip": ("xid",)}, {"replayed": True}])
def test_a_run_that_proves_no_pass_is_refused(
    gpu1: ApiServer, cluster: Cluster, more: dict[str, Any]
) -> None:
    with pytest.raises(UserError):
        written(cluster, replace(a_run(OK), **more))
    assert len(gpu1.node("gpu1")["status"]["conditions"]) == 1


def test_the_transition_moves_only_with_the_status(gpu1: ApiServer, cluster: Cluster) -> None:
    written(cluster, a_run(OK))
    before = gpu1.condition("gpu1")
    written(cluster, a_run(OK, age=-240.0), now=NOW + 300)
    same = gpu1.condition("gpu1")
    assert same["lastTransitionTime"] == before["lastTransitionTime"]
    assert same["lastHeartbeatTime"] > before["lastHeartbeatTime"]
    written(cluster, a_run(*capped(1), age=-500.0), now=NOW + 600)
    assert gpu1.condition("gpu1")["lastTransitionTime"] > before["lastTransitionTime"]


def test_an_earlier_visit_does_not_replace_a_later_one(gpu1: ApiServer, cluster: Cluster) -> None:
    written(cluster, a_run(*capped(1), age=10.0))
    earlier = written(cluster, a_run(OK, age=600.0))
    assert earlier.why_not == "its condition comes from a later visit"
    assert gpu1.condition("gpu1")["status"] == "False"


def test_one_event_for_each_new_finding(gpu1: ApiServer, cluster: Cluster) -> None:
    xid = Finding(verdict=Verdict.FAIL, check="xid", actual=[79], expected=[])
    written(cluster, a_run(*capped(0, 1), age=100.0))
    (first,) = gpu1.events()
    assert first["message"] == "power_limit (GPU 0-1): 490 W, expected 700 W"
    assert (first["reason"], first["type"]) == ("NodevetNotAsExpected", "Warning")
    assert first["involvedObject"] == {
        "apiVersion": "v1", "kind": "Node", "name": "gpu1", "uid": "uid-gpu1",
    }  # fmt: skip
    written(cluster, a_run(*capped(0, 1, watts=480), age=90.0))  # another value is nothing new
    written(cluster, a_run(*capped(0, 1), xid, age=80.0))
    written(cluster, a_run(*capped(0, 1), xid, age=80.0))
    assert [each["message"].partition(":")[0] for each in gpu1.events()] == [
        "power_limit (GPU 0-1)", "xid",
    ]  # fmt: skip
    written(cluster, a_run(OK, age=70.0))
    written(cluster, a_run(*capped(0, 1), age=60.0))  # it came back
    assert len(gpu1.events()) == 3


def test_a_part_that_was_unknown_and_now_fails_is_an_event(
    gpu1: ApiServer, cluster: Cluster
) -> None:
    unread = [replace(one, verdict=Verdict.UNKNOWN, why="denied") for one in capped(0)]
    written(cluster, a_run(*unread, age=100.0))
    written(cluster, a_run(*capped(0), age=90.0))
    keys = [each["message"].partition(":")[0] for each in gpu1.events()]
    assert keys == ["power_limit (GPU 0)"] * 2


def test_a_very_long_verdict_is_shortened_and_reported_once_as_events(
    gpu1: ApiServer, cluster: Cluster
) -> None:
    checks = [Finding(verdict=Verdict.FAIL, check=f"c{n}", why="x" * 290) for n in range(300)]
    written(cluster, a_run(*checks, age=100.0))
    number = len(gpu1.events())
    assert 30 < number < 60
    assert gpu1.condition("gpu1")["message"].endswith("; ...")
    assert len(gpu1.condition("gpu1")["message"]) < 12_010
    written(cluster, a_run(*checks, age=90.0))
    assert len(gpu1.events()) == number


def test_text_of_a_node_cannot_forge_a_part_of_a_message(gpu1: ApiServer, cluster: Cluster) -> None:
    evil = Finding(verdict=Verdict.FAIL, check="xid", why="a; fan: off\n\x1b[2K")
    written(cluster, a_run(evil))
    assert gpu1.condition("gpu1")["message"] == "xid: a, fan: off\\n\\x1b[2K"
    assert len(gpu1.events()) == 1


def test_conditions_of_other_writers_are_kept(gpu1: ApiServer, cluster: Cluster) -> None:
    def other() -> None:
        gpu1.node("gpu1")["status"]["conditions"].append({"type": "Mine", "status": "True"})
        gpu1.touch("gpu1")

    gpu1.before += [other]
    written(cluster, a_run(OK))
    assert gpu1.condition("gpu1", "Mine") == {"type": "Mine", "status": "True"}
    assert gpu1.condition("gpu1")["status"] == "True"
    assert gpu1.asked.count(("patch", "nodes/status")) == 2  # the first one is refused with 409


def test_a_later_verdict_that_comes_in_between_wins(gpu1: ApiServer, cluster: Cluster) -> None:
    gpu1.before += [lambda: written(cluster, a_run(*capped(1), age=5.0)) and None]
    assert written(cluster, a_run(OK)).why_not == "its condition comes from a later visit"
    assert gpu1.condition("gpu1")["status"] == "False"


def test_a_node_that_changes_during_every_write_ends_in_an_error(
    gpu1: ApiServer, cluster: Cluster
) -> None:
    asked = cluster.patch_status

    def restless(*words: Any) -> None:
        gpu1.touch("gpu1")
        asked(*words)

    cluster.patch_status = restless  # type: ignore[method-assign]
    done = written(cluster, a_run(OK))
    assert done.is_short and "409" in done.why_not
    assert gpu1.asked.count(("patch", "nodes/status")) == TRIES


def test_a_host_is_found_without_its_domain_and_by_name(gpu1: ApiServer, cluster: Cluster) -> None:
    assert written(cluster, a_run(OK, host="GPU1.example.com")).node == "gpu1"
    assert written(cluster, a_run(OK, host="localhost", age=50.0), name="gpu1").status == "True"
    gone = written(cluster, a_run(OK, host="gpu9"))
    assert gone == WrittenCondition("gpu9", "", "", "Kubernetes has no node gpu9", True)


@pytest.mark.parametrize("status", [Status.NOT_VISITED, Status.INTERRUPTED])
def test_a_host_that_nobody_visited_keeps_its_condition(
    gpu1: ApiServer, cluster: Cluster, status: Status
) -> None:
    assert written(cluster, a_run(status=status, why="no key")).why_not == "no key"
    assert gpu1.asked == []


def test_a_right_that_is_missing_ends_the_run(gpu1: ApiServer, cluster: Cluster) -> None:
    gpu1.allowed = {("get", "nodes")}
    with pytest.raises(ClusterError, match="needs the verb `patch` on `nodes/status`"):
        written(cluster, a_run(OK))


# --- expire ---


def expired(cluster: Cluster, now: float) -> list[WrittenCondition]:
    return list(expire(Reporter(cluster, now, 1800.0), ""))


def test_a_node_without_a_verdict_becomes_unknown(gpu1: ApiServer, cluster: Cluster) -> None:
    assert expired(cluster, NOW) == [
        WrittenCondition("gpu1", "Unknown", "nodevet has not vetted this node")
    ]
    assert gpu1.condition("gpu1")["reason"] == "NeverVetted"
    assert expired(cluster, NOW) == []
    written(cluster, a_run(OK))  # of before it was unknown
    assert gpu1.condition("gpu1")["status"] == "True"


@pytest.mark.parametrize("finding", [[OK], capped(1)])
def test_a_verdict_that_nobody_renews_becomes_unknown(
    gpu1: ApiServer, cluster: Cluster, finding: list[Finding]
) -> None:
    written(cluster, a_run(*finding))
    assert expired(cluster, NOW + 1740) == []
    (done,) = expired(cluster, NOW + 1741)
    assert (done.status, done.message) == ("Unknown", "last vetted 30 min ago")
    assert gpu1.condition("gpu1")["lastHeartbeatTime"] == instant(NOW - 60).replace("+00:00", "Z")
    assert expired(cluster, NOW + 9000) == []
    assert gpu1.events() == [] or len(finding) == 1


def test_a_node_deleted_while_its_verdict_expires_is_not_an_error(
    gpu1: ApiServer, cluster: Cluster
) -> None:
    gpu1.add("nodes", "gpu2", status={"conditions": []})
    gpu1.before += [lambda: gpu1.objects.pop(("nodes", "", "gpu1"))]
    gone, written_to = expire(Reporter(cluster, NOW, 1800.0), "")
    assert gone == WrittenCondition("gpu1", why_not="the node was deleted meanwhile")
    assert (written_to.node, written_to.status) == ("gpu2", "Unknown")


def test_a_pass_does_not_outlive_a_boot(gpu1: ApiServer, cluster: Cluster) -> None:
    written(cluster, a_run(OK))
    node = gpu1.node("gpu1")
    node["status"]["nodeInfo"] = {}
    assert expired(cluster, NOW) == []  # nobody knows its boot
    node["status"]["nodeInfo"] = {**INFO, "bootID": BOOT.replace("1c9d0a55", "77777777")}
    gpu1.touch("gpu1")
    (done,) = expired(cluster, NOW)
    assert done == WrittenCondition("gpu1", "Unknown", "the node has booted since it was vetted")


def test_a_verdict_dated_in_the_future_expires(gpu1: ApiServer, cluster: Cluster) -> None:
    written(cluster, a_run(OK, age=-9000.0), now=NOW + 9000)
    (done,) = expired(cluster, NOW)
    assert done.message == "the verdict is dated in the future: a clock is wrong"


def test_a_new_verdict_written_during_the_expiry_is_kept(gpu1: ApiServer, cluster: Cluster) -> None:
    written(cluster, a_run(OK, age=1800.0))
    gpu1.before += [lambda: written(cluster, a_run(OK, age=5.0)) and None]
    (done,) = expired(cluster, NOW + 60)
    assert done.why_not and gpu1.condition("gpu1")["status"] == "True"


# --- the command line ---


def test_k8s_report_writes_the_run_of_a_json_file(gpu1: ApiServer, tmp_path: Path) -> None:
    now = time.time()
    run = replace(a_run(*capped(2)), started=instant(now))
    run = replace(run, hosts=(replace(run.hosts[0], arrived=instant(now)),))
    path = tmp_path / "run.json"
    path.write_text(formats.render("json", run))
    dry = CliRunner().invoke(command_line, ["k8s", "report", str(path), "--dry-run"])
    assert dry.exit_code == 0 and "would be written to 1 node" in dry.output
    assert len(gpu1.node("gpu1")["status"]["conditions"]) == 1
    done = CliRunner().invoke(command_line, ["k8s", "report", str(path)])
    assert done.exit_code == 0
    assert "False  gpu1  power_limit (GPU 2): 490 W, expected 700 W" in done.output
    assert gpu1.condition("gpu1")["status"] == "False"


def test_the_json_is_as_the_schema_says(gpu1: ApiServer) -> None:
    done = CliRunner().invoke(command_line, ["k8s", "expire", "--format", "json"])
    said = json.loads(done.stdout)
    jsonschema.Draft202012Validator(kinds()["k8s"].schema(Project())).validate(said)
    (node,) = said["nodes"]
    assert (said["kind"], node["node"], node["status"]) == ("k8s", "gpu1", "Unknown")
