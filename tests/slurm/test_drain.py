"""`nodevet slurm drain` and `resume` with a real slurmctld."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import recorded
from far_processes import wait_for
from msgspec.structs import replace
from one_machine_slurm import Slurm

from nodevet.base.age import seconds_of
from nodevet.model import Finding, HostReport, Status, Subject, Verdict
from nodevet.model.run import Run, new_run_id
from nodevet.slurm.decide import DrainLimits, plan_drain, plan_resume
from nodevet.slurm.nodes import ControllerNode, parse_nodes
from nodevet.slurm.scontrol import clock_ahead_of
from nodevet.store import open_store
from nodevet.vet.findings.counted import with_counts
from nodevet.vet.formats.json import pieces
from tests.slurm.conftest import Nodevet

pytestmark = pytest.mark.timeout(300)
POWER = Finding(
    verdict=Verdict.FAIL,
    check="power_limit",
    subject=Subject(kind="gpu", id="0"),
    expected=700,
    actual=490,
    unit="W",
)
OK = Finding(verdict=Verdict.OK, check="power_limit", subject=Subject(kind="gpu", id="0"))
OTHER = Finding(verdict=Verdict.UNKNOWN, check="dkms", why="EIO")
SHARE = ("--max-drain", "50%")


@pytest.fixture(scope="module")
def more() -> str:
    nodes = "NodeName=gpu[1-8] NodeAddr=127.0.0.1 CPUs=1 State=UNKNOWN\n"
    return f"{nodes}PartitionName=small Nodes=gpu[7-8] State=UP\n"


def record(url: str, seconds: float, **hosts: tuple[str, tuple[Finding, ...]]) -> None:
    """Record a run that began so long ago: the machine id and the findings of each host."""
    at = datetime.now(timezone.utc) - timedelta(seconds=seconds)
    with open_store(url) as store:
        begun = recorded.run(0, len(hosts), id=new_run_id(at), started=at.isoformat())
        recorder = store.begin(begun)
        for name, (machine, found) in hosts.items():
            made = recorded.report(name, machine_id=machine * 32, arrived=at.isoformat())
            recorder.take(replace(made, findings=found), None)
        recorder.finish(recorded.ended(begun))
        assert recorder.broken is None


@pytest.fixture
def cluster(running: Slurm) -> Iterator[Slurm]:
    wait_for(lambda: not any("unknown" in node.states for node in nodes_of(running).values()))
    yield running
    for name, node in nodes_of(running).items():
        if node.is_drained:
            running.says("scontrol", "update", f"NodeName={name}", "State=RESUME")
    wait_for(lambda: not any(node.is_drained for node in nodes_of(running).values()))


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., str]:
    """Saves a run of some hosts, each with its findings; returns its id."""

    def save(hours: float = 0.0, machine: str = "m", **hosts: tuple[Finding, ...]) -> str:
        started = datetime.now(timezone.utc) + timedelta(seconds=2, hours=-hours)
        reports = [
            HostReport(host=name, status=Status.VETTED, findings=found, machine_id=machine)
            for name, found in hosts.items()
        ]
        run = Run(
            id=new_run_id(started),
            nodevet="0",
            started=started.isoformat(),
            seconds=1.0,
            hosts=tuple(reports),
        )
        (tmp_path / "run.json").write_text("".join(pieces(run)))
        return run.id

    return save


def nodes_of(slurm: Slurm) -> dict[str, ControllerNode]:
    return parse_nodes(slurm.says("scontrol", "show", "node", "-o"))


def drained(slurm: Slurm) -> dict[str, str]:
    return {name: node.reason for name, node in nodes_of(slurm).items() if node.is_drained}


def drain(slurm: Slurm, name: str, reason: str) -> None:
    slurm.says("scontrol", "update", f"NodeName={name}", "State=DRAIN", f"Reason={reason}")


def run(
    nodevet: Nodevet, verb: str, *words: str, **variables: str
) -> "subprocess.CompletedProcess[str]":
    done = nodevet("slurm", verb, "--from", "run.json", *words, **variables)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def test_a_site_tag_is_added_to_the_reason_and_nodevet_still_recognizes_it(
    cluster: Slurm, nodevet: Nodevet, save: Callable[..., str], tmp_path: Path
) -> None:
    (tmp_path / "nodevet.toml").write_text('[slurm]\nreason_tag = "HC"\n')
    drain(cluster, "gpu2", "[HC] bad PSU")
    name = save(gpu1=(POWER, replace(POWER, check="pcie_link")), gpu2=(POWER,))
    assert run(nodevet, "drain", *SHARE).returncode == 0
    link = f"[HC] nodevet:{name} pcie_link 490 W, expected 700 W (GPU 0)"
    shown = cluster.says("scontrol", "show", "node", "-o", "gpu1")
    assert f"Reason={link}; [HC] power_limit 490 W, expected 700 W (GPU 0) [" in shown
    assert "already drained for this" in run(nodevet, "drain", *SHARE).stdout
    (tmp_path / "nodevet.toml").unlink()
    save(gpu1=(OK, replace(OK, check="pcie_link")), gpu2=(OK,))
    assert "1 node resumed" in run(nodevet, "resume").stdout
    assert drained(cluster) == {"gpu2": "[HC] bad PSU"}


@pytest.mark.other_slurm
def test_failing_nodes_are_drained_and_others_keep_their_reasons(
    cluster: Slurm, nodevet: Nodevet, save: Callable[..., str]
) -> None:
    drain(cluster, "gpu2", "bad PSU")
    drain(cluster, "gpu3", "Prolog error")
    drain(cluster, "gpu4", "slurm-operator: cordoned")
    hosts = {f"gpu{number}": (POWER,) for number in (1, 2, 3, 4)}
    name = save(**hosts, gpu5=(OK,), gpu6=(OTHER,), elsewhere=(POWER,))
    dry = run(nodevet, "drain", "--dry-run", *SHARE)
    assert "2 nodes would be drained · 3 unchanged" in dry.stdout
    assert "gpu1" not in drained(cluster)
    done = run(nodevet, "drain", *SHARE)
    assert done.returncode == 0, done
    assert "Slurm has no node of this name" in done.stdout
    reason = f"nodevet:{name} power_limit 490 W, expected 700 W (GPU 0)"
    assert drained(cluster) == {
        "gpu1": reason,
        "gpu2": "bad PSU",
        "gpu3": reason,
        "gpu4": "slurm-operator: cordoned",
    }
    again = run(nodevet, "drain", *SHARE)
    assert (again.returncode, "0 nodes drained" in again.stdout) == (0, True)


@pytest.mark.other_slurm
def test_a_limit_leaves_nodes_in_service(
    cluster: Slurm, nodevet: Nodevet, save: Callable[..., str]
) -> None:
    save(**{f"gpu{number}": (POWER,) for number in (7, 8)})
    last = run(nodevet, "drain", *SHARE)
    assert (last.returncode, list(drained(cluster))) == (1, ["gpu7"])
    assert "one of the last 1 of partition small" in last.stdout
    save(**{f"gpu{number}": (POWER,) for number in range(1, 7)})
    few = run(nodevet, "drain", "--max-drain", "25%")
    assert (few.returncode, list(drained(cluster))) == (1, ["gpu1", "gpu7"])
    assert "--max-drain is reached" in few.stdout


@pytest.mark.other_slurm
def test_resume_takes_only_repaired_nodes_that_nodevet_drained(
    cluster: Slurm, nodevet: Nodevet, save: Callable[..., str]
) -> None:
    drain(cluster, "gpu1", "nodevet:local power_limit 490 W, expected 700 W")
    drain(cluster, "gpu2", "nodevet:local power_limit 490 W, expected 700 W")
    drain(cluster, "gpu3", "nodevet:local power_limit 490 W, expected 700 W")
    drain(cluster, "gpu4", "nodevet:local xid 79")
    drain(cluster, "gpu5", "bad PSU")
    drain(cluster, "gpu6", "nodevet:local power_limit 490 W, expected 700 W")
    before = drained(cluster)
    hosts = {"gpu1": (OK,), "gpu2": (OK, OTHER), "gpu3": (POWER,), "gpu4": (OK,), "gpu5": (OK,)}
    save(hours=1, **hosts)
    assert "read it before it was drained" in run(nodevet, "resume").stdout
    assert drained(cluster) == before
    save(**hosts)
    done = run(nodevet, "resume")
    assert done.returncode == 0, done
    for told in ("not every check is ok", "power_limit fails", "xid is not ok", "not in the run"):
        assert told in done.stdout
    assert before.keys() - drained(cluster).keys() == {"gpu1"}


@pytest.mark.parametrize(
    "variables",
    [{"SLURM_TIME_FORMAT": "relative"}, {"SLURM_TIME_FORMAT": "%s"}, {"TZ": "Asia/Tokyo"}],
    ids=["relative", "seconds", "tokyo"],
)
def test_the_time_format_and_zone_of_a_shell_change_nothing(
    cluster: Slurm, nodevet: Nodevet, save: Callable[..., str], variables: dict[str, str]
) -> None:
    drain(cluster, "gpu1", "nodevet:local power_limit 490 W, expected 700 W")
    save(hours=1, gpu1=(OK,))
    assert "read it before it was drained" in run(nodevet, "resume", **variables).stdout
    save(gpu1=(OK,))
    assert "1 node resumed" in run(nodevet, "resume", **variables).stdout
    assert drained(cluster) == {}


def test_at_the_end_of_daylight_saving_an_older_look_does_not_resume_a_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In Berlin, both the look and the drain after it were between two and three o'clock."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    row = "NodeName=gpu1 State=IDLE+DRAIN Reason=nodevet:local power_limit [root@{}]"
    arrived = "2026-10-25T00:45:00+00:00"
    look = replace(reports(OK), hosts=(replace(reports(OK).hosts[0], arrived=arrived),))
    try:
        for since, why in (
            ("T01:30:00", "the run read it before it was drained"),
            ("T00:30:00", ""),
        ):
            nodes = parse_nodes(row.format(f"2026-10-25{since}"))  # in UTC, as scontrol is asked
            (plan,) = plan_resume(look, nodes, {})
            assert plan.why_not == why
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_look_by_a_clock_ahead_of_slurmctld_does_not_resume_a_node() -> None:
    """The look was before the drain; this machine's clock is an hour ahead of slurmctld's."""
    row = "NodeName=gpu1 State=IDLE+DRAIN Reason=nodevet:local power_limit [root@{}]"
    arrived = "2026-11-24T17:30:00+00:00"
    look = replace(reports(OK), hosts=(replace(reports(OK).hosts[0], arrived=arrived),))
    nodes = parse_nodes(row.format("2026-11-24T17:00:00"))
    config = "Configuration data as of 2026-11-24T17:10:00\nAccountingStorageType = (null)\n"
    ahead = clock_ahead_of(config, seconds_of("2026-11-24T18:10:00Z") or 0.0)
    assert ahead == -3600.0
    (plan,) = plan_resume(look, nodes, {}, ahead=ahead)
    assert plan.why_not == "the run read it before it was drained"
    (plan,) = plan_resume(look, nodes, {}, ahead=0.0)
    assert plan.why_not == ""


def test_resume_from_the_store_needs_the_machine_that_was_drained(
    cluster: Slurm, nodevet: Nodevet, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/store.sqlite"
    record(url, 7200, gpu1=("a", (POWER,)), gpu2=("b", (POWER,)))
    done = nodevet("slurm", "drain", "--from", "last", "--store", url, *SHARE)
    assert (done.returncode, set(drained(cluster))) == (0, {"gpu1", "gpu2"}), done
    record(url, -3, gpu1=("a", (OK, OTHER)), gpu2=("c", (OK, OTHER)))
    done = nodevet("slurm", "resume", "--from", "last", "--store", url)
    assert "it may not be the machine that was drained" in done.stdout, done
    assert set(drained(cluster)) == {"gpu2"}


def test_an_old_run_and_a_silent_controller_change_nothing(
    cluster: Slurm, nodevet: Nodevet, save: Callable[..., str], tmp_path: Path
) -> None:
    save(hours=30.1, gpu1=(POWER,))
    old = run(nodevet, "drain")
    assert (old.returncode, "the run is 30 h old" in old.stderr) == (2, True), old
    save(gpu1=(POWER,))
    conf = tmp_path / "slurm.conf"
    conf.write_text(cluster.conf.read_text().replace("SlurmctldPort=", "SlurmctldPort=1 #"))
    down = nodevet("slurm", "drain", "--from", "run.json", SLURM_CONF=str(conf))
    assert (down.returncode, "scontrol" in down.stderr) == (2, True), down
    assert drained(cluster) == {}


@pytest.mark.parametrize(
    ("changes", "verbs", "told"),
    [
        ({"replayed": True}, ("drain", "resume"), "the run judged saved evidence"),
        ({"only": ["power_limit"]}, ("resume",), "a run with --only or --skip cannot prove"),
        ({"skip": ["xid"]}, ("resume",), "a run with --only or --skip cannot prove"),
    ],
)
def test_a_replayed_run_or_one_with_only_or_skip_changes_nothing(
    cluster: Slurm,
    nodevet: Nodevet,
    save: Callable[..., str],
    tmp_path: Path,
    changes: dict[str, Any],
    verbs: tuple[str, ...],
    told: str,
) -> None:
    drain(cluster, "gpu1", "nodevet:local power_limit 490 W, expected 700 W")
    before = drained(cluster)
    save(gpu1=(OK,), gpu2=(POWER,))
    whole = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(whole | changes))
    for verb in verbs:
        done = run(nodevet, verb)
        assert (done.returncode, told in done.stderr) == (2, True), done
    assert drained(cluster) == before


def reports(*found: Finding, machine: str = "m") -> Run:
    """A run that read gpu1 in 2030."""
    host = HostReport(host="gpu1", status=Status.VETTED, findings=found, machine_id=machine)
    return Run(id="r", nodevet="0", started="2030-01-01T00:00:00+00:00", seconds=1.0, hosts=(host,))


def test_replacing_the_reason_of_a_drained_node_does_not_count_as_a_drain() -> None:
    out = ControllerNode("gpu1", ("idle", "drain"), "Prolog error", partitions=("a",))
    other = ControllerNode("gpu2", ("idle", "drain"), "nodevet:local xid 79", partitions=("a",))
    nodes = {node.name: node for node in (out, other)}
    (plan,) = plan_drain(reports(POWER), nodes, DrainLimits(share=0.05, keep=5))
    assert plan.why_not == ""


def test_a_node_in_maintenance_is_drained_and_is_not_counted_as_in_service() -> None:
    maintained = ControllerNode("gpu1", ("idle", "maintenance", "reserved"), partitions=("a",))
    last = ControllerNode("gpu2", ("idle",), partitions=("a",))
    for node, why in ((maintained, ""), (last._replace(name="gpu1"), "one of the last 1 of")):
        other = maintained._replace(name="gpu2")
        (plan,) = plan_drain(reports(POWER), {"gpu1": node, "gpu2": other}, DrainLimits(1.0, 1))
        assert plan.why_not.startswith(why) and bool(plan.why_not) == bool(why)


@pytest.mark.parametrize(
    ("end", "why"),
    [("", ""), ("; ...", "its reason does not name every check, and not every check is ok")],
)
def test_a_shortened_reason_needs_all_checks_to_pass_before_a_resume(end: str, why: str) -> None:
    reason = f"nodevet:local power_limit 490 W, expected 700 W{end}"
    node = ControllerNode("gpu1", ("idle", "drain"), reason, since="2026-11-24T17:01:24")
    known = {("local", "gpu1"): "m"}
    (plan,) = plan_resume(reports(OK, OTHER), {"gpu1": node}, known)
    assert plan.why_not == why
    for run in (reports(OK), with_counts(reports(OK))):
        (plan,) = plan_resume(run, {"gpu1": node}, known)
        assert plan.why_not == ""
