"""The kernel's command line on a node with the GRUB of this machine's distribution.

The simulated node boots with what its grub.cfg says. GRUB is real but for `grub-probe`, which finds
no block device below a simulated node's disk: a script answers instead. No boot loader ever runs.
"""

import json
import re
import shlex
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from grub_on_node import MENU, put_grub

from nodevet_sim.nspawn.control import ask
from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(1500)
SCENARIO = """\
sim: 1
nodes:
  n1:
    gpus: {profile: h100-sxm, count: 1}
    sockets: 1
    cores: 1
    nics: 0
    faults: [iommu-translates]
"""
BASELINE = """\
nodevet: 1
title: a command line
expect:
  kernel_cmdline: {present: [pci=realloc, nohz_full=1]}
  smt: false
  iommu: [identity]
fix: [kernel_cmdline, smt]
"""
FILE = "/etc/default/grub.d/zz-nodevet-kernel-cmdline.cfg"
CARE = ("--drain-hook", "true", "--settle", "0.2")
CONTROL = "/sys/devices/system/cpu/smt/control"
LOOK = f"cat /proc/cmdline {CONTROL} {MENU} /boot/grub/grubenv; ls -l --time-style=+ /boot/grub"
WORDS = ("pci=realloc", "nohz_full=1")
ROOT = "root=/dev/vda1 ro"
SITE = "console=tty1 console=ttyS0"
FAKE = "/usr/local/sbin/update-grub"  # before the real one in PATH


WAITS = """\
touch /run/reached; while [ ! -e /run/go ]; do sleep 0.1; done; exec /usr/sbin/update-grub "$@"
"""


@dataclass(frozen=True)
class Moment:
    """The node at one time: what fails, what its files say, and what is on its disk."""

    wrong: frozenset[str]
    text: str
    disk: str

    @property
    def cmdline(self) -> str:
        return self.text.splitlines()[0]


class Rig:
    """The node, and a project with a baseline and two people."""

    def __init__(self, fleet: SimulatedFleet) -> None:
        self.fleet = fleet
        self.runs = 0

    def on(self, script: str) -> str:
        return self.fleet.run_on("n1", script)

    def fake(self, script: str) -> None:
        """Another update-grub than the real one."""
        text = shlex.quote(f"#!/bin/sh\n{script}\n")
        self.on(f"printf %s {text} >{FAKE}; chmod 755 {FAKE}")

    def moment(self) -> Moment:
        done = self.fleet.run_in_project("check", *self.fleet.reach, "--format", "json")
        assert done.returncode in (0, 1), done
        (host,) = json.loads(done.stdout)["hosts"]
        assert host["status"] == "vetted", host
        fails = {each["check"] for each in host["findings"] if each["verdict"] == "fail"}
        disk = self.fleet.sim("diff", "n1", codes=(0, 1))
        return Moment(frozenset(fails), self.on(LOOK), disk)

    def plan(self, *words: str) -> Path:
        """A plan that is signed. `words`: of `nodevet plan`."""
        self.runs += 1
        plan = self.fleet.project / f"plan{self.runs}.json"
        again = ("--again", "--author", "ann", *CARE, "-o", plan)
        done = self.fleet.run_in_project("plan", *self.fleet.reach, *again, *words)
        assert done.returncode == 1 and plan.exists(), done
        done = self.fleet.run_in_project(
            "approve", plan, "--key", self.fleet.project / "bob", "--yes"
        )
        assert done.returncode == 0, done
        return plan

    @property
    def run(self) -> Path:
        return self.fleet.project / f"run{self.runs}"

    def apply(self, plan: Path, *words: str) -> dict[str, Any]:
        """What came of the host."""
        return self.ended("apply", plan, *self.fleet.reach, "--run", self.run, *words)

    def booted(self) -> str:
        """The command line of the node, though nobody may log in to it; empty while it is down."""
        return self.fleet.file("n1", "/proc/cmdline") or ""

    def is_booting(self) -> bool:
        (node,) = ask(self.fleet.place, {"do": "list"})["nodes"]
        return bool(node["state"] == "booting")

    def killed(self, *words: object) -> None:
        """Kill the controller as it reaches `WAITS` on the node, and let the node go on."""
        words = (*words, "--project", self.fleet.project)
        self.fleet.kill_when(
            lambda: self.fleet.file("n1", "/run/reached") is not None,
            *words,
            alone=True,
        )
        self.on(f"rm {FAKE}; touch /run/go")

    def ended(self, *words: object) -> dict[str, Any]:
        done = self.fleet.run_in_project(*words)
        assert (self.run / "result.json").exists(), done
        (host,) = json.loads((self.run / "result.json").read_text())["hosts"]
        return dict(host)


@pytest.fixture(scope="module")
def rig(boot: Boot) -> Rig:
    fleet = boot("grub", SCENARIO, BASELINE)
    fleet.people("ann", "bob")
    (fleet.project / "approval.yaml").write_text("nodevet: 1\napprovals: {drain: 1, reboot: 1}\n")
    put_grub(fleet, "n1")
    return Rig(fleet)


@pytest.fixture
def before(rig: Rig) -> Iterator[Moment]:
    """The node as it was set up, and as each test leaves it."""
    moment = rig.moment()
    assert moment.wrong == {"kernel_cmdline", "smt", "iommu"}
    assert moment.cmdline == f"BOOT_IMAGE=/boot/vmlinuz-6.1.0-2-amd64 {ROOT} {SITE}"
    yield moment
    assert rig.moment() == moment


def outcomes(host: dict[str, Any]) -> dict[str, str]:
    return {step["fix"]: step["outcome"] for step in host["steps"]}


def test_kernel_cmdline_and_smt_are_set_persist_and_are_rolled_back(
    rig: Rig, before: Moment
) -> None:
    """Two fixes of one plan write two files and one menu."""
    assert outcomes(rig.apply(rig.plan())) == {"kernel_cmdline": "pending", "smt": "changed"}
    applied = rig.moment()
    assert applied.wrong == {"kernel_cmdline", "iommu"} and applied.cmdline == before.cmdline
    again = rig.fleet.run_in_project("plan", *rig.fleet.reach)
    assert again.returncode == 3 and "set " not in again.stdout, again
    assert "effective after a reboot" in again.stdout, again
    rig.fleet.sim("reboot", "n1")
    rebooted = rig.moment()
    assert rebooted.wrong == {"iommu"} and rebooted.disk == applied.disk
    assert rebooted.cmdline == f"{before.cmdline} {' '.join(WORDS)} nosmt"
    done = rig.fleet.run_in_project("rollback", rig.run)
    assert done.returncode == 0, done
    rig.fleet.sim("reboot", "n1")


def test_the_grub_menu_keeps_entries_with_the_old_command_line(rig: Rig, before: Moment) -> None:
    """What GRUB's own programs say of the new menu: a person can boot it as it was."""
    rig.apply(rig.plan())
    menu = rig.on(f"grub-script-check {MENU} && cat {MENU}")
    site, _, own = menu.partition("### BEGIN /etc/grub.d/99_nodevet-kernel-cmdline ###")
    lines = [" ".join(row.split()) for row in own.splitlines() if row.strip().startswith("linux")]
    assert f"linux /boot/vmlinuz-6.1.0-2-amd64 {ROOT} {SITE}" == lines[0]
    assert "menuentry 'Debian before nodevet GNU/Linux'" in own
    ids = re.findall(r"\$menuentry_id_option '([^']*)'", own)
    assert ids and not any(f"'{id}'" in site for id in ids)
    assert not any(word in line for line in lines for word in (*WORDS, "nosmt"))
    assert menu.count("before nodevet GNU/Linux'") == 2, "one entry and its submenu, of two fixes"
    recovery = [row for row in site.splitlines() if "single" in row]
    assert recovery and not any(word in row for row in recovery for word in WORDS)
    assert rig.fleet.run_in_project("rollback", rig.run).returncode == 0


REBOOT = ("--fix", "kernel_cmdline", "--fix", "smt", "--reboot")
ENV = "grub-editenv /boot/grub/grubenv list"


def test_the_new_line_is_booted_once_and_becomes_the_default_once_verified(
    rig: Rig, before: Moment
) -> None:
    """Two fixes share the menu of one boot; a second run then changes nothing."""
    host = rig.apply(rig.plan(*REBOOT))
    assert set(outcomes(host).values()) == {"verified_after_reboot"}, host
    rig.fleet.sim("reboot", "n1")
    kept = rig.moment()
    assert kept.cmdline == f"{before.cmdline} {' '.join(WORDS)} nosmt" and kept.wrong == {"iommu"}
    assert "nodevet-once" not in kept.text and "before nodevet" in kept.text
    assert rig.fleet.run_in_project("plan", *rig.fleet.reach).returncode == 0
    assert rig.fleet.run_in_project("rollback", rig.run).returncode == 0
    rig.fleet.sim("reboot", "n1")


HANGS = """\
[Service]
ExecCondition=/bin/sh -c '! grep -q nohz_full /proc/cmdline'
"""
SSH = "/etc/systemd/system/ssh.service.d"


def test_a_node_that_hangs_comes_back_with_its_old_line_by_any_power_cycle(
    rig: Rig, before: Moment
) -> None:
    """With the new line it never lets nodevet in; the old entry stayed the default."""
    rig.on(f"mkdir -p {SSH}; printf %s {shlex.quote(HANGS)} >{SSH}/hangs.conf")
    plan = rig.plan(*REBOOT[:2], "--reboot")
    with ThreadPoolExecutor(1) as threads:
        applied = threads.submit(rig.apply, plan)
        while "nohz_full" not in rig.booted():
            time.sleep(0.2)
        while rig.is_booting():  # the simulator reboots no such node
            time.sleep(0.2)
        rig.fleet.sim("reboot", "n1")
        host = applied.result()
    rig.on(f"rm -r {SSH}; systemctl daemon-reload")
    assert outcomes(host) == {"kernel_cmdline": "failed_and_rolled_back"}, host
    assert "not persistent across reboot" in host["why"]


def test_an_unverified_line_is_rolled_back_if_the_node_may_not_reboot(
    rig: Rig, before: Moment
) -> None:
    """The node is drained before it is written, and no longer before its reboot."""
    hook = rig.fleet.project / "hook"
    hook.write_text(f"#!/bin/sh\n[ ! -e {hook}.used ] || exit 1\ntouch {hook}.used\n")
    hook.chmod(0o755)
    host = rig.apply(rig.plan(*REBOOT[:2], "--reboot", "--drain-hook", str(hook)))
    assert set(outcomes(host).values()) == {"failed_and_rolled_back"}, host
    assert "not rebooted" in host["why"] and "not verified, because" in host["why"]


def test_a_choice_that_an_admin_made_is_left_to_the_admin(rig: Rig, before: Moment) -> None:
    plan = rig.plan(*REBOOT)
    rig.on("grub-editenv /boot/grub/grubenv set next_entry=2")
    host = rig.apply(plan)
    assert rig.on(ENV).split() == ["next_entry=2"]
    rig.on("grub-editenv /boot/grub/grubenv unset next_entry")
    assert "GRUB already boots another entry once: 2" in host["why"], host


def test_on_lvm_the_plan_makes_the_new_line_the_default_at_once(rig: Rig, before: Moment) -> None:
    words = ("plan", *rig.fleet.reach, "--again", *CARE, *REBOOT, "--format", "full")
    shown = rig.fleet.run_in_project(*words)
    assert "once the check passes after the reboot:" in shown.stdout, shown
    rig.on("echo lvm >/run/abstraction")
    shown = rig.fleet.run_in_project(*words)
    rig.on("rm /run/abstraction")
    assert "/boot/grub is on lvm, which GRUB does not write" in shown.stdout, shown
    assert "once the check passes" not in shown.stdout


def test_a_run_killed_while_it_makes_the_line_the_default_is_resumed(
    rig: Rig, before: Moment
) -> None:
    plan = rig.plan(*REBOOT[:2], "--reboot")
    rig.fake(f'grep -q NODEVET_ONCE {FILE} && exec /usr/sbin/update-grub "$@"\n{WAITS}')
    rig.killed("apply", plan, *rig.fleet.reach, "--run", rig.run)
    host = rig.ended("apply", "--resume", rig.run)
    assert outcomes(host) == {"kernel_cmdline": "verified_after_reboot"}, host
    rig.on("rm /run/reached /run/go")
    rig.fleet.sim("reboot", "n1")
    assert rig.moment().cmdline == f"{before.cmdline} {' '.join(WORDS)}"
    assert rig.fleet.run_in_project("rollback", rig.run).returncode == 0
    rig.fleet.sim("reboot", "n1")


EDITS = """\
[Service]
Type=oneshot
ExecCondition=grep -q nohz_full /proc/cmdline
ExecStart=sed -i s/TIMEOUT=5/TIMEOUT=9/ /etc/default/grub
[Install]
WantedBy=multi-user.target
"""


def test_an_edit_of_etc_default_grub_during_the_trial_boot_is_not_activated(
    rig: Rig, before: Moment
) -> None:
    """Neither by keeping the new line, nor by restoring the old one."""
    plan = rig.plan(*REBOOT[:2], "--reboot")
    unit = "/etc/systemd/system/edits.service"
    rig.on(f"cp -a /etc/default/grub /etc/kept; printf %s {shlex.quote(EDITS)} >{unit}")
    rig.on("systemctl -q enable edits")
    host = rig.apply(plan)
    left, again = (
        rig.on(LOOK),
        rig.fleet.run_in_project("plan", *rig.fleet.reach, *CARE, *REBOOT, "--again"),
    )
    rig.on(f"mv /etc/kept /etc/default/grub; systemctl -q disable edits; rm {unit}; update-grub")
    assert outcomes(host) == {"kernel_cmdline": "failed_and_rolled_back"}, host
    assert "update-grub would also change what nodevet did not set" in host["why"], host
    assert left == before.text and "timeout=9" not in left, left
    assert "/etc/default/grub is newer than GRUB's menu" in again.stdout, again


def test_a_setting_missing_after_the_reboot_is_reverted_and_the_rest_is_verified(
    rig: Rig, before: Moment
) -> None:
    """The simulated IOMMU does not read the command line, as if the BIOS overrode it."""
    host = rig.apply(rig.plan("--fix", "iommu", "--fix", "kernel_cmdline", "--reboot"))
    assert outcomes(host) == {
        "iommu": "failed_and_rolled_back",
        "kernel_cmdline": "verified_after_reboot",
    }, host
    (why,) = [step["why"] for step in host["steps"] if step["fix"] == "iommu"]
    assert "not persistent across reboot" in why and "rebooted once more" in why, host
    assert rig.moment().cmdline == f"{before.cmdline} {' '.join(WORDS)}"
    assert rig.fleet.run_in_project("rollback", rig.run).returncode == 0
    rig.fleet.sim("reboot", "n1")


LIES = {
    "it writes nothing": "exit 0",
    "it leaves the words out": '/usr/sbin/update-grub "$@"; sed -i s/nohz_full=1// "$2"',
    "it keeps no entries": '/usr/sbin/update-grub "$@"; sed -i "s/nodevet-earlier/x/" "$2"',
    "it fails half-way": 'echo half >"$2"; exit 1',
    "the disk is full": "dd if=/dev/zero of=/boot/grub/filler bs=4k 2>/dev/null; "
    'exec /usr/sbin/update-grub "$@"',
}


@pytest.mark.parametrize("how", LIES)
def test_an_invalid_or_incomplete_grub_menu_never_replaces_the_old_one(
    rig: Rig, before: Moment, how: str
) -> None:
    plan = rig.plan("--fix", "kernel_cmdline")
    rig.fake(LIES[how])
    rig.on(
        "cp -a /boot/grub /run/kept; mount -t tmpfs -o size=64k,mode=755 small /boot/grub; "
        "cp -a /run/kept/. /boot/grub"
    )
    host = rig.apply(plan)
    left = rig.on(f"cd /boot/grub; rm -f filler; cat {MENU}; ls -l --time-style=+ .")
    rig.on(f"umount /boot/grub; rm -r {FAKE} /run/kept")
    assert outcomes(host) == {"kernel_cmdline": "failed_and_rolled_back"}, host
    assert how == "the disk is full" or "grub.cfg is as it was" in host["steps"][0]["why"], host
    assert left.partition("total")[0] in before.text and "nodevet" not in left


def test_an_edit_of_etc_default_grub_since_the_plan_is_not_activated(
    rig: Rig, before: Moment
) -> None:
    plan = rig.plan("--fix", "kernel_cmdline")
    rig.on("cp -a /etc/default/grub /run/kept; sed -i s/TIMEOUT=5/TIMEOUT=9/ /etc/default/grub")
    host = rig.apply(plan)
    rig.on("cp -a /run/kept /etc/default/grub; rm /run/kept")
    assert host["outcome"] == "refused", host
    assert "/etc/default/grub is newer than GRUB's menu" in host["why"], host


def test_a_run_killed_before_the_menu_is_written_is_resumed(rig: Rig, before: Moment) -> None:
    plan = rig.plan("--fix", "kernel_cmdline")
    rig.fake(WAITS)
    rig.killed("apply", plan, *rig.fleet.reach, "--run", rig.run)
    host = rig.ended("apply", "--resume", rig.run)
    assert outcomes(host) == {"kernel_cmdline": "pending"}, host
    rig.on("rm /run/reached /run/go")
    assert rig.fleet.run_in_project("rollback", rig.run).returncode == 0
