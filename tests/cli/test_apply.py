"""plan, approve, apply, rollback as a user runs them, over real SSH to simulated nodes."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from nodevet.fix import formats as fix_formats
from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(1500)
GOVERNOR = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
SET = "scaling_governor"
SCENARIO = """\
sim: 1
templates:
  h100: {gpus: {profile: h100-sxm, count: 2}, sockets: 1, cores: 2}
nodes:
  gpu1: {template: h100, governor: powersave, nvml: {"gpu.*.power_limit_mw": "500000"}}
  gpu2: {template: h100, governor: powersave}
"""
BASELINE = """\
nodevet: 1
expect:
  power_limit: 700
  cpu_governor: performance
fix: [power_limit, cpu_governor]
"""


class Rig:
    """A fleet, and a project with a baseline and somebody who may approve."""

    def __init__(self, fleet: SimulatedFleet) -> None:
        self.fleet = fleet
        self.project = fleet.project
        self.run_in_project = fleet.run_in_project

    def plan(self, file: str = "plan.json", *options: str | Path) -> Path:
        """A plan of what is wrong now; `options` say how it is carried out."""
        care = ("--author", "ann", "--settle", "0.2")
        done = self.run_in_project("plan", *self.fleet.reach, *care, *options, "-o", file)
        assert done.returncode == 1, done
        return self.project / file

    def approved(self, file: str = "plan.json", *options: str | Path) -> Path:
        plan = self.plan(file, *options)
        done = self.run_in_project("approve", plan, "--key", "ann", "--yes")
        assert done.returncode == 0, done
        return plan

    def apply(self, plan: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return self.run_in_project("apply", plan, *self.fleet.reach, *words)

    def state(self, node: str) -> str:
        """What the two fixes could change, and every file of /etc."""
        return self.fleet.run_on(
            node,
            f"cat {GOVERNOR}; nvidia-smi --query-gpu=power.limit --format=csv,noheader; "
            "find /etc ! -type d -printf '%p %m %U:%G %s %l\\n' | sort; "
            "systemctl list-unit-files --no-legend 'nodevet*'; "
            "systemctl list-units --all --no-legend 'nodevet*'",
        )

    def asked(self, *words: str) -> Any:
        """What a command of the history says."""
        done = self.fleet.nodevet(*words, "--format", "json")
        assert done.returncode == 0, done
        return json.loads(done.stdout)

    def wrong(self) -> set[str]:
        done = self.run_in_project("check", *self.fleet.reach, "--all", "--format", "json")
        return {
            f"{host['host']} {finding['check']}"
            for host in json.loads(done.stdout)["hosts"]
            for finding in host["findings"]
            if finding["verdict"] != "ok"
        }


@pytest.fixture(scope="module")
def rig(boot: Boot) -> Rig:
    fleet = boot("app", SCENARIO, BASELINE)
    fleet.recorded = True
    fleet.people("ann")
    return Rig(fleet)


ALL = {"gpu1 power_limit", "gpu1 cpu_governor", "gpu2 cpu_governor"}


def test_a_plan_is_approved_applied_verified_and_rolled_back(rig: Rig) -> None:
    """Wrong, planned, approved, applied, right, nothing left to plan, rolled back, as before."""
    before = rig.state("gpu1"), rig.state("gpu2")
    assert rig.wrong() == ALL
    plan = rig.approved()
    run = rig.project / "first"
    done = rig.apply(plan, "--run", run)
    assert done.returncode == 0 and "recorded" not in done.stderr, done
    assert "CHANGED  gpu[1-2]" in done.stdout
    assert rig.wrong() == set()
    result = json.loads((run / "result.json").read_text())
    assert [host["outcome"] for host in result["hosts"]] == ["changed", "changed"]
    assert result["approvals"][0]["who"] == "ann"
    kept = {path.name for path in run.iterdir() if path.is_file()}
    assert {f"result{ending}" for ending in fix_formats.endings().values()} <= kept
    assert not any("part" in name.split(".") for name in kept)
    assert "approved by" in (run / "result.html").read_text()
    shown = rig.fleet.nodevet("report", run, "--format", "diff")
    assert shown.returncode == 0 and shown.stdout == (run / "result.diff").read_text(), shown
    assert (run / "evidence" / "gpu1" / "before.json").exists()
    nothing = rig.run_in_project("plan", *rig.fleet.reach, "--author", "ann")
    assert nothing.returncode == 0, nothing
    again = rig.apply(plan, "--run", rig.project / "again")
    assert again.returncode == 0 and "UNCHANGED" in again.stdout, again
    rolled = rig.run_in_project("rollback", run, "--settle", "0.2")
    assert rolled.returncode == 0, rolled
    assert (rig.state("gpu1"), rig.state("gpu2")) == before
    assert rig.wrong() == ALL
    broken = f"sqlite:///{rig.project}/first"  # a folder
    twice = rig.run_in_project("rollback", run, "--store", broken)
    assert twice.returncode == 0 and "UNCHANGED" in twice.stdout, twice
    assert "this run of fixes is not fully recorded: " in twice.stderr
    remembered(rig, json.loads(plan.read_bytes())["id"])


def remembered(rig: Rig, plan: str) -> None:
    """The loop above is in the history of its hosts and of a GPU."""
    runs = rig.asked("runs", "--fixes")["fix_runs"]
    assert [(each["kind"], Path(each["folder"]).name) for each in runs] == [
        ("rollback", "first"),
        ("apply", "again"),
        ("apply", "first"),
    ]
    assert all(each["plan"] == plan and each["approvals"] == ["ann"] for each in runs[1:])
    events = rig.asked("history", "gpu1")["events"]
    assert [each["kind"] for each in events if each["outcome"] or each["kind"] == "planned"] == [
        "planned",
        "fix",
        "fix",
        "rollback",
    ]
    governor = [
        e["action"] for e in events if e["action"] and e["action"]["resource"].endswith(SET)
    ]
    told = [(e["kind"], e["before"], e["after"], e["outcome"]) for e in governor if e["kind"]]
    assert told[0] == ("apply", "powersave", "performance", "changed"), governor
    assert told[-1] == ("rollback", "performance", "powersave", "rolled_back")
    fixed = {e["finding"]["check"]: e["by"]["plan"] for e in events if e["kind"] == "fixed"}
    assert fixed == {"power_limit": plan, "cpu_governor": plan}
    uuid = rig.fleet.run_on("gpu1", "nvidia-smi --query-gpu=uuid --format=csv,noheader").split()[0]
    passport = rig.asked("part", uuid)
    assert [
        (each["kind"], each["resource"], each["before"], each["after"])
        for each in passport["repairs"]
    ] == [
        ("apply", f"gpu {uuid}:power_limit_mw", "500 W", "700 W"),
        ("rollback", f"gpu {uuid}:power_limit_mw", "700 W", "500 W"),
    ]
    assert {each["fix"] for each in passport["around"]} >= {"cpu_governor"}
    shown = rig.fleet.nodevet("part", uuid, "--redact").stdout
    assert "500 W → 700 W" in shown and "gpu1" not in shown and plan not in shown


def test_a_run_that_was_killed_midway_is_resumed(rig: Rig) -> None:
    from nodevet.fix.journal.journal import read

    before = rig.state("gpu1"), rig.state("gpu2")
    plan = rig.approved("killed.json", "--canary", "0")
    run = rig.project / "killed"
    words: list[Any] = [
        *("apply", plan, *rig.fleet.reach, "--project", rig.project, "--run", run),
    ]
    process = start(words)
    journal, limit = run / "journal.jsonl", time.monotonic() + 120
    while not journal.exists() or b'"action-begin"' not in journal.read_bytes():
        assert process.poll() is None and time.monotonic() < limit
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert not (run / "result.json").exists()
    assert any(type(record).__name__ == "ActionBegin" for record in read(run))
    resumed = rig.run_in_project("apply", "--resume", run, "-b", "base")
    assert resumed.returncode in (0, 1), resumed
    outcomes = {host["outcome"] for host in json.loads((run / "result.json").read_text())["hosts"]}
    assert outcomes <= {"changed", "failed_and_rolled_back", "not_attempted"}, resumed
    rolled = rig.run_in_project("rollback", run, "--settle", "0.2")
    assert rolled.returncode == 0, rolled
    assert (rig.state("gpu1"), rig.state("gpu2")) == before


def test_verify_reboot_proves_that_the_settings_persist(rig: Rig) -> None:
    """Bob may approve a reboot alone; the plan is Ann's."""
    rig.fleet.people("bob")
    (rig.project / "approval.yaml").write_text("nodevet: 1\napprovals: {reboot: 1}\n")
    hook = rig.project / "hook"
    hook.write_text(f'#!/bin/sh\necho "$1" >>{rig.project}/drained\n')
    hook.chmod(0o755)
    before = rig.state("gpu1"), rig.state("gpu2")
    plan = rig.plan("reboot.json", "--verify-reboot", "--drain-hook", hook)
    done = rig.run_in_project("approve", plan, "--key", "bob", "--yes")
    assert done.returncode == 0, done
    run = rig.project / "rebooted"
    done = rig.apply(plan, "--run", run)
    assert done.returncode == 0, done
    hosts = json.loads((run / "result.json").read_text())["hosts"]
    assert [(host["outcome"], host["rebooted"]) for host in hosts] == [
        ("verified_after_reboot", True),
        ("changed", False),
    ]
    told = (rig.project / "drained").read_text()
    assert told == "gpu1\ngpu1\n", "before the first step, and right before the reboot"
    assert rig.wrong() == set()
    rolled = rig.run_in_project("rollback", run, "--settle", "0.2")
    assert rolled.returncode in (0, 1), rolled
    assert rig.state("gpu2") == before[1]
    assert rolled.returncode == 0 and rig.state("gpu1") == before[0], rolled


def start(words: list[Any]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "nodevet", *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
