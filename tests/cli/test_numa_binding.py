"""A service that computes on a GPU, bound over real SSH on a simulated node: while it runs, when
it starts anew, with a restart; each put back as it was.

The CPUs are real ones: GPU 0 hangs on the node of the CPUs 0 and 2, and any machine has CPU 1.
"""

import json
import os
import subprocess

import pytest

from simulated_fleet import Boot, SimulatedFleet

pytestmark = [
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one CPU: everything is bound to it"),
    pytest.mark.timeout(1500),
]
Done = subprocess.CompletedProcess[str]
SCENARIO = "sim: 1\nnodes: {n1: {gpus: {profile: h100-sxm, count: 1}, sockets: 2, cores: 1}}\n"
BASELINE = "nodevet: 1\nexpect: {numa_binding: true}\nfix: [numa_binding]\n"
SERVICE = """\
cat >/etc/systemd/system/train.service <<'END'
[Service]
ExecStart=/usr/lib/nodevet-sim/nodevet-sim-load --gpus 0 --command trainer
[Install]
WantedBy=multi-user.target
END
systemctl --quiet enable --now train.service
"""
PID = "systemctl show --property MainPID --value train.service"
STATE = (
    "find /etc -printf '%p %y %m %U:%G %l\\n' | sort;"
    " find /etc -type f -print0 | sort -z | xargs -0 sha256sum;"
    f" grep Cpus_allowed_list /proc/$({PID})/status;"
    " systemctl is-active train.service; systemctl is-enabled train.service"
)


class Rig:
    """A node, and a project where bob approves what ann plans."""

    def __init__(self, fleet: SimulatedFleet) -> None:
        self.fleet = fleet
        self.project = fleet.project

    def plan(self, *options: str) -> Done:
        care = ("--author", "ann", "--settle", "0.2")
        return self.fleet.run_in_project(
            "plan", *self.fleet.reach, *care, *options, "-o", "plan.json"
        )

    def applied(self, run: str, *options: str) -> str:
        """The outcome of the plan, approved and applied."""
        done = self.fleet.run_in_project("approve", "plan.json", "--key", "bob", "--yes")
        assert done.returncode == 0, done
        done = self.fleet.run_in_project(
            "apply", "plan.json", *self.fleet.reach, "--run", run, *options
        )
        (host,) = json.loads((self.project / run / "result.json").read_text())["hosts"]
        assert done.returncode == 0, done
        return host["outcome"]

    def rolled_back(self, run: str, *options: str) -> None:
        done = self.fleet.run_in_project("rollback", run, "--settle", "0.2", *options)
        assert done.returncode == 0, done

    def on(self, command: str) -> str:
        return self.fleet.run_on("n1", command)


@pytest.fixture(scope="module")
def rig(boot: Boot) -> Rig:
    fleet = boot("bind", SCENARIO, BASELINE)
    fleet.people("ann", "bob")
    (fleet.project / "approval.yaml").write_text("nodevet: 1\napprovals: {drain: 1, reboot: 1}\n")
    fleet.run_on("n1", SERVICE)
    return Rig(fleet)


def test_numa_binding_of_a_running_service_is_set_and_rolled_back(rig: Rig) -> None:
    before, pid = rig.on(STATE), rig.on(PID)
    planned = rig.plan("--now")
    assert planned.returncode == 1, planned
    assert "train.service to node 0; binds its running" in planned.stdout
    assert "risk live" in planned.stdout
    assert rig.applied("now") == "changed"
    assert rig.on(PID) == pid and "Cpus_allowed_list:\t0\n" in rig.on(STATE).replace(",2\n", "\n")
    nothing = rig.plan()
    assert nothing.returncode == 0 and "Nothing to do" in nothing.stderr, nothing
    rig.rolled_back("now")
    assert rig.on(STATE) == before and rig.on(PID) == pid


def test_numa_binding_is_pending_until_the_service_restarts(rig: Rig) -> None:
    before, pid = rig.on(STATE), rig.on(PID)
    planned = rig.plan()
    assert planned.returncode == 1 and "effective after a restart" in planned.stdout, planned
    assert rig.applied("later") == "pending"
    assert rig.on(PID) == pid and rig.on(STATE) != before
    again = rig.plan()
    assert again.returncode == 3 and "it is set, and effective after a restart" in again.stdout
    rig.rolled_back("later")
    assert rig.on(STATE) == before and rig.on(PID) == pid


def test_numa_binding_with_a_restart_persists_after_a_reboot(rig: Rig) -> None:
    before = rig.on(STATE)
    planned = rig.plan("--restart", "--drain-hook", "true", "--reboot")
    assert planned.returncode == 1 and "restarts it" in planned.stdout, planned
    assert "risk reboot" in planned.stdout
    assert rig.applied("restart") == "verified_after_reboot"
    nothing = rig.plan()
    assert nothing.returncode == 0 and "Nothing to do" in nothing.stderr, nothing
    rig.rolled_back("restart", "--drain-hook", "true")
    assert rig.on(STATE) == before


def test_now_with_restart_or_without_a_numa_fix_is_refused(rig: Rig) -> None:
    both = rig.plan("--now", "--restart")
    assert both.returncode == 2 and "give one" in both.stderr, both
    (rig.project / "baselines" / "other.yaml").write_text(
        "nodevet: 1\nexpect: {power_limit: 700}\nfix: [power_limit]\n"
    )
    reach = ("-i", rig.fleet.place.inventory, "-b", "other")
    other = rig.fleet.run_in_project("plan", *reach, "--now")
    assert other.returncode == 2, other
    assert "no fix that may be planned has this option" in other.stderr
