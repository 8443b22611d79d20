"""Every fix as a user runs it, over real SSH to simulated nodes, from wrong to as it was before.

vet, plan, approve, apply, vet, plan, reboot, vet, roll back. All that is wrong is wrong again
at every boot unless the fix's boot-time owner sets it. The story is lived through once
on each node; the tests ask what came of it.
"""

import json
import subprocess
from dataclasses import dataclass, field, replace
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
    modules: {nouveau: device, nvidia_uvm: available}
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
  hgx:
    gpus: {profile: h100-sxm, count: 2}
    sockets: 1
    cores: 1
    cpufreq: {driver: intel_pstate}
    nvml: {gpu.*.fabric.state: NOT_STARTED}
    faults: [cpu-capped, {cpu-minimum-lowered: {mhz: 900}}, turbo-off]
    files: {/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages: "1024\\n"}
  rack:
    gpus: {profile: gb200, count: 2}
    nvlink_domain: 2
    nics: 1
    nic_kind: infiniband
    sockets: 1
    cores: 1
    modules: {nvidia_peermem: available}
    faults: [clock-unsynchronised]
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
  services: {running: [site.service], enabled: [site.service]}
  kernel_modules: {loaded: [nvidia_uvm], absent: [nouveau]}
  swap: none
fix: [%s]
"""
HGX = """\
nodevet: 1
title: a node without its fabric, and with slow CPUs
expect:
  fabric: {}
  cpu_frequency: {turbo: true, minimum_mhz: 1200}
  hugepages: {total: {2M: 16}}
fix: [%s]
"""
RACK = """\
nodevet: 1
title: what the fixes of a rack's node need
expect:
  imex: {}
  dcgm: true
  gpudirect: {one_of: [peermem]}
  time_sync: {}
  limits: {of: [site.service, login], minimum_memlock_b: unlimited}
fix: [%s]
"""
FIXES = (
    *("persistence_mode", "mig_mode", "ecc_mode", "compute_mode", "power_limit", "gpu_clocks"),
    *("cpu_governor", "sysctl", "transparent_hugepage", "services", "kernel_modules", "swap"),
)
# what takes a setting back is in tests/remedy/test_faults_on_nodes.py
CARE = ("--drain-hook", "true", "--settle", "0.2")
SYSCTL = """\
d=/etc/systemd/system/systemd-sysctl.service.d; mkdir -p $d; printf '%s\\n' '[Unit]' \
ConditionPathIsReadWrite= '[Service]' ExecStart= ExecStart=-/lib/systemd/systemd-sysctl > $d/t.conf
"""
"""systemd-sysctl is left out in a container; the simulated kernel's files may be written."""
STATE = "/run/nodevet-sim/nvml.state"
SITE = """\
printf '[Service]\\nExecStart=/bin/sleep infinity\\n[Install]\\nWantedBy=multi-user.target\\n' \
    >/etc/systemd/system/site.service
"""
SERVICES = f"""\
{SITE}systemctl disable --now nvidia-persistenced nvidia-fabricmanager
"""
FABRIC = f"""\
cd /etc/systemd/system; mkdir nvidia-fabricmanager.service.d
printf '[Service]\\nExecStartPost=%s\\n' \
    '/bin/sed -i "s/fabric.state *=.*/fabric.state = COMPLETED/" {STATE}' \
    >nvidia-fabricmanager.service.d/t.conf
systemctl disable --now nvidia-fabricmanager
"""
"""Here the fabric manager registers the GPUs."""
ENGINE = r"""\
printf '%s\n' '[Service]' 'ExecStart=/bin/sh -c "rm -f /run/blind; exec sleep infinity"' \
    '[Install]' WantedBy=multi-user.target >/etc/systemd/system/nvidia-dcgm.service
cat >/usr/sbin/dcgmi <<'END'
#!/bin/sh
case $1 in
health) echo '{"body": {"Overall Health": {"value": "Healthy"}}, "header": []}' ;;
discovery) [ -e /run/blind ] && echo 1 GPUs found. || echo 2 GPUs found. ;;
esac
END
chmod 755 /usr/sbin/dcgmi; systemctl enable --now nvidia-dcgm; systemctl disable --now nvidia-imex
"""
"""DCGM's host engine may not see a GPU until it is restarted."""
CLOCK = r"""
printf '%s\n' '[Service]' 'ExecStart=/bin/sh -c "echo 0 1 900 90 >/run/nodevet-sim/adjtimex; \
exec sleep infinity"' '[Install]' WantedBy=multi-user.target >/etc/systemd/system/chrony.service
printf '#!/bin/sh\ngrep -q "^0 1 " /run/nodevet-sim/adjtimex\n' >/usr/bin/chronyc
chmod 755 /usr/bin/chronyc; systemctl daemon-reload
"""
"""No program may set the clock of a simulated node: this one sets what adjtimex(2) answers."""
SETTINGS = (
    "nvidia-smi --format=csv,noheader --query-gpu=persistence_mode,compute_mode,power.limit,"
    "clocks.applications.graphics,clocks.applications.memory,ecc.mode.current,ecc.mode.pending,"
    "mig.mode.current,mig.mode.pending; cat"
    " /sys/devices/system/cpu/cpufreq/policy*/scaling_governor"
    " /sys/devices/system/cpu/cpufreq/policy*/energy_performance_preference"
    " /proc/sys/kernel/numa_balancing /proc/sys/vm/swappiness"
    " /sys/kernel/mm/transparent_hugepage/enabled"
    " /sys/devices/system/cpu/cpufreq/policy*/scaling_m*_freq"
    " /sys/devices/system/cpu/intel_pstate/no_turbo"
    " /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages;"
    " for verb in is-enabled is-active; do systemctl $verb"
    " nvidia-persistenced nvidia-fabricmanager nvidia-imex nvidia-dcgm site; done;"
    " swapon --show --noheadings; lsmod | cut -d' ' -f1 | sort; systemctl --failed --no-legend"
)


@dataclass(frozen=True)
class Case:
    """A node, what is wrong there, and how it gets so."""

    node: str
    baseline: str
    fixes: tuple[str, ...]
    before: str  # a script of root
    reboots: bool = False  # after it
    once: tuple[str, ...] = ()  # neither a rollback nor a reboot makes it wrong again
    later: tuple[str, ...] = ()  # effective after a reboot


CASES = {
    "h100": Case(
        "h100",
        BASELINE,
        FIXES,
        SYSCTL + SERVICES,
        reboots=True,
        later=("ecc_mode", "kernel_modules"),
    ),
    "hgx": Case("hgx", HGX, ("fabric", "cpu_frequency", "hugepages"), FABRIC, once=("fabric",)),
    "rack": Case(
        "rack",
        RACK,
        ("imex", "dcgm", "gpudirect", "time_sync", "limits"),
        f"{ENGINE}{CLOCK}{SITE}systemctl enable --now site; touch /run/blind",
        once=("dcgm", "time_sync"),
    ),
}


class Rig:
    """A node, and a project with a baseline and two people."""

    def __init__(self, fleet: SimulatedFleet, case: Case) -> None:
        self.fleet = fleet
        self.case = case
        self.project = fleet.project
        fleet.baseline(case.node, case.baseline % ", ".join(case.fixes))
        self.all = ("-i", fleet.place.inventory, "-b", case.node, "--deadline", "150")
        self.reach = (*self.all, "--limit", case.node)
        self.do = fleet.run_in_project

    def on(self, command: str) -> str:
        """What a command of root says, whatever it ends with."""
        return self.fleet.run_on(self.case.node, f"{command}\ntrue")

    def reboot(self) -> None:
        self.fleet.sim("reboot", self.case.node)

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
        return self.fleet.sim("diff", self.case.node, codes=(0, 1))


@dataclass(frozen=True)
class Moment:
    """The node at one time."""

    wrong: dict[str, str]
    settings: str
    disk: str


@dataclass
class Story:
    """What came of it: commands, and the node after them."""

    case: Case
    done: dict[str, subprocess.CompletedProcess[str]] = field(default_factory=dict)
    moments: dict[str, Moment] = field(default_factory=dict)
    result: dict[str, Any] = field(default_factory=dict)


@pytest.fixture(scope="module")
def fleet(boot: Boot) -> SimulatedFleet:
    fleet = boot("every", SCENARIO)
    fleet.people("ann", "bob")
    (fleet.project / "approval.yaml").write_text("nodevet: 1\napprovals: {drain: 1, reboot: 1}\n")
    return fleet


@pytest.fixture(scope="module", params=CASES)
def story(fleet: SimulatedFleet, request: pytest.FixtureRequest) -> Story:
    case = CASES[str(request.param)]
    rig, told = Rig(fleet, case), Story(case)

    def look(when: str) -> None:
        told.moments[when] = Moment(rig.wrong(), rig.on(SETTINGS), rig.disk())

    def do(what: str, *words: str | Path) -> None:
        told.done[what] = rig.do(*words)

    rig.on(case.before)
    if case.reboots:
        rig.reboot()
    look("fail")
    plan, run = rig.project / f"{case.node}.json", rig.project / f"run-{case.node}"
    do("plan", "plan", *rig.reach, "--author", "ann", *CARE, "-o", plan)
    do("approve", "approve", plan, "--key", rig.project / "bob", "--yes")
    do("apply", "apply", plan, *rig.all, "--run", run)
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


def test_every_check_failed_and_its_fix_was_planned(story: Story) -> None:
    assert story.moments["fail"].wrong == dict.fromkeys(story.case.fixes, "fail")
    assert story.done["plan"].returncode == 1, story.done["plan"]
    planned = {step["fix"] for step in story.result["hosts"][0]["steps"]}
    assert planned == set(story.case.fixes)


def test_the_fix_was_applied_and_pending_steps_are_reported(story: Story) -> None:
    done, case = story.done["apply"], story.case
    assert done.returncode == 0, done
    outcomes = {step["fix"]: step["outcome"] for step in story.result["hosts"][0]["steps"]}
    assert outcomes == dict.fromkeys(case.fixes, "changed") | dict.fromkeys(case.later, "pending")
    assert story.moments["applied"].wrong == dict.fromkeys(case.later, "fail")


def test_planning_again_plans_no_step(story: Story) -> None:
    again, last = story.done["plan again"], story.done["plan at last"]
    assert again.returncode == (3 if story.case.later else 0) and "set " not in again.stdout, again
    assert last.returncode == 0, last


def test_no_check_fails_after_a_reboot(story: Story) -> None:
    assert story.moments["rebooted"].wrong == {}


def test_every_change_is_restored(story: Story) -> None:
    before, after = story.moments["fail"], story.moments["rolled back"]
    assert story.done["rollback"].returncode == 0, story.done["rollback"]
    assert after.disk == before.disk
    again, case = story.moments["rolled back and rebooted"], story.case
    once = dict.fromkeys(case.once, "fail")
    assert replace(again, wrong={**again.wrong, **once}) == before
    left = dict.fromkeys(set(case.fixes) - {*case.later, *case.once}, "fail")
    assert left.items() <= after.wrong.items()
