"""Section link_managers."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import FileText, Text, at_most
from nodevet.evidence.core import Record, SectionRecord

OTHERS = at_most(64)  # drop-ins of one file
MANAGERS = at_most(16)  # of one interface; there are four kinds


class LinkManager(Record, frozen=True, kw_only=True):
    """A program that configures an interface, and what it reads about it at boot."""

    manager: Text  # NetworkManager, netplan, systemd-networkd, ifupdown
    path: Text = ""  # the file in force; of netplan the one that it generated; "" for none
    name: Text = ""  # of netplan the id of the definition, of NetworkManager a UUID
    definition: Text = ""  # of netplan: ethernets, bonds, vlans
    shared_by: int = 1  # interfaces that this file configures
    mtu: Text | None = None  # as all its files together configure it; "" if none does
    ring_rx: Text = ""  # hardware-dma-ring-rx of ifupdown's stanza
    ring_tx: Text = ""
    # nodevet's own file for this interface, "" if there is none; of netplan and systemd-networkd
    own: FileText | None = None
    # the profile of NetworkManager, unless it may hold a secret
    text: FileText | None = None
    mode: int | None = None
    owner: int | None = None  # uid
    group: int | None = None  # gid


class LinkFile(Record, frozen=True, kw_only=True):
    """The .link file that systemd-udevd applies to an interface, systemd.link(5)."""

    path: Text = ""  # ID_NET_LINK_FILE; "" if udev applies none
    shared_by: int = 0  # interfaces to which udev applies it
    id_path: Text = ""  # ID_PATH of udev, such as pci-0000:3b:00.0
    same_id_path: int = 0  # interfaces with this ID_PATH
    text: FileText = ""
    others: Annotated[tuple[Text, ...], OTHERS] = ()  # drop-ins that are not nodevet's
    ring_rx: Text = ""  # RxBufferSize of it and its drop-ins
    ring_tx: Text = ""
    own: FileText = ""  # nodevet's drop-in of it, or it itself if it is nodevet's


class ManagedLink(Record, frozen=True, kw_only=True):
    """An interface, and the programs that configure it now."""

    name: Text
    kind: Text | None = None  # as `ip -d link` has it: bond, vlan, veth, wireguard; "" for none
    max_mtu: int | None = None  # 0: the driver sets no limit
    # lower_* and upper_* of /sys/class/net/<name>: what it is made of, and what is made of it
    lower: Annotated[tuple[Text, ...], bounds.INTERFACES] | None = None
    upper: Annotated[tuple[Text, ...], bounds.INTERFACES] | None = None
    managers: Annotated[tuple[LinkManager, ...], MANAGERS] | None = None
    link_file: LinkFile | None = None


class LinkManagers(SectionRecord, frozen=True, kw_only=True):
    """Who configures the interfaces of section network, and over which of them nodevet comes.

    Read only if a plan needs it: ip(8), nmcli(1), netplan(8), /run/systemd/netif,
    /run/udev/data, /etc/network/interfaces."""

    unique = ("links[].name", "links[].managers[].manager")

    # the interfaces of the default routes and of the SSH session that reads this
    carriers: Annotated[tuple[Text, ...], bounds.INTERFACES] | None = None
    links: Annotated[tuple[ManagedLink, ...], bounds.INTERFACES] | None = None
