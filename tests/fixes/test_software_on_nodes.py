"""Mounts, DKMS modules and container engines on a node, as a user fixes them over real SSH.

The node's mounts, systemd, DKMS and make are real. nvidia-ctk is a stand-in that writes what NVIDIA
documents; Docker is a unit that only runs; the kernel's headers are a Makefile that copies a
module's source; depmod lists files.
"""

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from node_tools import ROOT
from software_on_node import put_software

from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(1500)
NODE = "n1"
SCENARIO = """\
sim: 1
nodes:
  n1:
    gpus: {profile: h100-sxm, count: 1}
    sockets: 1
    cores: 1
    faults: [cdi-stale]
"""
FIXES = ("mounts", "dkms", "container_runtime")
BASELINE = """\
nodevet: 1
title: what nodes for containers need
expect:
  mounts:
    /scratch: {type: tmpfs, options: [noatime]}
    /data: {type: tmpfs, options: [nodev]}
    /cache: {type: tmpfs, options: [relatime, exec]}
  dkms: {}
  container_runtime: {engines: [docker], default_runtime: [docker]}
fix: [mounts, dkms, container_runtime]
"""
NOW = """
grep -E ' /(scratch|data|cache) ' /proc/self/mountinfo | cut -d' ' -f4-6,9- | sort
systemctl is-enabled data.mount; systemctl is-active docker
dkms status; cat /etc/docker/daemon.json /etc/cdi/nvidia.yaml /lib/modules/*/modules.dep
"""
FAILED = "failed_and_rolled_back"
CARE = ("--drain-hook", "true", "--settle", "0.2")


class Site:
    """The node, and a project with a baseline and two people."""

    def __init__(self, fleet: SimulatedFleet) -> None:
        self.fleet = fleet
        self.all = ("-i", fleet.place.inventory, "-b", "base", "--deadline", "150")

    def on(self, script: str) -> str:
        return self.fleet.run_on(NODE, f"{script}\ntrue")

    def failed(self) -> set[tuple[str, str]]:
        (host,) = self.fleet.vetted(*self.all).values()
        assert host["status"] == "vetted", host
        findings = [each for each in host["findings"] if each["verdict"] != "ok"]
        assert all(each["verdict"] == "fail" for each in findings), findings
        return {(each["check"], each["subject"]["id"]) for each in findings}

    def disk(self) -> str:
        return self.fleet.sim("diff", NODE, codes=(0, 1))

    def plan(self, name: str, *words: str) -> Path:
        """A plan that bob has approved."""
        path = self.fleet.project / f"{name}.json"
        done = self.fleet.run_in_project(
            "plan", *self.all, "--author", "ann", *CARE, "-o", path, *words
        )
        assert done.returncode == 1, done
        done = self.fleet.run_in_project(
            "approve", path, "--key", self.fleet.project / "bob", "--yes"
        )
        assert done.returncode == 0, done
        return path

    def apply(self, plan: Path, name: str) -> dict[str, Any]:
        """What the run's result says of the node."""
        run = self.fleet.project / name
        done = self.fleet.run_in_project("apply", plan, *self.all, "--run", run)
        assert (run / "result.json").exists(), done
        (host,) = json.loads((run / "result.json").read_text())["hosts"]
        assert isinstance(host, dict)
        return host

    def rollback(self, name: str) -> subprocess.CompletedProcess[str]:
        return self.fleet.run_in_project("rollback", self.fleet.project / name)


@pytest.fixture(scope="module")
def site(boot: Boot) -> Site:
    if not (ROOT / "dkms").is_dir():
        pytest.skip(f"no {ROOT}/dkms: .ci/node-tools unpacks it")
    fleet = boot("software", SCENARIO, BASELINE)
    fleet.people("ann", "bob")
    (fleet.project / "approval.yaml").write_text("nodevet: 1\napprovals: {drain: 1}\n")
    put_software(fleet, NODE)
    return Site(fleet)


@dataclass
class Story:
    """What the node was like, and what came of each command."""

    failed: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    now: dict[str, str] = field(default_factory=dict)
    disk: dict[str, str] = field(default_factory=dict)
    done: dict[str, subprocess.CompletedProcess[str]] = field(default_factory=dict)
    host: dict[str, Any] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def story(site: Site) -> Story:
    told = Story()

    def look(when: str) -> None:
        told.failed[when] = site.failed()
        told.now[when], told.disk[when] = site.on(NOW), site.disk()
        told.started.append(site.on("cat /run/started"))

    look("wrong")
    told.host = site.apply(site.plan("whole"), "whole")
    look("applied")
    told.done["again"] = site.fleet.run_in_project("plan", *site.all)
    site.fleet.sim("reboot", NODE)
    site.on("systemctl start docker")
    look("rebooted")
    told.done["rollback"] = site.rollback("whole")
    look("rolled back")
    return told


def test_mounts_dkms_and_container_runtime_fail_before_the_fixes(story: Story) -> None:
    assert story.failed["wrong"] == {
        ("mounts", "/scratch"),
        ("mounts", "/data"),
        ("mounts", "/cache"),
        ("dkms", "hello"),
        ("container_runtime", "docker"),
        ("container_runtime", "/etc/cdi/nvidia.yaml"),
    }


def test_the_fixes_correct_every_failing_check_and_a_second_plan_is_empty(story: Story) -> None:
    steps = {(step["fix"], step["outcome"]) for step in story.host["steps"]}
    assert steps == {(name, "changed") for name in FIXES}, story.host
    assert len(story.host["steps"]) == 6
    assert story.failed["applied"] == set()
    assert story.done["again"].returncode == 0, story.done["again"]
    assert story.started[0] != story.started[1]  # Docker was restarted


def test_mounts_are_as_fstab_and_the_unit_say(story: Story) -> None:
    rows = story.now["applied"].splitlines()[:3]
    assert rows == [
        "/ /cache rw,relatime tmpfs none rw",  # the file system as it was
        "/ /data rw,nodev,relatime tmpfs none rw,size=1024k",
        "/ /scratch rw,noatime tmpfs none rw,size=1024k",
    ]


def test_every_check_passes_after_a_reboot(story: Story) -> None:
    assert story.failed["rebooted"] == set()


def test_a_rollback_leaves_the_disk_as_it_was(story: Story) -> None:
    assert story.disk["applied"] != story.disk["wrong"] == story.disk["rolled back"]
    before, after = story.now["wrong"], story.now["rolled back"]
    assert " /scratch " not in after and " /data " not in after
    tail = before.index("disabled\n")
    assert before[tail:] == after[after.index("disabled\n") :]


@pytest.fixture
def wrong(site: Site, story: Story) -> str:
    """The node with /scratch and the module missing; what it is like."""
    site.on("umount /scratch; dkms unbuild -m hello -v 1.0 -k $(uname -r)")
    return site.on(NOW)


@pytest.mark.parametrize(
    ("fix", "program"), [("mounts", "/usr/bin/mount"), ("dkms", "/usr/sbin/dkms")]
)
def test_a_program_that_exits_0_without_effect_is_a_failure(
    site: Site, wrong: str, fix: str, program: str
) -> None:
    plan = site.plan(f"lie-{fix}", "--fix", fix)
    site.on(f"mv {program} {program}.real; ln -s true /usr/bin/lie; ln -s ../bin/lie {program}")
    try:
        host = site.apply(plan, f"run-lie-{fix}")
    finally:
        site.on(f"rm /usr/bin/lie; mv {program}.real {program}")
    assert host["steps"][0]["outcome"] == FAILED, host
    assert "changed" not in {step["outcome"] for step in host["steps"]}
    assert site.on(NOW) == wrong


def test_a_later_mount_by_an_administrator_is_not_touched(site: Site, wrong: str) -> None:
    plan = site.plan("stale", "--fix", "mounts")
    site.on("mount -t tmpfs -o size=2m other /scratch")
    host = site.apply(plan, "run-stale")
    assert host["outcome"] == "refused", host
    assert "/ /scratch rw,relatime tmpfs other rw,size=2048k" in site.on(NOW)


def test_a_mount_in_use_stays_and_the_rollback_says_so(site: Site, wrong: str) -> None:
    host = site.apply(site.plan("busy", "--fix", "mounts"), "run-busy")
    assert host["outcome"] == "changed", host
    site.on("systemd-run --quiet --unit=user --working-directory=/scratch sleep infinity")
    done = site.rollback("run-busy")
    assert done.returncode != 0 and "target is busy" in done.stdout, done
    assert " /scratch " in site.on(NOW)
    site.on("systemctl stop user")
    done = site.rollback("run-busy")
    assert done.returncode == 0, done
    assert site.on(NOW) == wrong


def test_a_module_that_does_not_build_fails_and_says_where_to_look(site: Site, wrong: str) -> None:
    makefile = "/lib/modules/$(uname -r)/build/Makefile"
    plan = site.plan("broken", "--fix", "dkms")
    site.on(f"sed -i 's/cp /false /' {makefile}")
    try:
        host = site.apply(plan, "run-broken")
    finally:
        site.on(f"sed -i 's/false /cp /' {makefile}")
    (step,) = host["steps"]
    assert step["outcome"] == FAILED and "make.log" in step["why"], step
    assert site.on(NOW) == wrong


def test_a_build_whose_controller_is_killed_is_finished_by_a_resume(site: Site, wrong: str) -> None:
    makefile = "/lib/modules/$(uname -r)/build/Makefile"
    plan, run = site.plan("killed", "--fix", "dkms"), site.fleet.project / "run-killed"
    wait = "touch /run/building; until [ -e /run/go ]; do sleep 0.05; done; cp "
    site.on(f"sed -i 's,cp ,{wait},' {makefile}")
    words = ("apply", plan, *site.all, "--run", run, "--project", site.fleet.project)
    try:
        site.fleet.kill_when(
            lambda: site.fleet.run_on(NODE, "ls /run/building", check=False), *words, alone=True
        )
    finally:
        site.on("touch /run/go")
    done = site.fleet.run_in_project("apply", "--resume", run, "-b", "base", "--deadline", "150")
    assert done.returncode == 0, done
    assert "hello/1.0, " in site.on(NOW) and site.failed() == {
        *((("mounts", path)) for path in ("/scratch", "/data", "/cache")),
        ("container_runtime", "docker"),
        ("container_runtime", "/etc/cdi/nvidia.yaml"),
    }
    done = site.rollback("run-killed")
    assert done.returncode == 0, done
    assert site.on(NOW) == wrong
