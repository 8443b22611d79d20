"""The health check of docs/gate.md on a node whose dpkg is at work: a real dpkg, a real lock."""

import re
from pathlib import Path

import pytest
from nodevet_on_node import install, write

from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(900)
SCENARIO = """\
sim: 1
nodes:
  n1: {gpus: {profile: h100-sxm, count: 1}, sockets: 1, cores: 2}
"""
SITE = "nodevet: 1\nexpect: {packages: {installed: {dpkg: {minimum: '1'}}}, gpu_count: 1}\n"
GUIDE = Path(__file__).parents[2] / "docs" / "gate.md"
PACKAGE = """
mkdir -p /srv/slow/DEBIAN
printf 'Package: slow\nVersion: 1\nArchitecture: all\nMaintainer: x\nDescription: x\n' \
  >/srv/slow/DEBIAN/control
printf '#!/bin/sh\necho began >/srv/began\nwhile [ -e /srv/wait ]; do sleep 0.2; done\n' \
  >/srv/slow/DEBIAN/postinst
chmod 755 /srv/slow/DEBIAN/postinst
dpkg-deb --build /srv/slow /srv/slow.deb >/dev/null
touch /srv/wait
setsid sh -c 'exec dpkg -i /srv/slow.deb' >/srv/dpkg.log 2>&1 </dev/null &
for try in $(seq 300); do [ -e /srv/began ] && break; sleep 0.2; done
cat /srv/began
"""


def documented() -> str:
    """The script as the page shows it."""
    found = re.search(r"<!-- file: nodevet-health -->\n```text\n(.*?)```", GUIDE.read_text(), re.S)
    assert found
    return found[1]


@pytest.fixture(scope="module")
def node(boot: Boot) -> SimulatedFleet:
    fleet = boot("health", SCENARIO)
    install(fleet, "n1")
    fleet.on("n1", write("/etc/nodevet/site.yaml", SITE))
    fleet.on("n1", write("/srv/health", documented(), "755"))
    fleet.on("n1", write("/srv/strict", documented().replace("--looks 3", "--looks 1"), "755"))
    fleet.on("n1", write("/srv/bin/scontrol", '#!/bin/sh\nprintf "%s\\n" "$*"\n', "755"))
    return fleet


def drains(node: SimulatedFleet, script: str) -> str:
    """What the script tells Slurm; empty if it leaves the node as it is."""
    return node.on("n1", f"cd / && PATH=/srv/bin:$PATH sh {script} 2>/srv/errors")


def test_e14_a_healthy_node_stays_while_dpkg_works_and_goes_when_it_was_interrupted(
    node: SimulatedFleet,
) -> None:
    assert drains(node, "/srv/strict") == ""
    assert node.on("n1", "cat /srv/errors") == ""
    assert node.on("n1", PACKAGE) == "began\n"
    assert drains(node, "/srv/strict") == ""  # one look would do
    assert "pass by themselves: look again" in node.on("n1", "cat /srv/errors")
    told = node.on("n1", "cd /; nodevet check @local -b /etc/nodevet/site.yaml", check=False)
    assert "the package manager is at work, which passes by itself" in told

    node.on("n1", "pkill -KILL -x dpkg; rm /srv/wait; sleep 1")
    assert [drains(node, "/srv/health") for _ in range(2)] == ["", ""]
    assert "unknown in 2 of 3 looks" in node.on("n1", "cat /srv/errors")
    assert "dpkg was interrupted" in drains(node, "/srv/health")

    node.on("n1", "dpkg --configure -a")
    assert drains(node, "/srv/strict") == ""


def test_e14_a_node_that_fails_goes_at_once(node: SimulatedFleet) -> None:
    wrong = SITE.replace("gpu_count: 1", "gpu_count: 8")
    node.on("n1", write("/etc/nodevet/site.yaml", wrong))
    assert "State=DRAIN Reason=nodevet: FAIL gpu_count" in drains(node, "/srv/health")
