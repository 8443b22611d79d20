"""A real Slurm on a simulated node: the controller, and the daemon of this one node; or on several
nodes, the first of which has the controller."""

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from nodevet_on_node import write
from one_machine_slurm import CONF, NoSlurmError, copy_programs
from shown_folders import leader

from simulated_fleet import SimulatedFleet

START = """
mkdir -p /srv/slurm/state /srv/slurm/spool
for daemon in ${DAEMONS:-slurmctld slurmd}; do
  setsid $daemon -D -f /srv/slurm.conf </dev/null >/srv/$daemon.log 2>&1 &
done
[ -n "$DAEMONS" ] && exit
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
    fleet.on(node, write("/srv/slurm.conf", conf))
    told = with_slurm(fleet, node, START)
    assert told == "idle\n", fleet.on(node, "tail -n5 /srv/*.log")


def with_slurm(fleet: SimulatedFleet, node: str, script: str) -> str:
    """What a script says on the node, where Slurm's commands find their Slurm."""
    return fleet.on(node, f"export SLURM_CONF=/srv/slurm.conf; {script}", check=False)


class Cluster:
    """A Slurm of several nodes. Its commands run on this machine."""

    def __init__(self, fleet: SimulatedFleet, nodes: Sequence[str], conf: Path) -> None:
        """`conf`: where its slurm.conf is written. The test is skipped if this machine has none."""
        self._env = {**os.environ, "SLURM_CONF": str(conf)}
        first, *others = nodes
        ports = (6817, 6818)
        address = {node: fleet.hosts[node].address for node in nodes}
        text = CONF.format(host=first, folder="/srv/slurm", address=address[first], ports=ports)
        text = text.replace("NodeAddr=127.0.0.1", f"NodeAddr={address[first]}")
        text += "".join(f"NodeName={node} NodeAddr={address[node]} CPUs=8\n" for node in others)
        conf.write_text(text)
        for node in nodes:
            try:
                copy_programs(Path("/proc", str(leader(fleet.name, node)), "root"))
            except NoSlurmError as error:
                pytest.skip(f"this machine starts no Slurm: {error}")
            daemons = "slurmctld slurmd" if node == first else "slurmd"
            named = "".join(f"{address[each]} {each}\n" for each in nodes)
            fleet.on(node, write("/srv/slurm.conf", text) + "\n" + f"printf '{named}' >>/etc/hosts")
            with_slurm(fleet, node, f"export DAEMONS='{daemons}'; {START}")
        self.wait("sinfo", "-h", "-t", "idle", "-o", "%D", until=str(len(nodes)))

    def says(self, *argv: str) -> str:
        """What one of Slurm's programs prints."""
        done = subprocess.run(argv, capture_output=True, text=True, env=self._env)
        return done.stdout.strip()

    def wait(self, *argv: str, until: str) -> None:
        end = time.monotonic() + 120
        while (told := self.says(*argv)) != until:
            assert time.monotonic() < end, told
            time.sleep(0.3)
