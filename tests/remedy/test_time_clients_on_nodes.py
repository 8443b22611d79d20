"""The clock of a node whose time client is stopped: planned, set, proven, still so after lost
power, and rolled back. By the real systemd-timesyncd and the real ntpd (NTPsec);
test_newer_fixes_on_nodes.py has the story of chrony."""

from collections.abc import Iterator

import pytest
from faulty_nodes import Node, faulty_nodes
from msgspec.structs import replace
from time_clients import SERVER, put_clients, put_ntpd

from nodevet.fixing.result import Outcome
from simulated_fleet import Boot

pytestmark = pytest.mark.timeout(900)
FIX = "time_sync"
SCENARIO = """\
sim: 1
nodes:
  timesyncd:
    gpus: {profile: h100-sxm, count: 1}
    sockets: 1
    cores: 1
    faults: [clock-unsynchronised]
  ntpd:
    gpus: {profile: h100-sxm, count: 1}
    sockets: 1
    cores: 1
    faults: [clock-unsynchronised]
"""
BASELINE = f"nodevet: 1\nexpect: {{{FIX}: {{}}}}\nfix: [{FIX}]\n"
UNITS = {"timesyncd": "systemd-timesyncd.service", "ntpd": "ntpsec.service"}
SERVERS = {"timesyncd": SERVER, "ntpd": "true"}
CLOCK = "/run/nodevet-sim/adjtimex"
STATE = """\
find /etc -printf '%p %y %m %U:%G %l\\n' | sort
systemctl show -p Id,LoadState,UnitFileState,ActiveState chrony systemd-timesyncd ntpsec
"""


@pytest.fixture(scope="module")
def nodes(boot: Boot, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Node]]:
    fleet = boot("clocks", SCENARIO, BASELINE)
    put_clients(fleet, "timesyncd", tmp_path_factory.mktemp("timesyncd"))
    fleet.run_on("timesyncd", "systemctl mask -q chrony; systemctl unmask -q systemd-timesyncd")
    put_ntpd(fleet, "ntpd", tmp_path_factory.mktemp("ntpd"))
    with faulty_nodes(fleet, (FIX,), state=STATE, reset="true") as nodes:
        yield nodes


@pytest.mark.parametrize("client", UNITS)
def test_a_time_client_sets_the_clock_again_after_lost_power(
    nodes: dict[str, Node], client: str
) -> None:
    node, unit = nodes[client], UNITS[client]
    node.terms = replace(node.terms, boot_settle=60)
    node.shell(SERVERS[client])
    before = node.state()
    plan = node.plan()
    assert plan.steps[0].resources[0].name == unit
    result = node.apply(plan)
    assert result.outcome is Outcome.CHANGED, result
    assert is_synchronised(node) and node.proposal().plan.steps == ()
    lose_power(node)
    node.shell(f"{SERVERS[client]}; until grep -q '^0 ' {CLOCK}; do sleep 0.1; done")
    assert node.shell(f"systemctl is-active {unit}") == "active\n"
    assert node.proposal().plan.steps == ()
    assert node.rollback(plan).outcome is Outcome.ROLLED_BACK
    assert node.state() == before
    lose_power(node)
    assert node.state() == before and not is_synchronised(node)


def is_synchronised(node: Node) -> bool:
    """Whether the kernel calls the clock synchronised: TIME_OK of adjtimex(2)."""
    return node.shell(f"cut -d' ' -f1 {CLOCK}") == "0\n"


def lose_power(node: Node) -> None:
    node.cut_power()
    node.wait_until_up()
