"""Faults of NICs and their links. A function's docstring is the fault's documentation."""

import posixpath
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from nodevet_sim.description import Content
from nodevet_sim.faults.params import FaultParams, NoParams
from nodevet_sim.faults.patch import FaultError, Healthy, Patch
from nodevet_sim.network_files import BOOTED_S, DOWN, LINKS, link_line, link_told

INTERFACES, DEVICES = "sys/class/net", "sys/class/infiniband"
DEFAULT_PORT = 3
Number = Annotated[int, Field(ge=0, le=255)]


class OneRdmaPort(FaultParams):
    """`device` is the number of mlx5_<N>; without it mlx5_3, or the last one if there are fewer."""

    device: Number | None = None


class DegradedPort(OneRdmaPort):
    lanes: Annotated[int, Field(ge=1, le=2)] = 2


class FlappingPort(OneRdmaPort):
    downs: Annotated[int, Field(ge=1, le=255)] = 37


class OneInterface(FaultParams):
    """Without `interface`, the interface of the first NIC on the bus."""

    interface: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,15}$")] | None = None


class LostLink(OneInterface):
    after: Annotated[float, Field(ge=BOOTED_S)] = 600.0
    seconds: Annotated[float, Field(ge=0)] = 95.0


class WrongMtu(OneInterface):
    mtu: Annotated[int, Field(ge=68, le=65520)] = 1500


def linked(healthy: Healthy, folder: str) -> Mapping[str, str]:
    """The names in a folder of links, and their targets."""
    return {
        path.rpartition("/")[2]: posixpath.normpath(f"{folder}/{target}")
        for path, target in healthy.links.items()
        if path.startswith(f"{folder}/")
    }


def port_of(healthy: Healthy, wanted: int | None) -> tuple[str, str]:
    """The folders of an RDMA device's first port, and of its interface. Raises FaultError."""
    devices = linked(healthy, DEVICES)
    numbers = sorted(int(name[5:]) for name in devices if re.fullmatch(r"mlx5_\d+", name))
    if not numbers:
        raise FaultError("the node has no RDMA device")
    number = min(DEFAULT_PORT, numbers[-1]) if wanted is None else wanted
    if number not in numbers:
        raise FaultError(f"there is no mlx5_{number}; the node has {len(numbers)}, from 0")
    place = devices[f"mlx5_{number}"]
    below = f"{place.rsplit('/', 2)[0]}/net/"
    own = [path for path in linked(healthy, INTERFACES).values() if path.startswith(below)]
    return f"{place}/ports/1", own[0] if own else below


def interface_of(healthy: Healthy, wanted: str | None) -> str:
    """The folder of an interface. Raises FaultError."""
    interfaces = linked(healthy, INTERFACES)
    if not interfaces:
        raise FaultError("the node has no NIC")
    name = min(interfaces, key=lambda name: interfaces[name]) if wanted is None else wanted
    if name not in interfaces:
        raise FaultError(
            f"there is no interface {name}; the node has {', '.join(sorted(interfaces))}"
        )
    return interfaces[name]


def without_carrier(place: str) -> dict[str, Content]:
    """An interface whose link is down."""
    values = {"carrier": 0, "operstate": "down", "speed": -1, "duplex": "unknown"}
    return {f"{place}/{name}": f"{value}\n" for name, value in values.items()}


def ib_port_down(healthy: Healthy, want: OneRdmaPort) -> Patch:
    """An InfiniBand port is down: it looks for a link partner, and none answers.

    `device`, the number of mlx5_<N>: 3.
    """
    port, interface = port_of(healthy, want.device)
    values = {
        "state": "1: DOWN", "phys_state": "2: Polling", "rate": "10 Gb/sec (4X SDR)",
        "lid": "0xffff", "sm_lid": "0x0",
    }  # fmt: skip
    files: dict[str, Content] = {f"{port}/{name}": f"{text}\n" for name, text in values.items()}
    told = {f"{LINKS}/{port.split('/')[-3]}.json": link_told(state="Polling", speed="N/A")}
    return Patch(healthy.present({**files, **without_carrier(interface)}), root_files=told)


def ib_rate_degraded(healthy: Healthy, want: DegradedPort) -> Patch:
    """An InfiniBand port is up with only some of its lanes, at a lower rate.

    `device`, the number of mlx5_<N>: 3; `lanes` of four, 2.
    """
    port, interface = port_of(healthy, want.device)
    rate = 100 * want.lanes
    files: dict[str, Content] = {
        f"{port}/rate": f"{rate} Gb/sec ({want.lanes}X NDR)\n",
        f"{interface}/speed": f"{rate * 1000}\n",
    }
    return Patch(healthy.present(files))


def link_flapping(healthy: Healthy, want: FlappingPort) -> Patch:
    """The link of an InfiniBand port has gone down and come back many times since boot.

    `device`, the number of mlx5_<N>: 3; `downs`, 37.
    """
    port, interface = port_of(healthy, want.device)
    counters = {
        "link_downed": want.downs,
        "link_error_recovery": want.downs // 3,
        "symbol_error": 73 * want.downs,
    }
    changes = {
        "carrier_changes": 2 * want.downs + 1,
        "carrier_down_count": want.downs,
        "carrier_up_count": want.downs + 1,
    }
    files: dict[str, Content] = {
        **{f"{port}/counters/{name}": f"{count}\n" for name, count in counters.items()},
        **{f"{interface}/{name}": f"{count}\n" for name, count in changes.items()},
    }
    return Patch(healthy.present(files))


def link_outage(healthy: Healthy, want: LostLink) -> Patch:
    """The kernel log says that the link of an Ethernet NIC was down for a while and came back.

    `interface`, that of the first NIC on the bus; `after`, when it went down, seconds after boot,
    600; `seconds`, how long, 95. It needs a booted node.
    """
    place = interface_of(healthy, want.interface)
    if healthy.files.get(f"{place}/type") != "1\n":
        raise FaultError("the kernel logs only Ethernet links; give `nic_kind: ethernet`")
    address, _, name = place.split("/")[-3:]
    states = (("down", want.after), ("up", want.after + want.seconds))
    return Patch(log=tuple(link_line(address, name, state, at) for state, at in states))


def mtu_wrong(healthy: Healthy, want: WrongMtu) -> Patch:
    """An interface of a NIC has another MTU than its network.

    `interface`, that of the first NIC on the bus; `mtu`, 1500.
    """
    place = interface_of(healthy, want.interface)
    if healthy.files.get(f"{place}/mtu") == f"{want.mtu}\n":
        raise FaultError(f"the interface has an MTU of {want.mtu} already; give another `mtu`")
    return Patch(healthy.present({f"{place}/mtu": f"{want.mtu}\n"}))


def nic_down(healthy: Healthy, want: OneInterface) -> Patch:
    """An interface of a NIC is turned off.

    `interface`, that of the first NIC on the bus.
    """
    place = interface_of(healthy, want.interface)
    return Patch(healthy.present({**without_carrier(place), f"{place}/flags": f"{DOWN}\n"}))


def default_route_missing(healthy: Healthy, want: NoParams) -> Patch:
    """The node has no default route, as with a lease without one.

    It needs a booted node.
    """
    return Patch(node={"default_route": False})


def default_route_ipv6_missing(healthy: Healthy, want: NoParams) -> Patch:
    """The node has no IPv6 default route: no router announces itself.

    It needs a booted node, on a machine that has IPv6.
    """
    return Patch(node={"default_route_ipv6": False})


def address_missing(healthy: Healthy, want: NoParams) -> Patch:
    """The node has no address in its storage network, 198.19.0.0/16.

    It needs a booted node.
    """
    return Patch(node={"storage_address": False})


FAULTS: Mapping[str, tuple[type[FaultParams], Callable[[Healthy, Any], Patch]]] = {
    "address-missing": (NoParams, address_missing),
    "default-route-ipv6-missing": (NoParams, default_route_ipv6_missing),
    "default-route-missing": (NoParams, default_route_missing),
    "ib-port-down": (OneRdmaPort, ib_port_down),
    "ib-rate-degraded": (DegradedPort, ib_rate_degraded),
    "link-flapping": (FlappingPort, link_flapping),
    "link-outage": (LostLink, link_outage),
    "mtu-wrong": (WrongMtu, mtu_wrong),
    "nic-down": (OneInterface, nic_down),
}
