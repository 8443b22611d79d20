"""A real Slurm on a simulated node: the controller, and the daemon of this one node; or of several
nodes, whose controller runs on this machine, because nodes do not reach one another."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from free_ports import free_port
from nodevet_on_node import write
from one_machine_slurm import CONF, NoSlurmError, copy_programs
from shown_folders import leader

from simulated_fleet import SimulatedFleet

START = """
mkdir -p /srv/slurm/state /srv/slurm/spool
for daemon in slurmctld slurmd; do
  setsid $daemon -D -f /srv/slurm.conf </dev/null >/srv/$daemon.log 2>&1 &
done
for try in $(seq 300); do
  [ "$(sinfo -h -o %t 2>/dev/null)" = idle ] && break; sleep 0.2
done
sinfo -h -o %t
"""


def start_slurm(fleet: SimulatedFleet, node: str, *, other: bool) -> None:
    """Start it; the test is skipped if this machine has none to copy."""
    try:
        copy_programs(Path("/proc", str(leader(fleet.name, node)), "root"), other=other)
    except NoSlurmError as error:
        pytest.skip(f"this machine starts no Slurm: {error}")
    conf = CONF.format(host=node, folder="/srv/slurm", address="127.0.0.1", ports=(6817, 6818))
    fleet.run_on(node, write("/srv/slurm.conf", conf))
    told = with_slurm(fleet, node, START)
    assert told == "idle\n", fleet.run_on(node, "tail -n5 /srv/*.log")


def with_slurm(fleet: SimulatedFleet, node: str, script: str) -> str:
    """What a script says on the node, where Slurm's commands find their Slurm."""
    return fleet.run_on(node, f"export SLURM_CONF=/srv/slurm.conf; {script}", check=False)


class Cluster:
    """Slurm's commands on this machine, for a Slurm of several nodes."""

    def __init__(self, conf: Path) -> None:
        self.conf = conf
        self.env = {**os.environ, "SLURM_CONF": str(conf)}

    def says(self, *argv: str) -> str:
        """What one of Slurm's programs prints."""
        done = subprocess.run(argv, capture_output=True, text=True, env=self.env)
        return done.stdout.strip()

    def wait(self, *argv: str, until: str) -> None:
        end = time.monotonic() + 120
        while (told := self.says(*argv)) != until:
            assert time.monotonic() < end, told
            time.sleep(0.2)


@contextmanager
def slurm_of_nodes(fleet: SimulatedFleet, nodes: Sequence[str], folder: Path) -> Iterator[Cluster]:
    """It runs meanwhile. The test is skipped if this machine has no Slurm."""
    if shutil.which("slurmctld") is None:
        pytest.skip("this machine starts no Slurm: no slurmctld")
    address = {node: str(fleet.hosts[node].address) for node in nodes}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
        way.connect((address[nodes[0]], 9))
        ours = way.getsockname()[0]
    ports = (free_port(), 6818)
    text = CONF.format(
        host=socket.gethostname().split(".")[0], folder=folder, address=ours, ports=ports
    )
    text = "".join(row for row in text.splitlines(True) if not row.startswith("NodeName="))
    text += "".join(f"NodeName={node} NodeAddr={address[node]} CPUs=8\n" for node in nodes)
    cluster = Cluster(folder / "slurm.conf")
    cluster.conf.write_text(text)
    (folder / "state").mkdir()
    for node in nodes:
        copy_programs(Path("/proc", str(leader(fleet.name, node)), "root"))
        there = text.replace(str(folder), "/srv/slurm")
        fleet.run_on(node, f"mkdir -p /srv/slurm/spool; {write('/srv/slurm.conf', there)}")
    with (folder / "slurmctld.log").open("wb") as log:
        controller = subprocess.Popen(["slurmctld", "-D"], stdout=log, stderr=log, env=cluster.env)
    try:
        start = "setsid slurmd -D -f /srv/slurm.conf </dev/null >/srv/slurmd.log 2>&1 &"
        for node in nodes:
            with_slurm(fleet, node, start)
        cluster.wait("sinfo", "-h", "-t", "idle", "-o", "%D", until=str(len(nodes)))
        yield cluster
    finally:
        for node in nodes:
            fleet.run_on(node, "while pkill -KILL '^slurm'; do sleep 0.1; done", check=False)
        controller.terminate()
        controller.wait()
