"""A real Slurm on a simulated node: the controller, and the daemon of this one node."""

from pathlib import Path

import pytest
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
    fleet.on(node, write("/srv/slurm.conf", conf))
    told = with_slurm(fleet, node, START)
    assert told == "idle\n", fleet.on(node, "tail -n5 /srv/*.log")


def with_slurm(fleet: SimulatedFleet, node: str, script: str) -> str:
    """What a script says on the node, where Slurm's commands find their Slurm."""
    return fleet.on(node, f"export SLURM_CONF=/srv/slurm.conf; {script}", check=False)
