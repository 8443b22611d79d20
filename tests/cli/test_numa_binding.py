"""A service that computes on a GPU, bound over real SSH on a simulated node: while it runs, when
it starts anew, with a restart; each put back as it was.

The CPUs are real ones: GPU 0 hangs on the node of the CPUs 0 and 2, and any machine has CPU 1.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from nodevet_sim.nspawn.needs import missing
from nodevet_sim.nspawn.place import FleetFolder

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason="; ".join(missing())),
    pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one CPU: everything is bound to it"),
    pytest.mark.timeout(1500),
]
Run = Callable[..., subprocess.CompletedProcess[str]]
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


class Rig(NamedTuple):
    """A node, and a project where bob approves what ann plans."""

    nodevet: Run
    fleet: str
    project: Path

    def at(self, *words: str | Path) -> Done:
        return self.nodevet(*words, "--project", self.project, cwd=self.project)

    def plan(self, *options: str) -> Done:
        reach = ["-i", FleetFolder(self.fleet).inventory, "-b", "base"]
        return self.at(
            "plan", *reach, "--author", "ann", "--settle", "0.2", *options, "-o", "plan.json"
        )

    def applied(self, run: str, *options: str) -> str:
        """The outcome of the plan, approved and applied."""
        plan = self.project / "plan.json"
        done = self.at("approve", plan, "--key", self.project / "bob", "--yes")
        assert done.returncode == 0, done
        reach = ["-i", FleetFolder(self.fleet).inventory, "-b", "base"]
        done = self.at("apply", plan, *reach, "--run", self.project / run, *options)
        (host,) = json.loads((self.project / run / "result.json").read_text())["hosts"]
        assert done.returncode == 0, done
        return host["outcome"]

    def rolled_back(self, run: str, *options: str) -> None:
        done = self.nodevet(
            "rollback", self.project / run, "--settle", "0.2", "--project", self.project, *options
        )
        assert done.returncode == 0, done

    def on(self, command: str) -> str:
        done = self.nodevet("sim", "ssh", "--fleet", self.fleet, "n1", "--", command)
        assert done.returncode == 0, done
        return done.stdout


@pytest.fixture(scope="module")
def rig(nodevet: Run, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    project = tmp_path_factory.mktemp("binding")
    (project / "nodes.yaml").write_text(SCENARIO)
    (project / "baselines").mkdir()
    (project / "baselines" / "base.yaml").write_text(BASELINE)
    (project / "approval.yaml").write_text("nodevet: 1\napprovals: {drain: 1, reboot: 1}\n")
    signers = []
    for name in ("ann", "bob"):
        key = project / name
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        signers.append(f"{name} {' '.join(key.with_suffix('.pub').read_text().split()[:2])}\n")
    (project / "allowed_signers").write_text("".join(signers))
    running = Rig(nodevet, f"bind{os.getpid()}", project)
    up = nodevet("sim", "up", project / "nodes.yaml", "--name", running.fleet)
    assert up.returncode == 0, up
    try:
        running.on(SERVICE)
        yield running
    finally:
        nodevet("sim", "down", running.fleet)


def test_while_it_runs(rig: Rig) -> None:
    before, pid = rig.on(STATE), rig.on(PID)
    planned = rig.plan("--now")
    assert planned.returncode == 1, planned
    assert "train.service to node 0; binds what it runs" in planned.stdout
    assert "risk live" in planned.stdout
    assert rig.applied("now") == "changed"
    assert rig.on(PID) == pid and "Cpus_allowed_list:\t0\n" in rig.on(STATE).replace(",2\n", "\n")
    nothing = rig.plan()
    assert nothing.returncode == 0 and "Nothing to do" in nothing.stderr, nothing
    rig.rolled_back("now")
    assert rig.on(STATE) == before and rig.on(PID) == pid


def test_when_it_starts_anew(rig: Rig) -> None:
    before, pid = rig.on(STATE), rig.on(PID)
    planned = rig.plan()
    assert planned.returncode == 1 and "in force after a restart" in planned.stdout, planned
    assert rig.applied("later") == "pending"
    assert rig.on(PID) == pid and rig.on(STATE) != before
    again = rig.plan()
    assert again.returncode == 3 and "it is set, and in force after a restart" in again.stdout
    rig.rolled_back("later")
    assert rig.on(STATE) == before and rig.on(PID) == pid


def test_with_a_restart_and_after_a_reboot(rig: Rig) -> None:
    before = rig.on(STATE)
    planned = rig.plan("--restart", "--drain-hook", "true", "--reboot")
    assert planned.returncode == 1 and "restarts it" in planned.stdout, planned
    assert "risk reboot" in planned.stdout
    assert rig.applied("restart") == "verified_after_reboot"
    nothing = rig.plan()
    assert nothing.returncode == 0 and "Nothing to do" in nothing.stderr, nothing
    rig.rolled_back("restart", "--drain-hook", "true")
    assert rig.on(STATE) == before


def test_options_that_say_nothing_are_refused(rig: Rig) -> None:
    both = rig.plan("--now", "--restart")
    assert both.returncode == 2 and "give one" in both.stderr, both
    (rig.project / "baselines" / "other.yaml").write_text(
        "nodevet: 1\nexpect: {power_limit: 700}\nfix: [power_limit]\n"
    )
    other = rig.at("plan", "-i", FleetFolder(rig.fleet).inventory, "-b", "other", "--now")
    assert other.returncode == 2 and "no fix that may enter the plan takes it" in other.stderr
