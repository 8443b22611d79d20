"""Section infiniband: all RDMA devices of the kernel's class, including RoCE and EFA."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Real, Text, at_most
from nodevet.evidence.core import Record, SectionRecord, clear_unknown_words
from nodevet.evidence.counters import Counter

RDMA_PORTS = at_most(256)  # of a device: a port's number is a byte
GIDS = at_most(1024)  # of a port; the table of mlx5 has 256
PKEYS = at_most(1024)  # of a port; the table of mlx5 has 128

UNSPECIFIED = "Unknown"
"""What sysfs calls IB_LINK_LAYER_UNSPECIFIED, the link layer of EFA."""


class Gid(Record, frozen=True, kw_only=True):
    """An entry of a port's GID table that is in use. ports/<n>/gids/<index>."""

    index: int
    gid: Text  # fe80:0000:0000:0000:a088:c203:00aa:bbcc
    type: Text | None = None  # RoCE v2, IB/RoCE v1; of Ethernet ports. gid_attrs/types
    netdev: Text | None = None  # of Ethernet ports. gid_attrs/ndevs


class RdmaPort(Record, frozen=True, kw_only=True):
    """/sys/class/infiniband/<device>/ports/<number>/*."""

    number: int
    link_layer: Text | None = None  # InfiniBand; Ethernet: RoCE; Unspecified: EFA
    state: Text | None = None  # ACTIVE, INIT, DOWN, ARMED
    phys_state: Text | None = None  # LinkUp, Polling, Disabled
    rate_gbps: Real | None = None  # 400 of "400 Gb/sec (4X NDR)"
    width: int | None = None  # 4
    speed: Text | None = None  # NDR; "" if the kernel gives it no name
    lid: int | None = None
    sm_lid: int | None = None  # 0: no subnet manager has been here
    netdev: Text | None = None  # the network interface of the port; "" for none
    # counters/* and hw_counters/*
    counters: Annotated[tuple[Counter, ...], bounds.COUNTERS] | None = None
    gids: Annotated[tuple[Gid, ...], GIDS] | None = None
    # four hex digits: ffff; the first is 8 for a full member
    pkeys: Annotated[tuple[Text, ...], PKEYS] | None = None

    def __post_init__(self) -> None:
        clear_unknown_words(self, "state", "phys_state")
        if self.link_layer != UNSPECIFIED:
            clear_unknown_words(self, "link_layer")


class RdmaDevice(Record, frozen=True, kw_only=True):
    """/sys/class/infiniband/<name>/*."""

    name: Text
    driver: Text | None = None  # mlx5_core, efa, irdma
    bus_id: Text | None = None  # of the PCI function; "" of one that is on no PCI bus
    physfn: Text | None = None  # of an SR-IOV virtual function the physical one; "" of any other
    numa_node: int | None = None
    node_guid: Text | None = None  # a088:c203:00aa:bbcc
    fw_ver: Text | None = None
    board_id: Text | None = None  # the PSID: MT_0000000838
    hca_type: Text | None = None  # MT4129
    netdevs: Annotated[tuple[Text, ...], bounds.INTERFACES] | None = None  # device/net
    ports: Annotated[tuple[RdmaPort, ...], RDMA_PORTS] | None = None


class Infiniband(SectionRecord, frozen=True, kw_only=True):
    """Every RDMA device with its ports; `absent` if the tree has no /sys/class at all."""

    unique = (
        "devices[].name",
        "devices[].ports[].number",
        "devices[].ports[].counters[].name",
        "devices[].ports[].gids[].index",
    )
    plural = "RDMA devices"

    devices: Annotated[tuple[RdmaDevice, ...], bounds.RDMA_DEVICES] | None = None
    found: Annotated[tuple[Text, ...], bounds.RDMA_DEVICES] | None = None  # names of all of them
