"""Fixes that write while the node's own file system is full: the step fails, the journal says so,
nothing is half-written, and the node is as it was.

The root file system of the node is full, not a folder of it; see tests/rigs/software_on_node.py for
what is real.
"""

from collections.abc import Iterator

import pytest
from faulty_nodes import QUIET, Node, faulty_nodes
from msgspec.structs import replace
from node_tools import ROOT
from software_on_node import put_software

from nodevet.fixing.result import Outcome
from simulated_fleet import Boot

pytestmark = pytest.mark.timeout(1500)
SCENARIO = """\
sim: 1
nodes:
  n1:
    gpus: {profile: h100-sxm, count: 1}
    sockets: 1
    cores: 1
    nics: 1
    disk_mb: 96
    faults: [cdi-stale, read-request-small, {acs-redirect: {gpu: 0}}]
"""
BASELINE = """\
nodevet: 1
expect:
  mounts:
    /scratch: {type: tmpfs, options: [noatime]}
    /data: {type: tmpfs, options: [nodev]}
    /cache: {type: tmpfs, options: [relatime, exec]}
  dkms: {}
  container_runtime: {engines: [docker], default_runtime: [docker]}
  pcie_settings: {minimum_read_request_b: 4096}
  acs: false
  network_link: {interfaces: {nic2: {state: any, mtu: 9000}}}
fix: [mounts, dkms, container_runtime, pcie_settings, acs, network_link]
"""
FIXES = ("dkms", "acs", "pcie_settings", "network_link", "container_runtime")
NETWORK = """
real=$(mktemp -d); mount -t sysfs sysfs $real; mount --bind $real/class/net /sys/class/net
umount $real; rmdir $real
ip link add nic2 type veth peer name peer2; ip link set peer2 up
printf '[Match]\\nName=nic2\\n[Network]\\nAddress=192.0.2.12/32\\n' \\
    >/etc/systemd/network/20-rail.network
systemctl unmask -q systemd-networkd.service systemd-networkd.socket
systemctl disable -q systemd-networkd-wait-online; systemctl enable -q --now systemd-networkd
until grep -qs ADMIN_STATE=configured /run/systemd/netif/links/*; do sleep 0.05; done
"""
STATE = """\
find /etc /lib/modules /var/lib/dkms -path '*/1.0/build*' -o -printf '%p %y %m %U:%G %l\\n' | sort
find /etc /lib/modules /var/lib/dkms -path '*/1.0/build*' -o -type f -print0 | sort -z |
    xargs -0 sha256sum
grep -E ' /(scratch|data|cache) ' /proc/self/mountinfo | cut -d' ' -f4-6,9- | sort
for d in /sys/bus/pci/devices/*; do a=${d##*/}; echo $a $(setpci -s $a CAP_EXP+8.w) \
    $(setpci -s $a ECAP_ACS+6.w 2>&1); done
systemctl show -p Id,UnitFileState,ActiveState docker data.mount; cat /sys/class/net/nic2/mtu
systemctl list-units --failed --no-legend
"""
"""Without DKMS's own folder for builds, where it leaves the log of one that failed."""
READ_ONLY, WRITABLE = "mount --bind /etc /etc; mount -o remount,bind,ro /etc", "umount -l /etc"
FILL = "cat /dev/zero >/full 2>/dev/null; printf x >/x && exit 1; rm -f /x"


@pytest.fixture(scope="module")
def node(boot: Boot) -> Iterator[Node]:
    if not (ROOT / "dkms").is_dir():
        pytest.skip(f"no {ROOT}/dkms: .ci/node-tools unpacks it")
    fleet = boot("full", SCENARIO, BASELINE)
    put_software(fleet, "n1")
    fleet.run_on("n1", NETWORK)
    with faulty_nodes(fleet, (*FIXES, "mounts"), state=STATE, reset="true") as nodes:
        node = nodes["n1"]
        node.terms = replace(node.terms, drain_hook="true")
        yield node


def difference(now: str, before: str) -> set[str]:
    return set(now.splitlines()) ^ set(before.splitlines())


@pytest.mark.parametrize("fix", FIXES[:-1])
def test_a_full_disk_leaves_the_node_as_it_was(node: Node, fix: str) -> None:
    before, plan = node.state(), node.plan(fix)
    node.shell(FILL)
    result = node.apply(plan)
    full = node.shell(QUIET + STATE)
    node.shell("rm /full")
    assert result.outcome is Outcome.FAILED, result
    assert "No space left on device" in result.why, result
    assert difference(full, before) == set(), "while the disk is full"
    assert difference(node.state(), before) == set()
    assert node.touched() == []


def test_mounts_write_nothing_to_the_disk(node: Node) -> None:
    before, plan = node.state(), node.plan("mounts")
    node.shell(FILL)
    assert node.apply(plan).outcome is Outcome.CHANGED
    assert node.rollback(plan).outcome is Outcome.ROLLED_BACK
    node.shell("rm /full")
    assert difference(node.state(), before) == set()


@pytest.mark.parametrize(
    ("block", "unblock", "why"),
    [
        (READ_ONLY, WRITABLE, "Read-only file system"),
        (FILL, "rm /full", "No space left on device"),
    ],
    ids=["read-only", "full"],
)
def test_a_full_or_read_only_disk_stops_a_step_and_delays_its_rollback(
    node: Node, block: str, unblock: str, why: str
) -> None:
    before, plan = node.state(), node.plan("container_runtime")
    node.shell(block)
    result = node.apply(plan)
    node.shell(unblock)
    assert result.outcome in (Outcome.FAILED, Outcome.REFUSED), result
    assert why in result.why and "/etc" in result.why, result
    assert difference(node.state(), before) == set() and node.touched() == []

    assert node.apply(plan).outcome is Outcome.CHANGED
    node.shell(block)
    result = node.rollback(plan)
    node.shell(unblock)
    assert result.outcome is Outcome.ROLLBACK_FAILED and why in result.why, result
    result = node.rollback(plan)
    assert result.outcome is Outcome.ROLLED_BACK, result
    assert difference(node.state(), before) == set()
