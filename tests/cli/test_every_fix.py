"""Every fix as a user runs it, over real SSH to simulated nodes, from wrong to as it was before.

vet, plan, approve, apply, vet, plan, reboot, vet, roll back. All that is wrong is wrong again
at every boot unless the fix's boot-time owner sets it. The story is lived through once; the
tests ask what came of it.
"""

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(1500)
SCENARIO = """\
sim: 1
nodes:
  h100:
    gpus: {profile: h100-sxm, count: 2}
    sockets: 1
    cores: 2
    cpufreq: {driver: intel_pstate}
    governor: powersave
    numa: {balancing: 1}
    faults: [persistence-off]
    modules: {nouveau: device, nvidia_peermem: available}
    swap: [{name: /swapfile, kb: 8388608}]
    files:
      /sys/kernel/mm/transparent_hugepage/enabled: "[always] madvise never\\n"
      /proc/sys/vm/swappiness: "60\\n"
    nvml:
      gpu.0.power_limit_mw: "500000"
      gpu.0.power_limit_enforced_mw: "500000"
      gpu.1.app_clock_graphics_mhz: "1200"
      gpu.0.compute_mode: PROHIBITED
      gpu.1.ecc_current: "0"
      gpu.1.ecc_pending: "0"
      gpu.1.mig_current: "1"
      gpu.1.mig_pending: "1"
"""
BASELINE = """\
nodevet: 1
title: everything that has a fix
expect:
  persistence_mode: true
  mig_mode: false
  ecc_mode: true
  compute_mode: DEFAULT
  power_limit: default
  gpu_clocks: {graphics: max, memory: default}
  cpu_governor: performance
  sysctl: {kernel.numa_balancing: 0, vm.swappiness: {maximum: 10}}
  transparent_hugepage: madvise
  services: {running: [nvidia-fabricmanager.service], enabled: [nvidia-fabricmanager.service]}
  kernel_modules: {loaded: [nvidia_peermem], absent: [nouveau]}
  swap: none
fix: [%s]
"""
FIXES = (
    *("persistence_mode", "mig_mode", "ecc_mode", "compute_mode", "power_limit", "gpu_clocks"),
    *("cpu_governor", "sysctl", "transparent_hugepage", "services", "kernel_modules", "swap"),
)
# what takes a setting back is in tests/remedy/test_faults_on_nodes.py
CARE = ("--drain-hook", "true", "--settle", "0.2")
LATER = ("ecc_mode", "kernel_modules")  # effective after a reboot
SYSCTL = """\
d=/etc/systemd/system/systemd-sysctl.service.d; mkdir -p $d; printf '%s\\n' '[Unit]' \
ConditionPathIsReadWrite= '[Service]' ExecStart= ExecStart=-/lib/systemd/systemd-sysctl > $d/t.conf
"""
"""systemd-sysctl is left out in a container; the simulated kernel's files may be written."""
SETTINGS = (
    "nvidia-smi --format=csv,noheader --query-gpu=persistence_mode,compute_mode,power.limit,"
    "clocks.applications.graphics,clocks.applications.memory,ecc.mode.current,ecc.mode.pending,"
    "mig.mode.current,mig.mode.pending; cat"
    " /sys/devices/system/cpu/cpufreq/policy*/scaling_governor"
    " /sys/devices/system/cpu/cpufreq/policy*/energy_performance_preference"
    " /proc/sys/kernel/numa_balancing /proc/sys/vm/swappiness"
    " /sys/kernel/mm/transparent_hugepage/enabled; systemctl is-enabled nvidia-persistenced"
    " nvidia-fabricmanager; systemctl is-active nvidia-persistenced nvidia-fabricmanager;"
    " swapon --show --noheadings; lsmod | cut -d' ' -f1 | sort; systemctl --failed --no-legend"
)


class Rig:
    """A node, and a project with a baseline and two people."""

    def __init__(self, fleet: SimulatedFleet) -> None:
        self.fleet = fleet
        self.project = fleet.project
        self.reach = fleet.reach
        self.do = fleet.at

    def on(self, command: str) -> str:
        """What a command of root says, whatever it ends with."""
        return self.fleet.on("h100", f"{command}; true")

    def reboot(self) -> None:
        self.fleet.sim("reboot", "h100")

    def wrong(self) -> dict[str, str]:
        """The worst verdict of each check that is not right."""
        done = self.do("check", *self.reach, "--format", "json")
        (host,) = json.loads(done.stdout)["hosts"]
        assert host["status"] == "vetted", host
        rank = ("fail", "unknown")
        found: dict[str, str] = {}
        for finding in host["findings"]:
            if finding["verdict"] in rank:
                worst = min(
                    found.get(finding["check"], "unknown"), finding["verdict"], key=rank.index
                )
                found[finding["check"]] = worst
        return found

    def disk(self) -> str:
        """What is on the node's disk that was not there before its first boot, and what is not."""
        return self.fleet.sim("diff", "h100", codes=(0, 1))


@dataclass(frozen=True)
class Moment:
    """The node at one time."""

    wrong: dict[str, str]
    settings: str
    disk: str


@dataclass
class Story:
    """What came of it: commands, and the node after them."""

    done: dict[str, subprocess.CompletedProcess[str]] = field(default_factory=dict)
    moments: dict[str, Moment] = field(default_factory=dict)
    result: dict[str, Any] = field(default_factory=dict)


@pytest.fixture(scope="module")
def rig(boot: Boot) -> Rig:
    fleet = boot("every", SCENARIO, BASELINE % ", ".join(FIXES))
    fleet.people("ann", "bob")
    (fleet.project / "approval.yaml").write_text("nodevet: 1\napprovals: {drain: 1, reboot: 1}\n")
    return Rig(fleet)


@pytest.fixture(scope="module")
def story(rig: Rig) -> Story:
    told = Story()

    def look(when: str) -> None:
        told.moments[when] = Moment(rig.wrong(), rig.on(SETTINGS), rig.disk())

    def do(what: str, *words: str | Path) -> None:
        told.done[what] = rig.do(*words)

    rig.on(f"{SYSCTL}systemctl disable --now nvidia-persistenced nvidia-fabricmanager")
    rig.reboot()
    look("fail")
    plan, run = rig.project / "plan.json", rig.project / "run"
    do("plan", "plan", *rig.reach, "--author", "ann", *CARE, "-o", plan)
    do("approve", "approve", plan, "--key", rig.project / "bob", "--yes")
    do("apply", "apply", plan, *rig.reach, "--run", run)
    result = run / "result.json"
    assert result.exists(), told.done
    told.result = json.loads(result.read_text())
    look("applied")
    do("plan again", "plan", *rig.reach)
    rig.reboot()
    look("rebooted")
    do("plan at last", "plan", *rig.reach)
    do("rollback", "rollback", run)
    look("rolled back")
    rig.reboot()
    look("rolled back and rebooted")
    return told


def test_it_was_wrong_and_planned(story: Story) -> None:
    assert story.moments["fail"].wrong == dict.fromkeys(FIXES, "fail")
    assert story.done["plan"].returncode == 1, story.done["plan"]
    planned = {step["fix"] for step in story.result["hosts"][0]["steps"]}
    assert planned == set(FIXES)


def test_it_was_done_and_what_waits_is_said(story: Story) -> None:
    done = story.done["apply"]
    assert done.returncode == 0, done
    outcomes = {step["fix"]: step["outcome"] for step in story.result["hosts"][0]["steps"]}
    assert outcomes == dict.fromkeys(FIXES, "changed") | dict.fromkeys(LATER, "pending")
    assert story.moments["applied"].wrong == dict.fromkeys(LATER, "fail")


def test_planning_again_is_empty(story: Story) -> None:
    again, last = story.done["plan again"], story.done["plan at last"]
    assert again.returncode == 3 and "set " not in again.stdout, again
    assert last.returncode == 0, last


def test_it_is_right_after_a_reboot(story: Story) -> None:
    assert story.moments["rebooted"].wrong == {}


def test_all_is_put_back(story: Story) -> None:
    before, after = story.moments["fail"], story.moments["rolled back"]
    assert story.done["rollback"].returncode == 0, story.done["rollback"]
    assert after.disk == before.disk
    assert story.moments["rolled back and rebooted"] == before
    left = dict.fromkeys(set(FIXES) - set(LATER), "fail")
    assert left.items() <= after.wrong.items()
