"""The unit of `nodevet gate --install` on a simulated node that boots, with a real slurmd.

One node is booted for all tests; each leaves it healthy, with slurmd running.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from nodevet_on_disk import PLACE, PROGRAM, put_on_disk
from nodevet_on_node import write
from one_machine_slurm import CONF, NoSlurmError, copy_programs
from shown_folders import leader

from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(900)
SCENARIO = """\
sim: 1
nodes:
  n1: {gpus: {profile: h100-sxm, count: 1}, sockets: 1, cores: 2}
"""
SITE = "nodevet: 1\nexpect: {gpu_count: 1, power_limit: 700}\n"
SITE_FILE = "/etc/nodevet/100%n of $HOME.yaml"
UNIT = "/etc/systemd/system/nodevet-gate.service"
KUBELET = "[Service]\nExecStart=/bin/sleep infinity\n"
LIBRARY = f"/{PLACE}/lib/python3*/site-packages"
OFF = "/etc/nodevet/gate-off"
VERDICT = "/run/nodevet/gate.json"
OUT = "slurmd and kubelet do not start"
BROKEN = "NO VERDICT: nodevet is broken"
DIFFERENCE = "500 W, expected 700 W"


class Node:
    """The node, and what its systemd says."""

    def __init__(self, fleet: SimulatedFleet) -> None:
        self.fleet = fleet
        self.run_on = fleet.run_on

    def run(self, script: str) -> str:
        return self.run_on("n1", script, check=False)

    def power_limit(self, watts: int) -> None:
        self.fleet.sim("set", "n1", f"gpu.0.power_limit_mw={watts * 1000}")

    def boot(self) -> str:
        """Reboot; what the gate has said since."""
        self.fleet.sim("reboot", "n1")
        return self.journal()

    def start(self, unit: str = "slurmd") -> str:
        """Start the unit of jobs after the gate has not run; what the gate said."""
        self.run("systemctl stop nodevet-gate slurmd kubelet; systemctl reset-failed")
        before = self.journal()
        self.run(f"systemctl start {unit}")
        return self.journal().removeprefix(before)

    def journal(self) -> str:
        """What the gate has said since the boot, once nothing starts any more."""
        self.run("until systemctl list-jobs | grep -q '^No jobs'; do sleep 0.1; done")
        return self.run("journalctl --sync; journalctl -b -o cat -u nodevet-gate")

    def is_active(self, unit: str) -> bool:
        return self.run(f"systemctl is-active {unit}").strip() == "active"

    @property
    def runs_jobs(self) -> bool:
        return self.is_active("slurmd")

    @property
    def verdict(self) -> str:
        """`pass`, `fail`, `pending`; empty if there is no file."""
        return self.run(f"sed -n '2s/.*: \"\\([a-z]*\\)\",/\\1/p' {VERDICT} 2>/dev/null").strip()


@pytest.fixture(scope="module")
def booted(boot: Boot) -> Node:
    fleet = boot("gate", SCENARIO)
    root = Path("/proc", str(leader(fleet.name, "n1")), "root")
    try:
        copy_programs(root)
    except NoSlurmError as error:
        pytest.skip(f"this machine starts no Slurm: {error}")
    put_on_disk(fleet, "n1")
    conf = CONF.format(host="n1", folder="/srv/slurm", address="127.0.0.1", ports=(6817, 6818))
    unit = root / UNIT.lstrip("/")
    for name in ("slurmd", "slurmctld"):
        shutil.copy(f"/lib/systemd/system/{name}.service", unit.with_name(f"{name}.service"))
    fleet.run_on("n1", write("/etc/slurm/slurm.conf", conf))
    fleet.run_on(
        "n1", write(str(unit.with_name("kubelet.service")).removeprefix(str(root)), KUBELET)
    )
    fleet.run_on("n1", write("/srv/site.yaml", SITE))
    fleet.run_on("n1", f"mkdir -p /etc/nodevet; mv /srv/site.yaml '{SITE_FILE}'")
    install = f"umask 077; cd /etc/nodevet; {PROGRAM} gate --install -b '{Path(SITE_FILE).name}'"
    fleet.run_on("n1", f"{install} --wait 20s --settle 1s >{UNIT}; systemctl daemon-reload")
    fleet.run_on(
        "n1", "mkdir -p /srv/slurm/state /srv/slurm/spool; systemctl enable slurmd slurmctld"
    )
    fleet.run_on("n1", "systemctl enable nodevet-gate")
    return Node(fleet)


@pytest.fixture
def node(booted: Node) -> Iterator[Node]:
    yield booted
    booted.power_limit(700)


@pytest.fixture
def bad(node: Node) -> Node:
    """The node with a GPU whose power limit is wrong."""
    node.power_limit(500)
    return node


@pytest.fixture
def moved(node: Node) -> Iterator[list[str]]:
    """Files of the node that a test moves away; they are put back."""
    paths: list[str] = []
    yield paths
    for path in paths:
        node.run(f"mv {path}.away {path}")


def test_a_healthy_node_boots_and_takes_jobs(node: Node) -> None:
    assert "pass: slurmd" in node.boot()
    assert node.runs_jobs and node.verdict == "pass"
    assert node.run(f"systemd-analyze verify {UNIT} 2>&1") == ""
    assert "idle" in node.run("until sinfo -h -o %t | grep -qx idle; do sleep 0.1; done; sinfo")


def test_a_failing_node_boots_without_jobs_and_takes_them_once_it_is_mended(bad: Node) -> None:
    bad.fleet.sim("set", "n1", "fault=power-capped")
    assert OUT in bad.boot()
    assert not bad.runs_jobs and bad.verdict == "fail"
    status = bad.run("systemctl status nodevet-gate")
    assert "W, expected 700 W" in status and "FAIL, see above" in status
    bad.run("systemctl start slurmd")
    assert not bad.runs_jobs
    bad.fleet.sim("set", "n1", "faults=[]")
    bad.power_limit(700)
    bad.run("systemctl start slurmd")
    assert bad.runs_jobs and bad.verdict == "pass"


def test_kubelet_waits_for_the_same_gate(bad: Node) -> None:
    assert DIFFERENCE in bad.start("kubelet") and not bad.is_active("kubelet")
    bad.power_limit(700)
    assert "pass: slurmd and kubelet" in bad.start("kubelet") and bad.is_active("kubelet")
    bad.run("systemctl stop kubelet")


def test_a_restart_of_the_gate_vets_the_node_again(node: Node) -> None:
    node.start()
    node.run("systemctl restart nodevet-gate")
    assert node.runs_jobs and node.verdict == "pass"
    node.power_limit(500)
    node.run("systemctl restart nodevet-gate")
    assert not node.runs_jobs and node.verdict == "fail"
    node.power_limit(700)
    node.run("systemctl restart nodevet-gate; systemctl start slurmd")
    assert node.runs_jobs and node.verdict == "pass"


def test_a_file_lets_the_node_in_and_leaves_no_pass(node: Node) -> None:
    assert "pass: slurmd" in node.start()
    node.power_limit(500)
    try:
        node.run(f"touch {OFF}")
        assert f"skipped because of an unmet condition check (ConditionPathExists=!{OFF}" in (
            node.start()
        )
        assert node.runs_jobs and node.verdict == ""
    finally:
        node.run(f"rm {OFF}")
    assert DIFFERENCE in node.start() and not node.runs_jobs


def test_a_kernel_argument_lets_the_node_in(bad: Node) -> None:
    line = (
        "/srv/cmdline"  # in a container systemd takes the arguments of process 1 for the kernel's
    )
    bad.run(f"printf 'systemd\\0nodevet.gate=off\\0' >{line}")
    bad.run(f"mount --bind {line} /proc/1/cmdline")
    try:
        assert "ConditionKernelCommandLine=!nodevet.gate=off" in bad.start()
        assert bad.runs_jobs and bad.verdict != "pass"
    finally:
        bad.run("umount /proc/1/cmdline")


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(f"/{PLACE}", id="uninstalled"),
        pytest.param(f"/{PLACE}/bin/python3", id="no Python"),
        pytest.param(f"{LIBRARY}/msgspec", id="ImportError, whose exit code is 1"),
        pytest.param(f"'{SITE_FILE}'", id="no baseline"),
    ],
)
def test_a_broken_nodevet_lets_the_node_in_and_says_so(
    bad: Node, moved: list[str], path: str
) -> None:
    (real,) = bad.run(f"ls -d {path}").splitlines()
    real = f"'{real}'"
    bad.run(f"mv {real} {real}.away")
    moved.append(real)
    assert BROKEN in bad.start()
    assert bad.runs_jobs and bad.verdict in ("", "pending")
    assert BROKEN in bad.run("journalctl -b -p crit -u nodevet-gate")


def test_a_wrong_baseline_lets_the_node_in(bad: Node) -> None:
    bad.run(f"cp '{SITE_FILE}' /srv/site; echo 'expect: 7' >'{SITE_FILE}'")
    try:
        said = bad.start()
    finally:
        bad.run(f"cp /srv/site '{SITE_FILE}'")
    assert "the version of the format is missing" in said and BROKEN in said and bad.runs_jobs


@pytest.fixture
def changed(node: Node) -> Iterator[Node]:
    """The node, whose unit and program a test changes; they are put back."""
    node.run(f"cp {UNIT} /srv/unit; cp {PROGRAM} /srv/program")
    yield node
    node.run(f"cp /srv/unit {UNIT}; cp /srv/program {PROGRAM}; systemctl daemon-reload")


def test_a_nodevet_that_hangs_before_it_looks_lets_the_node_in(changed: Node) -> None:
    stop = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"
    changed.run(f"sed -i '2i {stop}' {PROGRAM}")
    changed.run(f"sed -i 's/KILL [0-9]* /KILL 1 /' {UNIT}; systemctl daemon-reload")
    said = changed.start()
    assert "sending signal KILL" in said and BROKEN in said
    assert changed.runs_jobs and changed.verdict == ""


@pytest.mark.parametrize(("watts", "runs"), [(500, False), (700, True)])
def test_a_gate_stopped_while_it_waits_keeps_out_only_a_failing_node(
    changed: Node, watts: int, runs: bool
) -> None:
    """At 700 W, it waits only until the node has been up for a week."""
    changed.power_limit(watts)
    changed.run(f"sed -i 's/--wait 20s --settle 1s/--wait 1h --settle 7d/' {UNIT}")
    changed.run(
        "systemctl daemon-reload; systemctl stop nodevet-gate slurmd; systemctl reset-failed"
    )
    changed.run("systemctl start --no-block slurmd")
    changed.run(f"until grep -qs 'not settled: ' {VERDICT}; do sleep 0.1; done")
    changed.run("systemctl kill --signal=KILL nodevet-gate")
    said = changed.journal()
    assert changed.runs_jobs is runs
    assert changed.verdict == "pending"
    assert (BROKEN if runs else f'{DIFFERENCE}"\nNO VERDICT, and') in said


def test_an_unknown_value_just_after_boot_leaves_the_verdict_pending(node: Node) -> None:
    """What is unknown just after boot passes by itself: exit code 75."""
    node.boot()
    node.fleet.sim("set", "n1", "nvml.gpu.0.power_limit_mw=NVML_ERROR_UNKNOWN")
    said = node.start()
    assert "NOT JUDGED YET" in said and OUT in said
    assert not node.runs_jobs and node.verdict == "pending"
