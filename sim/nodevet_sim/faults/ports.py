"""Faults of single facts about a NIC's port: its state, counters, partition and firmware. A
function's docstring is the fault's documentation."""

import posixpath
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from nodevet_sim.faults.change import file_values
from nodevet_sim.faults.network import (
    INTERFACES,
    OneInterface,
    OneRdmaPort,
    interface_of,
    linked,
    port_of,
    without_carrier,
)
from nodevet_sim.faults.params import FaultParams, NoParams
from nodevet_sim.faults.patch import FaultError, Healthy, Patch
from nodevet_sim.pci_files import speed
from nodevet_sim.shipped import RATES

Errors = Annotated[int, Field(ge=1, le=10**9)]


class PortErrors(OneRdmaPort):
    count: Errors = 5000


def ib_port_errors(healthy: Healthy, want: PortErrors) -> Patch:
    """An InfiniBand port has counted symbol errors and broken packets; its link never went down.

    `device`, the number of mlx5_<N>: 3; `count`, 5000.
    """
    port, _ = port_of(healthy, want.device)
    names = ("symbol_error", "port_rcv_errors")
    return file_values(healthy, f"{port}/counters", dict.fromkeys(names, want.count))


class PartitionKey(OneRdmaPort):
    key: Annotated[str, Field(pattern=r"^0x[0-9a-f]{4}$")] = "0x7fff"


def pkey_other(healthy: Healthy, want: PartitionKey) -> Patch:
    """The subnet manager gave an InfiniBand port another partition key: a limited membership.

    `device`, the number of mlx5_<N>: 3; `key`, 0x7fff.
    """
    port, _ = port_of(healthy, want.device)
    return file_values(healthy, f"{port}/pkeys", {"0": want.key})


class Firmware(OneRdmaPort):
    version: Annotated[str, Field(pattern=r"^[0-9.]{1,20}$")] = "28.35.1012"


def nic_firmware_other(healthy: Healthy, want: Firmware) -> Patch:
    """A NIC has another firmware than the others of its kind.

    `device`, the number of mlx5_<N>: 3; `version`, 28.35.1012.
    """
    port, _ = port_of(healthy, want.device)
    return file_values(healthy, port.rsplit("/", 2)[0], {"fw_ver": want.version})


def subnet_manager_missing(healthy: Healthy, want: OneRdmaPort) -> Patch:
    """No subnet manager has brought an InfiniBand port up: its link is up, its state is INIT.

    `device`, the number of mlx5_<N>: 3.
    """
    port, interface = port_of(healthy, want.device)
    values = {"state": "2: INIT", "lid": "0x0", "sm_lid": "0x0"}
    return _with_interface(healthy, port, interface, values)


def ib_port_disabled(healthy: Healthy, want: OneRdmaPort) -> Patch:
    """An InfiniBand port was disabled.

    `device`, the number of mlx5_<N>: 3.
    """
    port, interface = port_of(healthy, want.device)
    return _with_interface(
        healthy, port, interface, {"state": "1: DOWN", "phys_state": "3: Disabled"}
    )


def _with_interface(
    healthy: Healthy, port: str, interface: str, values: Mapping[str, object]
) -> Patch:
    down = healthy.present(without_carrier(interface))
    return Patch({**file_values(healthy, port, values).files, **down})


class InterfaceErrors(OneInterface):
    count: Errors = 5000


def interface_errors(healthy: Healthy, want: InterfaceErrors) -> Patch:
    """An interface of a NIC has received broken frames (CRC).

    `interface`, that of the first NIC on the bus; `count`, 5000.
    """
    place = interface_of(healthy, want.interface)
    names = ("rx_errors", "rx_crc_errors")
    return file_values(healthy, f"{place}/statistics", dict.fromkeys(names, want.count))


class SlowInterface(OneInterface):
    mbps: Annotated[int, Field(ge=10, le=1_600_000)] = 10_000


def interface_slow(healthy: Healthy, want: SlowInterface) -> Patch:
    """An interface of a NIC came up at a lower speed.

    `interface`, that of the first NIC on the bus; `mbps`, 10000.
    """
    return file_values(healthy, interface_of(healthy, want.interface), {"speed": want.mbps})


def interface_half_duplex(healthy: Healthy, want: OneInterface) -> Patch:
    """An interface of a NIC runs at half duplex.

    `interface`, that of the first NIC on the bus.
    """
    return file_values(healthy, interface_of(healthy, want.interface), {"duplex": "half"})


BOND = "sys/devices/virtual/net/bond0"


def bond_member_down(healthy: Healthy, want: NoParams) -> Patch:
    """The first two interfaces are a bond, bond0, and the link of the second is down."""
    first, second = _members(healthy)
    bond = _bond(healthy, first, second)
    return Patch({**bond.files, **healthy.present(without_carrier(second))}, links=bond.links)


def bond_member_missing(healthy: Healthy, want: NoParams) -> Patch:
    """A bond of two interfaces, bond0, has only one: the second is up, but not in the bond.

    Only a baseline that says how many it has detects it.
    """
    return _bond(healthy, _members(healthy)[0])


def _members(healthy: Healthy) -> tuple[str, str]:
    """The folders of the first two interfaces. Raises FaultError."""
    first, second, *_ = [*sorted(linked(healthy, INTERFACES).values()), "", ""]
    if not second:
        raise FaultError("the node has fewer than two NICs")
    return first, second


def _bond(healthy: Healthy, *members: str) -> Patch:
    """bond0 of these interfaces, which is as the first of them is."""
    own = ("address", "carrier", "duplex", "flags", "mtu", "operstate", "speed", "type")
    values = {name: healthy.read(f"{members[0]}/{name}") for name in own}
    values["uevent"] = "DEVTYPE=bond\nINTERFACE=bond0"
    values["bonding/slaves"] = " ".join(place.rpartition("/")[2] for place in members)
    links = {f"{place}/master": posixpath.relpath(BOND, place) for place in members}
    links[f"{INTERFACES}/bond0"] = posixpath.relpath(BOND, INTERFACES)
    return Patch({f"{BOND}/{name}": f"{text}\n" for name, text in values.items()}, links=links)


class Generation(OneInterface):
    generation: Annotated[int, Field(ge=1, le=4)] = 3


def nic_generation(healthy: Healthy, want: Generation) -> Patch:
    """The PCIe link of a NIC trained at a lower generation than it can do.

    `interface`, that of the first NIC on the bus; `generation`, 3.
    """
    place = interface_of(healthy, want.interface).rsplit("/", 2)[0]
    text = speed(RATES[want.generation])
    if healthy.files.get(f"{place}/current_link_speed") == f"{text}\n":
        raise FaultError(f"the link is at Gen{want.generation} already; give a lower generation")
    return file_values(healthy, place, {"current_link_speed": text})


FAULTS: Mapping[str, tuple[type[FaultParams], Callable[[Healthy, Any], Patch]]] = {
    "bond-member-down": (NoParams, bond_member_down),
    "bond-member-missing": (NoParams, bond_member_missing),
    "ib-port-disabled": (OneRdmaPort, ib_port_disabled),
    "ib-port-errors": (PortErrors, ib_port_errors),
    "interface-errors": (InterfaceErrors, interface_errors),
    "interface-half-duplex": (OneInterface, interface_half_duplex),
    "interface-slow": (SlowInterface, interface_slow),
    "nic-firmware-other": (Firmware, nic_firmware_other),
    "nic-generation": (Generation, nic_generation),
    "pkey-other": (PartitionKey, pkey_other),
    "subnet-manager-missing": (OneRdmaPort, subnet_manager_missing),
}
