"""Network interfaces: physical ones and what they are made into; hundreds of others cost little."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote.probe.collectors import network
from nodevet.remote.probe.files import Absent

Check = Callable[[str, dict[str, Any]], Any]
NIC = "sys/devices/pci0000:17/0000:17:01.0/0000:1a:00.0"


def interface(tree: Any, name: str, place: str, **files: object) -> None:
    """One interface below `place`, listed in the class."""
    known = {"type": 1, "flags": "0x1003", "operstate": "up", "carrier": 1, "mtu": 1500}
    tree.put(f"{place}/net/{name}", **{**known, **files})
    tree.link(f"sys/class/net/{name}", f"{place}/net/{name}")


@pytest.fixture
def root(tree: Any) -> Path:
    """A NIC of two interfaces, one of them in a bond, and what a host of containers adds."""
    for name, counts in (("ens1f0np0", 4), ("ens1f1np1", 1)):
        interface(tree, name, NIC, speed=400000, duplex="full", carrier_changes=counts)
        tree.put(f"{NIC}/net/{name}/statistics", rx_errors=7, tx_dropped=0)
        tree.link(f"{NIC}/net/{name}/device", NIC)
    tree.put(NIC, numa_node=1)
    tree.link(f"{NIC}/driver", "sys/bus/pci/drivers/mlx5_core")
    virtual = "sys/devices/virtual"
    interface(tree, "lo", virtual, uevent="INTERFACE=lo\nIFINDEX=1", type=772, flags="0x9")
    interface(tree, "bond0", virtual, uevent="DEVTYPE=bond\nINTERFACE=bond0", mtu=9000)
    tree.put(f"{virtual}/net/bond0/bonding", slaves="ens1f0np0")
    tree.link(f"{NIC}/net/ens1f0np0/master", f"{virtual}/net/bond0")
    tree.put(f"{NIC}/net/ens1f0np0/bonding_slave", link_failure_count=3)
    tree.put("sys/class/net", bonding_masters="bond0")
    for number in range(30):
        interface(tree, f"veth{number}", virtual, uevent=f"INTERFACE=veth{number}")
    return tree.root


def test_physical_interfaces_and_bonds_are_read_and_veths_counted(root: Path, check: Check) -> None:
    found = check("network", network.collect(str(root), {}))
    assert (found.found, found.others) == (("bond0", "ens1f0np0", "ens1f1np1"), 31)
    bond, first, second = found.interfaces
    assert (bond.kind, bond.lower, bond.mtu, bond.driver, bond.bus_id) == (
        *("bond", ("ens1f0np0",), 9000, "", ""),
    )
    assert (first.kind, first.driver, first.bus_id, first.numa_node, first.master) == (
        *("physical", "mlx5_core", "0000:1a:00.0", 1, "bond0"),
    )
    assert (first.operstate, first.admin_up, first.carrier) == ("up", True, True)
    assert (first.speed_mbps, first.duplex, second.master) == (400000, "full", "")
    told = {counter.name: counter.value for counter in first.counters}
    assert told == {"rx_errors": 7, "tx_dropped": 0, "carrier_changes": 4, "link_failure_count": 3}


def test_a_virtual_interface_is_read_if_a_baseline_names_it(root: Path, check: Check) -> None:
    request = {"asks": {"network": ["veth7", "lo*", "ens9"]}}
    found = check("network", network.collect(str(root), request))
    assert found.found == ("bond0", "ens1f0np0", "ens1f1np1", "lo", "veth7")
    lo = found.by_name["lo"]
    assert (lo.kind, lo.type, lo.admin_up) == ("virtual", 772, True)
    assert found.others == 29


def test_an_interface_that_is_down_is_read_without_carrier_and_speed(
    root: Path, check: Check
) -> None:
    place = root / NIC / "net/ens1f1np1"
    for name, text in (("flags", "0x1002"), ("operstate", "down"), ("speed", "-1")):
        (place / name).write_text(f"{text}\n")
    (place / "carrier").unlink()  # EINVAL on a real one
    found = check("network", network.collect(str(root), {})).by_name["ens1f1np1"]
    assert (found.admin_up, found.operstate, found.carrier) == (False, "down", None)
    assert found.why("speed_mbps") == "the kernel does not know it: -1"


def test_a_virtual_function_is_distinguished_from_the_nic(
    root: Path, tree: Any, check: Check
) -> None:
    place = "sys/devices/pci0000:17/0000:17:01.0/0000:1a:00.2"
    interface(tree, "ens1f0v0", place)
    tree.link(f"{place}/net/ens1f0v0/device", place)
    tree.link(f"{place}/physfn", NIC)
    found = check("network", network.collect(str(root), {})).by_name["ens1f0v0"]
    assert (found.kind, found.bus_id) == ("virtual_function", "0000:1a:00.2")
    assert found.why("driver") == "ENOENT"


def test_virtual_interfaces_are_distinguished_from_their_nic(
    root: Path, tree: Any, check: Check
) -> None:
    interface(tree, "ib0.8001", NIC, parent="ib0")
    interface(tree, "pf0hpf", NIC, phys_port_name="pf0hpf")
    for number in range(3):
        interface(tree, f"eth{number}", NIC, phys_port_name=f"pf0vf{number}")
    for name in ("ib0.8001", "pf0hpf", "eth0", "eth1", "eth2"):
        tree.link(f"{NIC}/net/{name}/device", NIC)
    found = check("network", network.collect(str(root), {"asks": {"network": ["eth1"]}}))
    kinds = {each.name: each.kind for each in found.interfaces}
    assert kinds == {
        "bond0": "bond",
        "ens1f0np0": "physical",
        "ens1f1np1": "physical",
        "eth1": "representor",
        "ib0.8001": "ipoib_child",
        "pf0hpf": "physical",
    }
    assert found.others == 33


def test_the_master_of_a_physical_interface_is_read_whatever_its_kind(
    root: Path, tree: Any, check: Check
) -> None:
    interface(tree, "team0", "sys/devices/virtual", uevent="INTERFACE=team0")
    tree.link(f"{NIC}/net/ens1f1np1/master", "sys/devices/virtual/net/team0")
    tree.link("sys/devices/virtual/net/team0/lower_ens1f1np1", f"{NIC}/net/ens1f1np1")
    team = check("network", network.collect(str(root), {})).by_name["team0"]
    assert (team.kind, team.lower) == ("virtual", ("ens1f1np1",))


def test_more_interfaces_than_a_machine_has_are_not_read(
    root: Path, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "LARGEST", 2)
    found = check("network", network.collect(str(root), {}))
    assert (found.interfaces, found.why("interfaces")) == (None, "3 interfaces, more than 2")


def test_the_network_is_absent_without_sys_class_net(tmp_path: Path) -> None:
    with pytest.raises(Absent, match="no /sys/class/net"):
        network.collect(str(tmp_path), {})


def test_fixtures_of_node_exporter(capture: Callable[[str], str], check: Check) -> None:
    found = check("network", network.collect(capture("sysfs/node_exporter-sys.ttar"), {}))
    assert found.found == ("bond0", "dmz", "eth0", "int")
    dmz, nic = found.by_name["dmz"], found.by_name["eth0"]
    assert (dmz.kind, dmz.lower, dmz.speed_mbps) == ("bond", ("eth0", "eth4"), 1000)
    assert (nic.kind, nic.bus_id, nic.mtu, nic.duplex) == ("physical", "0000:03:00.0", 1500, "full")
    assert found.by_name["bond0"].speed_mbps is None  # -1


def test_what_ethtool_prints_of_an_ec2_nic(captures: Path) -> None:
    found = network.parse_ethtool((captures / "net/eks-ethtool-S-ens5.txt").read_text())
    assert found["bw_in_allowance_exceeded"] == 11072
    assert found["conntrack_allowance_available"] == 51286
    assert found["queue_1_rx_bytes"] == 4776190713 and "NIC statistics" not in found


def test_counters_of_the_driver_are_asked_of_ethtool(
    monkeypatch: pytest.MonkeyPatch, check: Check
) -> None:
    asked = {"asks": {"network": ["counter:rx_errors", "counter:tx_timeout", "counter:nonsense"]}}
    monkeypatch.setattr(network, "find_program", lambda name: f"/usr/sbin/{name}")
    monkeypatch.setattr(network, "output_of", lambda words, seconds: "NIC:\n  tx_timeout: 4\n")
    found = check("network", network.collect("/", asked))
    physical = [each for each in found.interfaces if each.kind == "physical"]
    for each in physical:
        told = [counter.name for counter in each.counters]
        assert told.count("rx_errors") == told.count("tx_timeout") == 1 and "nonsense" not in told


def test_without_ethtool_a_counter_of_the_driver_is_unknown(root: Path, check: Check) -> None:
    asked = {"asks": {"network": ["counter:tx_timeout"]}}
    found = check("network", network.collect(str(root), asked)).by_name["ens1f0np0"]
    (counter,) = (each for each in found.counters if each.name == "tx_timeout")
    assert "of the running machine alone" in counter.why("value")
    why = network.driver_counters("/", "none", ["tx_timeout"])[0]["errors"]["value"]
    assert "ethtool" in why


@pytest.mark.parametrize("text", ["-1", "0", "4294967295", "fast", ""])
def test_an_invalid_speed_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a number|does not know"):
        network.parse_speed(text)
