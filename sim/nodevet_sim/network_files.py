"""A machine's network interfaces and RDMA devices as kernel files and links. Pure.

What a NIC is follows from its PCI class: an InfiniBand one (020700) has an RDMA port and IPoIB
on it, a Mellanox Ethernet one RoCE. Values are those of a ConnectX-7 at NDR, of which a node with
eight H100 was read. Documentation/ABI/testing/sysfs-class-net and stable/sysfs-class-infiniband
in the kernel tree. The interfaces that a node really has (eth0, lo) are not here.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from nodevet_sim.cpu_files import Files, Links, lines
from nodevet_sim.machine import SimulatedFunction, SimulatedMachine
from nodevet_sim.pci_files import placed

MELLANOX = "15b3"
INFINIBAND, NETWORK = "0207", "02"
NO_GID = ":".join(["0000"] * 8)
GIDS, PKEYS = 8, 8  # entries of a port's tables, of 256 and 128
UP, DOWN = "0x1003", "0x1002"  # flags: IFF_UP, IFF_BROADCAST, IFF_MULTICAST
STATISTICS = {
    "rx_bytes": 86119, "rx_packets": 1094, "tx_bytes": 52112, "tx_packets": 702, "multicast": 391,
}  # fmt: skip
NO_ERRORS = (
    "collisions",
    "rx_compressed",
    "rx_crc_errors",
    "rx_dropped",
    "rx_errors",
    "rx_fifo_errors",
    "rx_frame_errors",
    "rx_length_errors",
    "rx_missed_errors",
    "rx_nohandler",
    "rx_over_errors",
    "tx_aborted_errors",
    "tx_carrier_errors",
    "tx_compressed",
    "tx_dropped",
    "tx_errors",
    "tx_fifo_errors",
    "tx_heartbeat_errors",
    "tx_window_errors",
)
COUNTERS = {
    "port_rcv_data": 19133040, "port_rcv_packets": 261222, "port_xmit_data": 18933504,
    "port_xmit_packets": 260899, "unicast_rcv_packets": 260102, "unicast_xmit_packets": 260155,
    "multicast_rcv_packets": 1120, "multicast_xmit_packets": 744, "link_downed": 1,
}  # fmt: skip
NO_PORT_ERRORS = (
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_error_recovery",
    "local_link_integrity_errors",
    "port_rcv_constraint_errors",
    "port_rcv_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_discards",
    "port_xmit_wait",
    "symbol_error",
)
HW_COUNTERS = (
    "duplicate_request",
    "implied_nak_seq_err",
    "local_ack_timeout_err",
    "out_of_buffer",
    "out_of_sequence",
    "packet_seq_err",
    "req_cqe_error",
    "req_cqe_flush_error",
    "resp_cqe_error",
    "resp_cqe_flush_error",
    "rnr_nak_retry_err",
    "roce_adp_retrans",
    "roce_slow_restart",
)


class Nic(NamedTuple):
    """A NIC of the machine, its place below /sys, and what the kernel calls it."""

    function: SimulatedFunction
    place: str
    netdev: str
    rdma: str | None  # mlx5_0; None of a NIC without RDMA
    guid: str  # as sysfs prints it

    @property
    def infiniband(self) -> bool:
        return self.function.class_code.startswith(INFINIBAND)


def nics(machine: SimulatedMachine) -> Iterator[Nic]:
    """Those that a driver is bound to, by their PCI address."""
    count = 0
    for address, (place, function) in sorted(placed(machine).items()):
        if not function.class_code.startswith(NETWORK) or function.driver is None:
            continue
        rdma = f"mlx5_{count}" if function.id.startswith(MELLANOX) else None
        count += rdma is not None
        yield Nic(function, place, netdev(function), rdma, guid(machine.hostname, address))


def netdev(function: SimulatedFunction) -> str:
    """The name by its PCI path, as systemd.net-naming-scheme(7) has it: ibp26s0, enp1s0."""
    domain, bus, rest = function.address.split(":")
    device, _, number = rest.partition(".")
    kind = "ib" if function.class_code.startswith(INFINIBAND) else "en"
    parts = [f"P{int(domain, 16)}"] if int(domain, 16) else []
    parts += [f"p{int(bus, 16)}s{int(device, 16)}"]
    parts += [f"f{number}"] if number != "0" else []
    return kind + "".join(parts)


def guid(hostname: str, address: str) -> str:
    digits = "a088c203" + hashlib.sha256(f"{hostname}/{address}".encode()).hexdigest()[:8]
    return ":".join(digits[at : at + 4] for at in range(0, 16, 4))


def files(machine: SimulatedMachine) -> Files:
    for index, nic in enumerate(nics(machine)):
        yield from _netdev(nic, index)
        if nic.rdma is not None:
            yield from _device(nic)
            yield from _port(nic, index)


def _netdev(nic: Nic, index: int) -> Files:
    octets = nic.guid.replace(":", "")
    mac = ":".join(octets[at : at + 2] for at in (0, 2, 4, 10, 12, 14))
    hardware = f"00:00:10:29:fe:80:00:00:00:00:00:00:{_pairs(octets)}" if nic.infiniband else mac
    folder = f"sys/{nic.place}/net/{nic.netdev}"
    values = {
        "address": hardware,
        "carrier": 1,
        "carrier_changes": 3,
        "carrier_down_count": 1,
        "carrier_up_count": 2,
        "dev_id": "0x0",
        "dev_port": 0,
        "dormant": 0,
        "duplex": "full",
        "flags": UP,
        "ifindex": index + 10,
        "mtu": 4092 if nic.infiniband else 1500,
        "operstate": "up",
        "speed": 400000 if nic.infiniband else 100000,
        "tx_queue_len": 1000,
        "type": 32 if nic.infiniband else 1,
    }
    yield from lines(folder, values)
    yield f"{folder}/uevent", f"INTERFACE={nic.netdev}\nIFINDEX={index + 10}\n"
    yield from lines(f"{folder}/statistics", {**dict.fromkeys(NO_ERRORS, 0), **STATISTICS})


def _pairs(digits: str) -> str:
    return ":".join(digits[at : at + 2] for at in range(0, len(digits), 2))


def _device(nic: Nic) -> Files:
    values = {
        "board_id": "MT_0000000838",
        "fw_ver": "28.41.1000",
        "hca_type": "MT4129",
        "hw_rev": "0x0",
        "node_desc": nic.rdma,
        "node_guid": nic.guid,
        "node_type": "1: CA",
        "sys_image_guid": nic.guid,
    }
    yield from lines(f"sys/{nic.place}/infiniband/{nic.rdma}", values)


def _port(nic: Nic, index: int) -> Files:
    folder = f"sys/{nic.place}/infiniband/{nic.rdma}/ports/1"
    layer = "InfiniBand" if nic.infiniband else "Ethernet"
    values = {
        "cap_mask": "0xa751e848",
        "lid": f"0x{index + 100:x}" if nic.infiniband else "0x0",
        "lid_mask_count": 0,
        "link_layer": layer,
        "phys_state": "5: LinkUp",
        "rate": "400 Gb/sec (4X NDR)" if nic.infiniband else "100 Gb/sec (4X EDR)",
        "sm_lid": "0x1" if nic.infiniband else "0x0",
        "sm_sl": 0,
        "state": "4: ACTIVE",
    }
    yield from lines(folder, values)
    yield from lines(f"{folder}/counters", {**dict.fromkeys(NO_PORT_ERRORS, 0), **COUNTERS})
    yield from lines(f"{folder}/hw_counters", {**dict.fromkeys(HW_COUNTERS, 0), "lifespan": 10})
    known = _gids(nic)
    for entry in range(GIDS):
        gid, kind = known.get(entry, (NO_GID, ""))
        yield f"{folder}/gids/{entry}", f"{gid}\n"
        if kind:
            yield f"{folder}/gid_attrs/types/{entry}", f"{kind}\n"
            yield f"{folder}/gid_attrs/ndevs/{entry}", f"{nic.netdev}\n"
    if nic.infiniband:
        yield from lines(
            f"{folder}/pkeys", {str(at): "0x0000" if at else "0xffff" for at in range(PKEYS)}
        )


def _gids(nic: Nic) -> Mapping[int, tuple[str, str]]:
    """Index -> GID and type: those of the link, and of RoCE those of an IPv4 address too."""
    own = f"fe80:0000:0000:0000:{nic.guid}"
    if nic.infiniband:
        return {0: (own, "")}
    address = f"0000:0000:0000:0000:0000:ffff:0a0a:{nic.guid[-4:]}"
    kinds = ("IB/RoCE v1", "RoCE v2")
    return dict(enumerate((gid, kind) for gid in (own, address) for kind in kinds))


def links(machine: SimulatedMachine) -> Links:
    for nic in nics(machine):
        below = f"{nic.place}/net/{nic.netdev}"
        yield f"sys/class/net/{nic.netdev}", f"../../{below}"
        yield f"sys/{below}/device", f"../../../{nic.function.address}"
        if nic.rdma is not None:
            below = f"{nic.place}/infiniband/{nic.rdma}"
            yield f"sys/class/infiniband/{nic.rdma}", f"../../{below}"
            yield f"sys/{below}/device", f"../../../{nic.function.address}"
