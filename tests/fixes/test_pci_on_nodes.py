"""Registers of PCI functions on a node: wrong, planned, set, rebooted, and as they were before."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

import pytest
from node_tools import put_on_node

from simulated_fleet import Boot, Done, SimulatedFleet

pytestmark = pytest.mark.timeout(900)
SCENARIO = """\
sim: 1
nodes:
  n1:
    gpus: {profile: h100-sxm, count: 1}
    sockets: 2
    cores: 1
    nics: 1
    faults: [read-request-small, {acs-redirect: {gpu: 0}}, irqs-on-one-cpu]
"""
BASELINE = """\
nodevet: 1
expect:
  pcie_settings: {minimum_read_request_b: 4096, relaxed_ordering: true}
  acs: false
  irq_affinity: {}
fix: [pcie_settings, acs, irq_affinity]
"""
FIXES = {"pcie_settings", "acs", "irq_affinity"}
CARE = ("--author", "ann", "--settle", "0.2")
REGISTERS = """\
for d in /sys/bus/pci/devices/*; do a=${d##*/}; echo $a $(setpci -s $a CAP_EXP+8.w) \
$(setpci -s $a ECAP_ACS+6.w 2>&1); done; systemctl --failed --no-legend
for d in /sys/bus/pci/devices/*/msi_irqs/*; do echo $d $(cat /proc/irq/${d##*/}/*_list); done
"""


@dataclass
class Moment:
    wrong: set[str]
    registers: str
    disk: str


@dataclass
class Story:
    done: dict[str, Done] = field(default_factory=dict)
    moments: dict[str, Moment] = field(default_factory=dict)
    outcomes: dict[str, Any] = field(default_factory=dict)


@pytest.fixture(scope="module")
def fleet(boot: Boot) -> SimulatedFleet:
    fleet = boot("pci", SCENARIO, BASELINE)
    fleet.people("ann", "bob")
    return fleet


def moment(fleet: SimulatedFleet) -> Moment:
    findings = fleet.vetted(*fleet.reach)["n1"]["findings"]
    wrong = {each["check"] for each in findings if each["verdict"] in ("fail", "unknown")}
    return Moment(wrong, fleet.run_on("n1", REGISTERS), fleet.sim("diff", "n1", codes=(0, 1)))


def apply(
    fleet: SimulatedFleet, name: str, between: str = "true", *options: str
) -> dict[str, Done]:
    """Plan, approve, apply; `between`: a command of root on the node before the last; `options`:
    of the plan."""
    plan, key = fleet.project / f"{name}.json", fleet.project / "bob"
    done = {"plan": fleet.run_in_project("plan", *fleet.reach, *CARE, *options, "-o", plan)}
    done["approve"] = fleet.run_in_project("approve", plan, "--key", key, "--yes")
    fleet.run_on("n1", between)
    done["apply"] = fleet.run_in_project("apply", plan, *fleet.reach, "--run", fleet.project / name)
    return done


def outcomes(fleet: SimulatedFleet, run: str) -> dict[str, str]:
    text = (fleet.project / run / "result.json").read_text(encoding="utf-8")
    (host,) = json.loads(text)["hosts"]
    return {step["fix"]: step["outcome"] for step in host["steps"]}


@pytest.fixture(scope="module")
def story(fleet: SimulatedFleet) -> Story:
    told = Story()
    told.moments["wrong"] = moment(fleet)
    told.done = apply(fleet, "run")
    assert (fleet.project / "run/result.json").exists(), told.done
    told.outcomes = outcomes(fleet, "run")
    told.moments["applied"] = moment(fleet)
    told.done["again"] = fleet.run_in_project("plan", *fleet.reach)
    fleet.sim("reboot", "n1")
    told.moments["rebooted"] = moment(fleet)
    told.done["rollback"] = fleet.run_in_project("rollback", fleet.project / "run")
    told.moments["rolled back"] = moment(fleet)
    fleet.sim("reboot", "n1")
    told.moments["rebooted again"] = moment(fleet)
    return told


def test_the_fixes_correct_every_failing_check(story: Story) -> None:
    assert story.moments["wrong"].wrong == FIXES
    assert story.done["apply"].returncode == 0, story.done
    assert story.outcomes == dict.fromkeys(FIXES, "changed")
    assert story.moments["applied"].wrong == set()
    assert story.done["again"].returncode == 0, story.done["again"]


def test_a_reboot_loses_the_registers_and_the_units_set_them(story: Story) -> None:
    assert story.moments["rebooted"].wrong == set()
    assert story.moments["rebooted"].registers == story.moments["applied"].registers


def test_a_rollback_restores_the_earlier_state(story: Story) -> None:
    before = story.moments["wrong"]
    assert story.done["rollback"].returncode == 0, story.done["rollback"]
    assert story.moments["rolled back"] == before
    assert story.moments["rebooted again"] == before
    assert story.moments["applied"].registers != before.registers


def test_a_setpci_that_exits_0_without_effect_is_a_failure(
    story: Story, fleet: SimulatedFleet
) -> None:
    """It exits with 0 and sets nothing."""
    lie = "printf '#!/bin/sh\\n' >/usr/local/bin/setpci; chmod 755 /usr/local/bin/setpci"
    done = apply(fleet, "lied", lie, "--fix", "acs")
    fleet.run_on("n1", "rm /usr/local/bin/setpci")
    assert done["apply"].returncode == 1, done
    assert outcomes(fleet, "lied") == {"acs": "failed_and_rolled_back"}
    assert moment(fleet) == story.moments["wrong"]


def test_a_run_killed_during_the_write_can_be_resumed(story: Story, fleet: SimulatedFleet) -> None:
    plan, run = fleet.project / "killed.json", fleet.project / "killed"
    fleet.run_in_project("plan", *fleet.reach, *CARE, "--fix", "acs", "-o", plan)
    fleet.run_in_project("approve", plan, "--key", fleet.project / "bob", "--yes")
    hang = "#!/bin/sh\\ntouch /run/asked; exec sleep 600\\n"
    fleet.run_on("n1", f"printf '{hang}' >/usr/local/bin/setpci; chmod 755 /usr/local/bin/setpci")
    words = ("apply", plan, *fleet.reach, "--run", run, "--project", fleet.project)
    fleet.kill_when(lambda: fleet.file("n1", "/run/asked") is not None, *words, alone=True)
    fleet.run_on("n1", "rm /usr/local/bin/setpci; pkill -x sleep || true")
    done = fleet.run_in_project("apply", "--resume", run, "-b", "base")
    assert done.returncode == 0 and outcomes(fleet, "killed") == {"acs": "changed"}, done
    assert "acs" not in moment(fleet).wrong
    assert fleet.run_in_project("rollback", run).returncode == 0
    assert moment(fleet) == story.moments["wrong"]


def test_a_register_that_changed_since_planning_is_not_touched(
    story: Story, fleet: SimulatedFleet
) -> None:
    change = "setpci -s 0000:1a:00.0 CAP_EXP+8.w=2000:7000"
    done = apply(fleet, "stale", change, "--fix", "pcie_settings")
    registers = fleet.run_on("n1", REGISTERS)
    fleet.run_on("n1", "setpci -s 0000:1a:00.0 CAP_EXP+8.w=0000:7000")
    assert done["apply"].returncode == 1, done
    assert "is MaxReadReq 512 B now, and was MaxReadReq 128 B when planned" in done["apply"].stdout
    assert "0000:1a:00.0 2930 " in registers
    assert moment(fleet) == story.moments["wrong"]


def test_a_script_that_sets_registers_is_reported_as_another_manager(
    story: Story, fleet: SimulatedFleet
) -> None:
    rc = "#!/bin/sh\\nsetpci -v -s 17:01.0 ECAP_ACS+0x6.w=0000\\n"
    fleet.run_on("n1", f"printf '{rc}' >/etc/rc.local; chmod 755 /etc/rc.local")
    done = fleet.run_in_project("plan", *fleet.reach)
    fleet.run_on("n1", "rm /etc/rc.local")
    assert "also managed by /etc/rc.local:2" in done.stdout, done
    assert "set pcie_settings" in done.stdout and "set acs" not in done.stdout, done


def test_a_running_virtual_machine_keeps_its_isolation(story: Story, fleet: SimulatedFleet) -> None:
    users = "/sys/module/kvm_intel/refcnt"
    fleet.sim("set", "n1", "modules.kvm_intel=boot", f"{users}=1")
    done = fleet.run_in_project("plan", *fleet.reach, "--fix", "acs")
    fleet.sim("set", "n1", f"{users}=0")
    free = fleet.run_in_project("plan", *fleet.reach, "--fix", "acs")
    assert "kvm_intel is in use" in done.stdout and "set acs" not in done.stdout, done
    assert "set acs" in free.stdout, free


def test_memory_is_compacted_once(story: Story, fleet: SimulatedFleet) -> None:
    """Two people approve what cannot be undone, and a rollback has nothing to restore."""
    fleet.baseline("pages", "nodevet: 1\nexpect: {memory_fragmentation: 50}\n")
    fleet.sim("set", "n1", "fault=memory-fragmented")
    plan, run = fleet.project / "pages.json", fleet.project / "pages"
    reach = (*fleet.reach[:2], "-b", "pages", *fleet.reach[4:])
    fix = ("--fix", "memory_fragmentation", *CARE, "-o", plan)
    planned = fleet.run_in_project("plan", *reach, *fix)
    assert "cannot be undone" in planned.stdout, planned
    for name in ("ann", "bob"):
        fleet.run_in_project("approve", plan, "--key", fleet.project / name, "--yes")
    done = fleet.run_in_project("apply", plan, *reach, "--run", run)
    assert done.returncode == 0 and outcomes(fleet, "pages") == {"memory_fragmentation": "changed"}
    assert fleet.run_in_project("plan", *reach, "--fix", "memory_fragmentation").returncode == 0
    back = fleet.run_in_project("rollback", run)
    assert back.returncode == 0, back
    assert fleet.sim("diff", "n1", codes=(0, 1)) == story.moments["wrong"].disk


CACHES = (
    "awk '/^MemTotal/ {all = $2} /^(Cached|SRec)/ {sum += $2} END {print 100 * sum / all}' "
    "/proc/meminfo"
)
"""What the caches hold, in percent of all memory."""
CACHED = """\
nodevet: 1
expect: {memory_fragmentation: {minimum_percent: 50, maximum_cache_percent: 5}}
"""


CONTAINER = "/usr/lib/systemd/system/irqbalance.service.d"
RUNS = f"""\
mkdir -p {CONTAINER}
printf '[Unit]\\nConditionVirtualization=\\n' >{CONTAINER}/test.conf
systemctl daemon-reload; systemctl enable -q irqbalance; systemctl start irqbalance
"""
"""irqbalance's package starts it in no container."""
POLICY = "/etc/systemd/system/irqbalance.service.d/nodevet-irq-affinity"
COMMAND = "tr '\\0' ' ' </proc/$(systemctl show -P MainPID irqbalance)/cmdline"
OWN = rf"""for device in $(grep -o '0000:[0-9a-f:]*\.[0-7]' {POLICY}); do
ls /sys/bus/pci/devices/$device/msi_irqs; done"""
ASK = f"timeout 3 irqbalance --debug --foreground --policyscript={POLICY} || true"
"""What irqbalance says at once of each interrupt, and how it would place them."""


def test_irqbalance_leaves_the_interrupts_that_nodevet_places(
    story: Story, fleet: SimulatedFleet
) -> None:
    """The real irqbalance. The node has its files from now on; a reboot ends the wrong state."""
    put_on_node(fleet, "n1", "irqbalance")
    fleet.run_on("n1", RUNS)
    before = moment(fleet)
    done = apply(fleet, "beside", "true", "--fix", "irq_affinity")
    assert done["apply"].returncode == 0, done["plan"].stdout + done["plan"].stderr
    assert outcomes(fleet, "beside") == {"irq_affinity": "changed"}
    assert f"--policyscript={POLICY}" in fleet.run_on("n1", COMMAND)
    banned = set(re.findall(r"IRQ ([0-9]+) was BANNED", fleet.run_on("n1", ASK)))
    assert banned and banned == set(fleet.run_on("n1", OWN).split())
    fleet.sim("reboot", "n1")
    assert "irq_affinity" not in moment(fleet).wrong
    assert fleet.run_in_project("plan", *fleet.reach, "--fix", "irq_affinity").returncode == 0
    assert fleet.run_in_project("rollback", fleet.project / "beside").returncode == 0
    assert fleet.run_on("n1", "systemctl is-active irqbalance").strip() == "active"
    assert moment(fleet).disk == before.disk


def test_caches_that_stand_in_the_way_are_dropped_in_a_step_of_their_own(
    fleet: SimulatedFleet,
) -> None:
    """Each step has its proof, and a rollback restores nothing. Nothing stays after a reboot: once
    the caches are full again, the finding is back."""
    fleet.baseline("cached", CACHED)
    fleet.sim("set", "n1", "faults=[]")
    fleet.sim("set", "n1", 'fault={"memory-fragmented": {"cache_percent": 40}}')
    disk = fleet.sim("diff", "n1", codes=(0, 1))
    plan, run = fleet.project / "cached.json", fleet.project / "cached"
    reach = (*fleet.reach[:2], "-b", "cached", *fleet.reach[4:])
    fix = ("--fix", "memory_fragmentation", *CARE, "-o", plan)
    planned = fleet.run_in_project("plan", *reach, *fix)
    assert planned.stdout.count("cannot be undone") == 2, planned
    early = fleet.run_in_project("apply", plan, *reach, "--run", run)
    assert early.returncode != 0 and "approv" in early.stdout + early.stderr, early
    assert float(fleet.run_on("n1", CACHES)) > 30
    for name in ("ann", "bob"):
        fleet.run_in_project("approve", plan, "--key", fleet.project / name, "--yes")
    done = fleet.run_in_project("apply", plan, *reach, "--run", run)
    assert done.returncode == 0, done
    (host,) = json.loads((run / "result.json").read_text())["hosts"]
    steps = [(step["subjects"], step["outcome"]) for step in host["steps"]]
    assert steps == [(["memory caches"], "changed"), ([], "changed")], host
    assert float(fleet.run_on("n1", CACHES)) < 3
    assert fleet.run_in_project("plan", *reach, "--fix", "memory_fragmentation").returncode == 0
    back = fleet.run_in_project("rollback", run)
    assert back.returncode == 0, back
    assert float(fleet.run_on("n1", CACHES)) < 3
    assert fleet.sim("diff", "n1", codes=(0, 1)) == disk
    fleet.sim("reboot", "n1")
    assert fleet.sim("diff", "n1", codes=(0, 1)) == disk
    assert float(fleet.run_on("n1", CACHES)) > 30
    again = fleet.run_in_project("plan", *reach, "--fix", "memory_fragmentation")
    assert again.stdout.count("cannot be undone") == 2, again
