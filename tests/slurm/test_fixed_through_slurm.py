"""From a sweep to a node back in service: three simulated nodes, each with a real slurmd.

sweep -> slurm drain -> plan -> apply waits for the job -> fix -> Slurm reboots -> vet -> resume;
the drain of a second admin stays throughout.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from far_processes import wait_for
from nodevet_on_node import write
from one_machine_slurm import NoSlurmError, Slurm, copy_programs
from shown_folders import leader

from nodevet.slurm.nodes import ControllerNode, parse_nodes
from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(900)
SCENARIO = """\
sim: 1
nodes:
  gpu[1-3]: {gpus: {profile: h100-sxm, count: 1}, sockets: 1, cores: 2}
"""
BASELINE = "nodevet: 1\nexpect: {power_limit: 700}\n"
UNIT = """[Service]
ExecStart={slurmd} -D -b -f /srv/slurm.conf
Restart=on-failure
[Install]
WantedBy=multi-user.target
"""
REBOOT = "#!/bin/sh\necho >>/srv/rebooted\nexec systemctl reboot\n"
BOB = "bob: bad PSU"


@pytest.fixture
def fleet(boot: Boot, is_other: bool) -> SimulatedFleet:
    fleet = boot("otherfix" if is_other else "slurmfix", SCENARIO)
    fleet.baseline("base", BASELINE)
    fleet.people("ann", "bob", "carl")
    return fleet


@pytest.fixture
def slurm(fleet: SimulatedFleet, is_other: bool, tmp_path: Path) -> Iterator[Slurm]:
    """slurmctld on this machine, and a slurmd on each node."""
    address = str(next(iter(fleet.hosts.values())).address).rpartition(".")[0] + ".254"
    nodes = "".join(
        f"NodeName={name} NodeAddr={host.address} CPUs=2 State=UNKNOWN\n"
        for name, host in fleet.hosts.items()
    )
    more = f"RebootProgram=/srv/reboot\nResumeTimeout=300\nReturnToService=2\n{nodes}"
    try:
        for name in fleet.hosts:
            copy_programs(Path("/proc", str(leader(fleet.name, name)), "root"), other=is_other)
        with_slurm = Slurm(tmp_path, more, address=address)
    except NoSlurmError as error:
        pytest.skip(f"this machine starts no Slurm: {error}")
    try:
        conf = with_slurm.conf.read_text().replace(str(tmp_path), "/srv/slurm")
        slurmd = "/usr/local/bin/slurmd" if is_other else "/usr/sbin/slurmd"
        script = (
            write("/srv/slurm.conf", conf),
            write("/srv/reboot", REBOOT, "755"),
            write("/etc/systemd/system/slurmd.service", UNIT.format(slurmd=slurmd)),
            "mkdir -p /srv/slurm/spool; systemctl enable -q --now slurmd",
        )
        for name in fleet.hosts:
            fleet.run_on(name, "; ".join(script))
        wait_for(lambda: all(states(with_slurm, name) == ("idle",) for name in fleet.hosts), 60)
        yield with_slurm
    finally:
        with_slurm.stop()


def node(slurm: Slurm, name: str) -> ControllerNode:
    return parse_nodes(slurm.says("scontrol", "show", "node", "-o", name))[name]


def states(slurm: Slurm, name: str) -> tuple[str, ...]:
    return node(slurm, name).states


@pytest.mark.other_slurm
def test_a_failing_node_is_drained_fixed_rebooted_by_slurm_and_resumed(
    fleet: SimulatedFleet, slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", str(slurm.conf))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    store = ("--store", f"sqlite:///{fleet.project}/store.sqlite")
    slurm.says("scontrol", "update", "NodeName=gpu1", "State=DRAIN", f"Reason={BOB}")
    for name in ("gpu1", "gpu2"):
        fleet.sim("set", name, "fault=power-capped")
    slurm.says("sbatch", "-w", "gpu2", "-D", "/", "-o", os.devnull, "--wrap", "sleep 600")
    wait_for(lambda: states(slurm, "gpu2")[0] in ("mixed", "allocated") and slurm.jobs)

    def vet() -> None:
        done = fleet.run_in_project("check", *fleet.reach, *store)
        assert done.returncode in (0, 1), done

    vet()
    done = fleet.nodevet("slurm", "drain", "--from", "last", "--max-drain", "100%", *store)
    assert "1 node drained · 1 unchanged" in done.stdout, done
    swept = node(slurm, "gpu2").reason
    assert swept.startswith("nodevet:2") and "power_limit" in swept
    fleet.sim("set", "gpu3", "fault=power-capped")  # nobody drained it: the hook does

    hook = ("--drain-hook", "nodevet slurm hook")
    limits = ("--canary", "0", "--max-fail", "1", "--settle", "0.1", "--boot-settle", "30s")
    more = ("--author", "carl", "-o", "plan.json")
    plan = ("--fix", "power_limit", "--reboot", *hook, *limits, *more)
    done = fleet.run_in_project("plan", *fleet.reach, *plan)
    assert done.returncode == 1, done
    for name in ("ann", "bob"):
        done = fleet.run_in_project("approve", "plan.json", "--key", name, "--yes")
        assert done.returncode == 0, done
    order = ("apply", "plan.json", *fleet.reach, "--run", "run", "--project", fleet.project)
    env = {**os.environ, "HOME": str(fleet.project)}
    with subprocess.Popen(
        [sys.executable, "-m", "nodevet", *map(str, order)],
        cwd=fleet.project,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as applying:
        wait_for(lambda: "is being fixed" in node(slurm, "gpu3").reason, 120)
        wait_for(lambda: fleet.run_on("gpu3", "cat /srv/rebooted", check=False) == "\n", 120)
        assert slurm.jobs and fleet.run_on("gpu2", "cat /srv/rebooted", check=False) == ""
        slurm.says("scancel", "--user", "root")
        said = applying.communicate(timeout=400)[0]
    assert applying.returncode == 1, said  # gpu1 was refused
    result = json.loads((fleet.project / "run/result.json").read_text())
    ended = {host["host"]: (host["outcome"], host["why"]) for host in result["hosts"]}
    assert ended["gpu2"][0] == ended["gpu3"][0] == "verified_after_reboot", said
    assert ended["gpu1"][0] == "refused" and BOB in ended["gpu1"][1], said
    assert fleet.run_on("gpu2", "cat /srv/rebooted") == "\n"
    assert states(slurm, "gpu3") == ("idle",)
    assert node(slurm, "gpu2").reason == swept and node(slurm, "gpu2").is_drained
    assert fleet.run_on("gpu1", "ls /srv/rebooted", check=False) == ""

    vet()
    done = fleet.nodevet("slurm", "resume", "--from", "last", *store)
    assert "1 node resumed" in done.stdout, done
    wait_for(lambda: states(slurm, "gpu2") == ("idle",), 120)
    assert node(slurm, "gpu1").reason == BOB and states(slurm, "gpu1") == ("idle", "drain")
