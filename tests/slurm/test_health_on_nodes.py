"""The hooks of Slurm on a simulated node with a GPU, whose own Slurm is real."""

import re
import shlex

import pytest
from nodevet_on_node import install, write
from slurm_on_node import start_slurm, with_slurm

from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(900)
SCENARIO = """\
sim: 1
nodes:
  n1: {gpus: {profile: h100-sxm, count: 1}, sockets: 1, cores: 2}
"""
SITE = "nodevet: 1\nexpect: {packages: {installed: {dpkg: {minimum: '1'}}}, gpu_count: 1}\n"
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


@pytest.fixture(scope="module")
def node(boot: Boot, is_other: bool) -> SimulatedFleet:
    fleet = boot("health", SCENARIO)
    install(fleet, "n1")
    fleet.run_on("n1", write("/etc/nodevet/site.yaml", SITE))
    start_slurm(fleet, "n1", other=is_other)
    return fleet


def on_node(node: SimulatedFleet, script: str) -> str:
    return with_slurm(node, "n1", script)


STATE = (
    "sinfo -h -o '%t %E' | sed 's/^\\([a-z]*\\)[*]/\\1/'"  # `*`: it answers late, on a busy machine
)


def health(node: SimulatedFleet, *words: str) -> str:
    """What a health check says on standard error; the reason of a drained node goes first."""
    line = shlex.join(["nodevet", "slurm", "health", "-b", "/etc/nodevet/site.yaml", *words])
    return on_node(
        node,
        f"cd /; {line} 2>/srv/errors >/dev/null; {STATE}; cat /srv/errors",
    )


def resume(node: SimulatedFleet) -> None:
    on_node(node, "scontrol update nodename=n1 state=resume")


def test_e14_a_running_dpkg_does_not_drain_a_node_but_an_interrupted_one_does(
    node: SimulatedFleet,
) -> None:
    assert health(node, "--looks", "1") == "idle none\n"
    assert node.run_on("n1", PACKAGE) == "began\n"
    told = health(node, "--looks", "1", "--max-age", "1s")  # one look would do
    assert told.startswith("idle none\n") and "pass by themselves: look again" in told

    node.run_on("n1", "pkill -KILL -x dpkg; rm /srv/wait; sleep 1")
    words = ("--looks", "3", "--max-age", "1s")
    assert [health(node, *words).partition("\n")[0] for _ in range(2)] == ["idle none"] * 2
    assert re.match(
        "drain(ed)? nodevet:local packages unknown: packages: dpkg was", health(node, *words)
    )
    node.run_on("n1", "dpkg --configure -a")
    resume(node)


UPGRADED = """
systemctl cat site.service >/dev/null 2>&1 || printf '[Service]\\nExecStart=/bin/sleep inf\\n' \
  >/etc/systemd/system/site.service
systemctl daemon-reload; systemctl start site.service
rm -f /srv/began; printf '#!/bin/sh\\nsystemctl stop site.service\\n' >/srv/slow/DEBIAN/preinst
chmod 755 /srv/slow/DEBIAN/preinst
"""


def test_e14_a_unit_that_an_upgrade_stops_drains_no_node(node: SimulatedFleet) -> None:
    site = "nodevet: 1\nexpect: {services: {running: [site.service]}}\n"
    node.run_on("n1", write("/etc/nodevet/unit.yaml", site))
    folder, _, rest = PACKAGE.partition("dpkg-deb --build")
    assert node.run_on("n1", f"{folder}{UPGRADED}dpkg-deb --build{rest}") == "began\n"
    look = "cd /; nodevet slurm health -b /etc/nodevet/unit.yaml --looks 1 --max-age 1s 2>&1; "
    told = on_node(node, look + STATE)
    assert told.endswith("idle none\n") and "pass by themselves: look again" in told
    node.run_on("n1", "rm /srv/wait; while pgrep -x dpkg; do sleep 0.2; done")
    told = on_node(node, look + STATE)
    assert re.search("drain(ed)? nodevet:local services inactive", told)
    node.run_on("n1", "systemctl start site.service")
    resume(node)


def test_a_leftover_of_a_job_fails_its_epilog_and_the_next_health_check_drains(
    node: SimulatedFleet,
) -> None:
    hook = "cd /; export SLURM_JOB_ID=7; nodevet slurm"
    site = "-b /etc/nodevet/site.yaml"
    assert on_node(node, f"{hook} prolog {site} >/dev/null; {hook} epilog 2>&1") == ""
    node.sim("set", "n1", "fault=process-leftover")
    told = on_node(node, f"{hook} epilog 2>&1; echo $?")
    assert "print nodevet: your job 7 left this on n1: leftover_processes " in told
    assert "nodevet: job 7 ended: nodevet:local leftover_processes" in told
    assert told.endswith("\n0\n")
    drained = health(node)
    assert re.match("drain(ed)? nodevet:local leftover_processes .+, expected none", drained)
    resume(node)
    node.sim("set", "n1", "faults=[]")
    assert health(node) == "idle none\n"


def test_an_epilog_counts_xids_only_since_its_job_began(node: SimulatedFleet) -> None:
    node.sim("set", "n1", "fault={xid: {gpu: 0, code: 48}}")
    epilog = "cd /; SLURM_JOB_ID=8 SLURM_JOB_START_TIME={} nodevet slurm epilog 2>&1"
    assert on_node(node, epilog.format("$(($(date +%s) + 60))")) == ""
    assert "xid " in on_node(node, epilog.format(1))
