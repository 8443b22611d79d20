"""The MTU of interfaces whose real managers set it at boot, on a node: wrong, done, rebooted, as
before; and what keeps nodevet away.

A node may configure its own network. Its interfaces here are pairs of veth of the real kernel, and
/sys/class/net is that of its namespace: the simulated NICs, which no manager could configure, are
hidden.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from node_tools import put_on_node

from simulated_fleet import Boot, SimulatedFleet

pytestmark = pytest.mark.timeout(900)
SCENARIO = "sim: 1\nnodes:\n  n1: {gpus: none, sockets: 1, cores: 1, nics: 0}\n"
BASELINE = """\
nodevet: 1
title: large packets
expect:
  network_link:
    interfaces: {%s}
fix: [network_link]
"""
NICS = ("nic0", "nic1", "nic2")  # of NetworkManager, netplan, systemd-networkd
UUID = "11111111-2222-3333-4444-555555555555"
KEYFILE = "/etc/NetworkManager/system-connections/rail 0.nmconnection"
NETPLAN = "/etc/netplan/99-nodevet-mtu-nic1.yaml"
DROP_IN = "/etc/systemd/network/20-rail.network.d/50-nodevet.conf"
INDEXES = "cat /sys/class/net/nic[0-2]/ifindex"
MTUS = "cat /sys/class/net/nic[0-2]/mtu"
CONFIGURED = f"""\
nmcli -g 802-3-ethernet.mtu connection show {UUID}
netplan get "ethernets.rail\\.1.mtu"
cat /etc/systemd/network/20-rail.network.d/* 2>/dev/null | grep MTU
"""
SET_UP = f"""\
[ -L /var/run ] || {{ rmdir /var/run; ln -s /run /var/run; }}
cat >/usr/local/sbin/interfaces <<'END'
#!/bin/sh
set -e
real=$(mktemp -d)
mount -t sysfs sysfs "$real"
mount --bind "$real/class/net" /sys/class/net
umount "$real"
rmdir "$real"
for number in 0 1 2 3; do
    ip link delete "nic$number" 2>/dev/null || true  # a node's reboot keeps its interfaces
    ip link add "nic$number" type veth peer name "peer$number"
    ip link set "peer$number" up
done
END
chmod 755 /usr/local/sbin/interfaces
cat >/etc/systemd/system/interfaces.service <<'END'
[Unit]
Before=systemd-networkd.service NetworkManager.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/interfaces
[Install]
WantedBy=multi-user.target
END
umask 077
cat >/etc/NetworkManager/conf.d/test.conf <<'END'
[main]
no-auto-default=*
[keyfile]
unmanaged-devices=except:interface-name:nic0
END
cat >"{KEYFILE}" <<'END'
[connection]
id=rail 0
uuid={UUID}
type=ethernet
interface-name=nic0

[ethernet]

[ipv4]
address1=192.0.2.10/32
method=manual
never-default=true
END
cat >/etc/netplan/10-rail.yaml <<'END'
network:
  version: 2
  ethernets:
    rail.1: {{match: {{name: nic1}}, addresses: [192.0.2.11/32], link-local: []}}
END
umask 022
cat >/etc/systemd/network/20-rail.network <<'END'
[Match]
Name=nic2
[Network]
Address=192.0.2.12/32
END
printf 'iface nic3 inet manual\\n' >/etc/network/interfaces
systemctl unmask systemd-networkd.service systemd-networkd.socket
systemctl daemon-reload
systemctl enable interfaces NetworkManager systemd-networkd
systemctl disable systemd-networkd-wait-online NetworkManager-wait-online
"""
STEADY = """\
for try in $(seq 600); do
    nmcli -g GENERAL.STATE device show nic0 2>/dev/null | grep -q '(connected)' &&
        [ "$(grep -ls ADMIN_STATE=configured /run/systemd/netif/links/* | wc -l)" = 2 ] && exit 0
    sleep 0.1
done
exit 1
"""


@pytest.fixture(scope="module")
def fleet(boot: Boot) -> SimulatedFleet:
    fleet = boot("mtu", SCENARIO, BASELINE % entries(9000, *NICS))
    for tool in ("network-manager", "netplan.io", "ifupdown"):
        put_on_node(fleet, "n1", tool)
    fleet.people("ann", "bob")
    (fleet.project / "approval.yaml").write_text("nodevet: 1\napprovals: {drain: 1}\n")
    fleet.run_on("n1", SET_UP)
    reboot(fleet)
    return fleet


def entries(mtu: int, *names: str) -> str:
    return ", ".join(f"{name}: {{state: any, mtu: {mtu}}}" for name in names)


def reboot(fleet: SimulatedFleet, steady: str = STEADY) -> None:
    """Interfaces that the reboot kept would prove nothing: each has another index after it."""
    before = fleet.run_on("n1", INDEXES, check=False).split()
    fleet.sim("reboot", "n1")
    fleet.run_on("n1", steady)
    after = fleet.run_on("n1", INDEXES).split()
    assert len(after) == len(NICS) and set(before).isdisjoint(after), (before, after)


def disk(fleet: SimulatedFleet) -> str:
    """What the node's disk has in /etc since its first boot; a manager writes its state to /var."""
    rows = fleet.sim("diff", "n1", codes=(0, 1)).splitlines()
    return "\n".join(row for row in rows if row.split()[1].startswith("/etc/"))


def verdicts(fleet: SimulatedFleet, baseline: str = "base") -> dict[str, str]:
    """The verdict of each interface."""
    words = ("-i", fleet.place.inventory, "-b", baseline, "--deadline", "150")
    findings = fleet.vetted(*words)["n1"]["findings"]
    return {finding["subject"]["id"]: finding["verdict"] for finding in findings}


def planned(fleet: SimulatedFleet, name: str, baseline: str = "base") -> Path:
    """A plan that may be applied."""
    plan = fleet.project / f"{name}.json"
    words = ("-i", fleet.place.inventory, "-b", baseline, "--deadline", "150", "--author", "ann")
    care = ("--drain-hook", "true", "--settle", "0.2")
    done = fleet.run_in_project("plan", *words, *care, "-o", plan)
    assert done.returncode == 1, done
    approved = fleet.run_in_project("approve", plan, "--key", fleet.project / "bob", "--yes")
    assert approved.returncode == 0, approved
    return plan


def applied(fleet: SimulatedFleet, plan: Path) -> dict[str, Any]:
    """How the plan ended on the node."""
    run = plan.with_suffix("")
    fleet.run_in_project("apply", plan, *fleet.reach, "--run", run)
    result: dict[str, Any] = json.loads((run / "result.json").read_text())["hosts"][0]
    return result


def test_each_manager_sets_the_mtu_now_and_at_boot_and_a_rollback_is_exact(
    fleet: SimulatedFleet,
) -> None:
    def look() -> tuple[list[str], list[str], str]:
        mtus, configured = (fleet.run_on("n1", script, check=False).split()
                            for script in (MTUS, CONFIGURED))  # fmt: skip
        return mtus, configured, disk(fleet)

    before = look()
    assert before[:2] == (["1500"] * 3, ["auto", "null"])
    assert verdicts(fleet) == dict.fromkeys(NICS, "fail")
    addresses = fleet.run_on("n1", "ip -brief address")

    plan = planned(fleet, "life")
    result = applied(fleet, plan)
    assert [step["outcome"] for step in result["steps"]] == ["changed"], result
    assert verdicts(fleet) == dict.fromkeys(NICS, "ok")
    assert look()[:2] == (["9000"] * 3, ["9000", "9000", "MTUBytes=9000"])
    assert fleet.run_on("n1", "ip -brief address") == addresses
    again = fleet.run_in_project("plan", *fleet.reach)
    assert again.returncode == 0, again

    reboot(fleet)
    assert verdicts(fleet) == dict.fromkeys(NICS, "ok")
    undone = fleet.run_in_project("rollback", plan.with_suffix(""))
    assert undone.returncode == 0, undone
    assert look() == before
    reboot(fleet)
    assert look() == before


def test_interfaces_of_the_session_and_of_ifupdown_are_not_touched(
    fleet: SimulatedFleet,
) -> None:
    fleet.baseline("others", BASELINE % entries(9000, "eth0", "nic3"))
    done = fleet.run_in_project("plan", "-i", fleet.place.inventory, "-b", "others")
    assert done.returncode == 3, done
    assert "eth0: it carries nodevet's session or a default route" in done.stdout
    assert "add the line `mtu 9000` to its stanza in /etc/network/interfaces" in done.stdout


def test_an_interface_with_two_managers_is_refused(fleet: SimulatedFleet) -> None:
    fleet.baseline("two", BASELINE % entries(9000, "nic2"))
    fleet.run_on("n1", "printf 'iface nic2 inet manual\\n' >>/etc/network/interfaces")
    done = fleet.run_in_project("plan", "-i", fleet.place.inventory, "-b", "two")
    fleet.run_on("n1", "sed -i /nic2/d /etc/network/interfaces")
    assert done.returncode == 3, done
    assert "systemd-networkd and ifupdown configure it: let only one do so" in done.stdout


def test_a_later_change_by_the_administrator_makes_the_plan_stale(
    fleet: SimulatedFleet,
) -> None:
    plan = planned(fleet, "stale")
    fleet.run_on("n1", "sed -i 's/link-local/mtu: 4000, link-local/' /etc/netplan/10-rail.yaml")
    try:
        result = applied(fleet, plan)
    finally:
        fleet.run_on("n1", "sed -i 's/mtu: 4000, //' /etc/netplan/10-rail.yaml")
    assert (result["outcome"], result["refusal"]) == ("refused", "stale"), result
    assert fleet.run_on("n1", MTUS).split() == ["1500"] * 3
    assert fleet.run_on("n1", f"ls {NETPLAN} {DROP_IN}", check=False) == ""


def test_a_write_that_changed_nothing_fails_and_the_files_are_as_before(
    fleet: SimulatedFleet,
) -> None:
    before = disk(fleet)
    plan = planned(fleet, "lie")
    with_dd(fleet, "exit 0")
    try:
        result = applied(fleet, plan)
    finally:
        fleet.run_on("n1", "rm /usr/local/bin/dd")
    assert [step["outcome"] for step in result["steps"]] == ["failed_and_rolled_back"], result
    assert disk(fleet) == before
    assert fleet.run_on("n1", CONFIGURED, check=False).split() == ["auto", "null"]


def test_a_controller_that_is_killed_between_the_files_and_the_value_resumes(
    fleet: SimulatedFleet,
) -> None:
    plan = planned(fleet, "kill")
    run = plan.with_suffix("")
    with_dd(fleet, "touch /run/at-dd; while [ -e /run/at-dd ]; do sleep 0.1; done; exit 1")
    words = ("apply", plan, *fleet.reach, "--run", run, "--project", fleet.project)
    try:
        fleet.kill_when(lambda: fleet.run_on("n1", "ls /run/at-dd", check=False), *words)
    finally:
        fleet.run_on("n1", "rm -f /usr/local/bin/dd /run/at-dd")
    assert fleet.run_on("n1", f"ls {NETPLAN} {DROP_IN}").split() == [NETPLAN, DROP_IN]
    resumed = fleet.run_in_project("apply", "--resume", run, *fleet.reach)
    assert resumed.returncode == 0, resumed
    assert fleet.run_on("n1", MTUS).split() == ["9000"] * 3
    assert verdicts(fleet) == dict.fromkeys(NICS, "ok")
    undone = fleet.run_in_project("rollback", run)
    assert undone.returncode == 0, undone
    assert fleet.run_on("n1", MTUS).split() == ["1500"] * 3


def with_dd(fleet: SimulatedFleet, does: str) -> None:
    """Let the program that writes to the kernel's files do this instead."""
    script = f"printf '#!/bin/sh\\n%s\\n' '{does}' >/usr/local/bin/dd; chmod 755 /usr/local/bin/dd"
    fleet.run_on("n1", script)
