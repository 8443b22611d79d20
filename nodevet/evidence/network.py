"""Section network."""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Text
from nodevet.evidence.core import Record, SectionRecord
from nodevet.evidence.counters import Counter


class Rings(Record, frozen=True, kw_only=True):
    """How many descriptors each receive and each transmit ring has, and can have; 0 and 0 without
    such rings. ETHTOOL_GRINGPARAM, as `ethtool -g` prints them."""

    rx: int | None = None
    rx_max: int | None = None
    tx: int | None = None
    tx_max: int | None = None


class Interface(Record, frozen=True, kw_only=True):
    """One network interface. /sys/class/net/<name>/*."""

    name: Text
    # physical; virtual_function, of a NIC that this machine shares out, and representor, which is
    # its near end; ipoib_child, another partition of a port; what the kernel calls a virtual
    # interface: bond, bridge, vlan; virtual if it calls it nothing
    kind: Text | None = None
    type: int | None = None  # ARPHRD_*: 1 Ethernet, 32 InfiniBand, 772 loopback
    address: Text | None = None  # MAC
    admin_up: bool | None = None  # IFF_UP of `flags`: it was turned on
    operstate: Text | None = None  # RFC 2863: up, down, lowerlayerdown, dormant, unknown
    carrier: bool | None = None  # not told of one that is turned off
    speed_mbps: int | None = None
    duplex: Text | None = None  # full, half, unknown
    mtu: int | None = None
    rings: Rings | None = None  # not of a bond, a bridge or a VLAN: these have none
    driver: Text | None = None  # bound kernel driver; "" of a virtual one
    bus_id: Text | None = None  # of the PCI function; "" of one that is on no PCI bus
    numa_node: int | None = None  # -1: the firmware does not say
    master: Text | None = None  # the bond or bridge that it belongs to; "" for none
    # what it is made of: a bond's interfaces, a bridge's ports
    lower: Annotated[tuple[Text, ...], bounds.INTERFACES] | None = None
    # statistics/*, carrier_changes, carrier_up_count, carrier_down_count
    counters: Annotated[tuple[Counter, ...], bounds.COUNTERS] | None = None


class Network(SectionRecord, frozen=True, kw_only=True, dict=True):
    """Every physical interface, bonds, bridges and VLANs, and those that a baseline names.

    Other virtual ones, of which a host of containers has hundreds, are counted."""

    unique = ("interfaces[].name", "interfaces[].counters[].name")
    plural = "network interfaces"

    interfaces: Annotated[tuple[Interface, ...], bounds.INTERFACES] | None = None
    found: Annotated[tuple[Text, ...], bounds.INTERFACES] | None = None  # names of all of them
    others: int | None = None  # virtual interfaces that were not read

    @cached_property
    def by_name(self) -> Mapping[str, Interface]:
        return {interface.name: interface for interface in self.interfaces or ()}


def is_up(interface: Interface) -> bool | None:
    """Whether an interface carries traffic; None if unread."""
    if interface.operstate == "unknown":
        return interface.carrier
    return None if interface.operstate is None else interface.operstate == "up"
