"""plan, approve, apply, rollback as a user runs them, over real SSH to simulated nodes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nodevet import report
from nodevet_sim.nspawn.needs import missing
from nodevet_sim.nspawn.place import FleetFolder

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason="; ".join(missing())),
    pytest.mark.timeout(1500),
]
Run = Callable[..., subprocess.CompletedProcess[str]]
GOVERNOR = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
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


class Rig(NamedTuple):
    """A fleet, and a project with a baseline and somebody who may approve."""

    nodevet: Run
    fleet: str
    project: Path
    key: Path

    def at(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return self.nodevet(*words, "--project", self.project, cwd=self.project)

    def plan(self, file: str = "plan.json", *options: str | Path) -> Path:
        """A plan of what is wrong now; `options` say how it is carried out."""
        target = self.project / file
        reach = ["-i", FleetFolder(self.fleet).inventory, "-b", "base"]
        done = self.at("plan", *reach, "--author", "ann", "--settle", "0.2", *options, "-o", target)
        assert done.returncode == 1, done
        return target

    def approved(self, file: str = "plan.json", *options: str | Path) -> Path:
        plan = self.plan(file, *options)
        done = self.at("approve", plan, "--key", self.key, "--yes")
        assert done.returncode == 0, done
        return plan

    def apply(self, plan: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
        reach = ["-i", FleetFolder(self.fleet).inventory, "-b", "base"]
        return self.at("apply", plan, *reach, *words)

    def on(self, node: str, command: str) -> str:
        done = self.nodevet("sim", "ssh", "--fleet", self.fleet, node, "--", command)
        assert done.returncode == 0, done
        return done.stdout

    def state(self, node: str) -> str:
        """What the two fixes could change, and every file of /etc."""
        return self.on(
            node,
            f"cat {GOVERNOR}; nvidia-smi --query-gpu=power.limit --format=csv,noheader; "
            "find /etc ! -type d -printf '%p %m %U:%G %s %l\\n' | sort; "
            "systemctl list-unit-files --no-legend 'nodevet*'; "
            "systemctl list-units --all --no-legend 'nodevet*'",
        )

    def wrong(self) -> set[str]:
        done = self.at(
            "check", "-i", FleetFolder(self.fleet).inventory, "-b", "base", "--format", "json"
        )
        return {
            f"{host['host']} {finding['check']}"
            for host in json.loads(done.stdout)["hosts"]
            for finding in host["findings"]
            if finding["verdict"] != "ok"
        }


@pytest.fixture(scope="module")
def rig(nodevet: Run, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    project = tmp_path_factory.mktemp("project")
    scenario, name = project / "nodes.yaml", f"app{os.getpid()}"
    scenario.write_text(SCENARIO)
    (project / "baselines").mkdir()
    (project / "baselines" / "base.yaml").write_text(BASELINE)
    key = project / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    public = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    (project / "allowed_signers").write_text(f"ann {public}\n")
    up = nodevet("sim", "up", scenario, "--name", name)
    assert up.returncode == 0, up
    try:
        yield Rig(nodevet, name, project, key)
    finally:
        nodevet("sim", "down", name)


ALL = {"gpu1 power_limit", "gpu1 cpu_governor", "gpu2 cpu_governor"}


def test_the_whole_loop(rig: Rig) -> None:
    """Wrong, planned, approved, applied, right, nothing left to plan, rolled back, as before."""
    before = rig.state("gpu1"), rig.state("gpu2")
    plan = rig.approved()
    run = rig.project / "first"
    done = rig.apply(plan, "--run", run)
    assert done.returncode == 0, done
    assert "DONE" in done.stdout and "gpu[1-2]" in done.stdout
    assert rig.wrong() == set()
    result = json.loads((run / "result.json").read_text())
    assert [host["outcome"] for host in result["hosts"]] == ["changed", "changed"]
    assert result["approvals"][0]["who"] == "ann"
    kept = {path.name for path in run.iterdir() if path.is_file()}
    assert {f"result{ending}" for ending in report.endings().values()} <= kept
    assert not any("part" in name.split(".") for name in kept)
    assert "approved by" in (run / "result.html").read_text()
    shown = rig.nodevet("report", run, "--format", "diff")
    assert shown.returncode == 0 and shown.stdout == (run / "result.diff").read_text(), shown
    assert (run / "evidence" / "gpu1" / "before.json").exists()
    nothing = rig.at(
        "plan", "-i", FleetFolder(rig.fleet).inventory, "-b", "base", "--author", "ann"
    )
    assert nothing.returncode == 0, nothing
    again = rig.apply(plan, "--run", rig.project / "again")
    assert again.returncode == 0 and "ALREADY RIGHT" in again.stdout, again
    rolled = rig.at("rollback", run, "--settle", "0.2")
    assert rolled.returncode == 0, rolled
    assert (rig.state("gpu1"), rig.state("gpu2")) == before
    assert rig.wrong() == ALL
    twice = rig.at("rollback", run)
    assert twice.returncode == 0 and "ALREADY RIGHT" in twice.stdout, twice


def test_killed_in_the_middle_and_resumed(rig: Rig) -> None:
    from nodevet.remedy.journal.journal import read

    before = rig.state("gpu1"), rig.state("gpu2")
    plan = rig.approved("killed.json", "--canary", "0")
    run = rig.project / "killed"
    words: list[Any] = [
        *("apply", plan, "-i", FleetFolder(rig.fleet).inventory, "-b", "base"),
        *("--project", rig.project, "--run", run),
    ]
    process = start(words)
    journal, limit = run / "journal.jsonl", time.monotonic() + 120
    while not journal.exists() or b'"action-begin"' not in journal.read_bytes():
        assert process.poll() is None and time.monotonic() < limit
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert not (run / "result.json").exists()
    assert any(type(record).__name__ == "Doing" for record in read(run))
    resumed = rig.nodevet(
        "apply", "--resume", run, "-b", "base", "--project", rig.project, cwd=rig.project
    )
    assert resumed.returncode in (0, 1), resumed
    outcomes = {host["outcome"] for host in json.loads((run / "result.json").read_text())["hosts"]}
    assert outcomes <= {"changed", "failed_and_rolled_back", "not_attempted"}, resumed
    rolled = rig.at("rollback", run, "--settle", "0.2")
    assert rolled.returncode == 0, rolled
    assert (rig.state("gpu1"), rig.state("gpu2")) == before


def test_a_reboot_proves_that_it_persists(rig: Rig) -> None:
    """Bob may approve a reboot alone; the plan is Ann's."""
    key = rig.project / "bob"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    public = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    with (rig.project / "allowed_signers").open("a") as signers:
        signers.write(f"bob {public}\n")
    (rig.project / "approval.yaml").write_text("nodevet: 1\napprovals: {reboot: 1}\n")
    hook = rig.project / "hook"
    hook.write_text(f'#!/bin/sh\necho "$1" >>{rig.project}/drained\n')
    hook.chmod(0o755)
    before = rig.state("gpu1"), rig.state("gpu2")
    plan = rig.plan("reboot.json", "--verify-reboot", "--drain-hook", hook)
    done = rig.at("approve", plan, "--key", key, "--yes")
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
    rolled = rig.at("rollback", run, "--settle", "0.2")
    assert rolled.returncode in (0, 1), rolled
    assert rig.state("gpu2") == before[1]
    assert rolled.returncode == 0 and rig.state("gpu1") == before[0], rolled


def start(words: list[Any]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "nodevet", *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
