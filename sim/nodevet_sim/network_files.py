"""A machine's network interfaces and RDMA devices as kernel files and links. Pure.

What a NIC is follows from its PCI class: an InfiniBand one (020700) has an RDMA port and IPoIB on
it, a Mellanox Ethernet one RoCE; an EFA has an RDMA device and no interface. The values come from a
ConnectX-7 at NDR in a node with eight H100. Documentation/ABI/testing/sysfs-class-net and
stable/sysfs-class-infiniband in the kernel tree, drivers/infiniband/hw/efa/efa_verbs.c. The
interfaces that a node really has (eth0, lo) are not here.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from nodevet_sim.cpu_files import Files, Links, lines
from nodevet_sim.description import LogLine
from nodevet_sim.machine import SimulatedFunction, SimulatedMachine
from nodevet_sim.pci_files import placed

MELLANOX = "15b3"
INFINIBAND, NETWORK = "0207", "02"
EFA = "efa"  # the driver
LINKS = "/usr/lib/nodevet-sim/mlxlink"  # where a node's mlxlink finds what it says of each
BOOTED_S = 2.0  # after boot: when links are up
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
EFA_COUNTERS = {
    "tx_bytes": 911204, "tx_pkts": 1422, "rx_bytes": 899120, "rx_pkts": 1407, "rx_drops": 0,
    "send_bytes": 911204, "send_wrs": 702, "recv_bytes": 899120, "recv_wrs": 698,
    "rdma_read_bytes": 0, "rdma_read_wr_err": 0, "retrans_bytes": 0, "retrans_pkts": 0,
}  # fmt: skip


class Nic(NamedTuple):
    """A NIC of the machine, its place below /sys, and what the kernel calls it."""

    function: SimulatedFunction
    place: str
    netdev: str | None  # None of an EFA
    rdma: str | None  # mlx5_0, rdmap16s27; None of a NIC without RDMA
    guid: str  # as sysfs prints it

    @property
    def infiniband(self) -> bool:
        return self.function.class_code.startswith(INFINIBAND)

    @property
    def efa(self) -> bool:
        return self.function.driver == EFA


def nics(machine: SimulatedMachine) -> Iterator[Nic]:
    """Those that a driver is bound to, by their PCI address."""
    count = 0
    for address, (place, function) in sorted(placed(machine).items()):
        if not function.class_code.startswith(NETWORK) or function.driver is None:
            continue
        name, own = guid(machine.hostname, address), by_path(address)
        if function.driver == EFA:
            yield Nic(function, place, None, f"rdma{own}", name)
            continue
        rdma = f"mlx5_{count}" if function.id.startswith(MELLANOX) else None
        count += rdma is not None
        kind = "ib" if function.class_code.startswith(INFINIBAND) else "en"
        yield Nic(function, place, kind + own, rdma, name)


def logged(machine: SimulatedMachine) -> Iterator[LogLine]:
    """What mlx5 logs of each link of Ethernet when the node boots: en_main.c."""
    for nic in nics(machine):
        if nic.netdev and nic.rdma and not nic.infiniband:
            yield link_line(nic.function.address, nic.netdev, "up", BOOTED_S)


def link_line(address: str, interface: str, state: str, seconds: float) -> LogLine:
    return LogLine(f"mlx5_core {address} {interface}: Link {state}", seconds, 6)


def by_path(address: str) -> str:
    """A name by the PCI path, behind its kind: of systemd.net-naming-scheme(7), ibp26s0, enp1s0,
    and of rdma-core's rdma_rename, rdmap16s27.

    >>> by_path("0000:1a:00.0"), by_path("0001:03:00.1")
    ('p26s0', 'P1p3s0f1')
    """
    domain, bus, rest = address.split(":")
    device, _, number = rest.partition(".")
    parts = [f"P{int(domain, 16)}"] if int(domain, 16) else []
    parts += [f"p{int(bus, 16)}s{int(device, 16)}"]
    parts += [f"f{number}"] if number != "0" else []
    return "".join(parts)


def guid(hostname: str, address: str) -> str:
    digits = "a088c203" + hashlib.sha256(f"{hostname}/{address}".encode()).hexdigest()[:8]
    return ":".join(digits[at : at + 4] for at in range(0, 16, 4))


def files(machine: SimulatedMachine) -> Files:
    for index, nic in enumerate(nics(machine)):
        if nic.netdev is not None:
            yield from _netdev(nic, index)
        if nic.efa:
            yield from _efa(nic)
        elif nic.rdma is not None:
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


def _efa(nic: Nic) -> Files:
    """A device of EFA, which is neither InfiniBand nor Ethernet."""
    folder = f"sys/{nic.place}/infiniband/{nic.rdma}"
    device = {
        "fw_ver": "0.0.0.0",  # noqa: S104 - no address
        "hw_rev": "0xefa2",
        "node_desc": nic.rdma,
        "node_guid": nic.guid,
        "node_type": "7: unspecified",
        "sys_image_guid": nic.guid,
    }
    port = {
        "cap_mask": "0x00000000",
        "lid": "0x0",
        "lid_mask_count": 0,
        "link_layer": "Unknown",
        "phys_state": "5: LinkUp",
        "rate": "100 Gb/sec (4X EDR)",
        "sm_lid": "0x0",
        "sm_sl": 0,
        "state": "4: ACTIVE",
    }
    yield from lines(folder, device)
    yield from lines(f"{folder}/ports/1", port)
    yield from lines(f"{folder}/ports/1/hw_counters", {**EFA_COUNTERS, "lifespan": 10})
    yield f"{folder}/ports/1/gids/0", f"fe80:0000:0000:0000:{nic.guid}\n"
    yield f"{folder}/ports/1/pkeys/0", "0xffff\n"


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
    """Index -> GID and type: the GIDs of the link, and for RoCE also those of an IPv4 address."""
    own = f"fe80:0000:0000:0000:{nic.guid}"
    if nic.infiniband:
        return {0: (own, "")}
    address = f"0000:0000:0000:0000:0000:ffff:0a0a:{nic.guid[-4:]}"
    kinds = ("IB/RoCE v1", "RoCE v2")
    return dict(enumerate((gid, kind) for gid in (own, address) for kind in kinds))


def links(machine: SimulatedMachine) -> Links:
    for nic in nics(machine):
        if nic.netdev is not None:
            below = f"{nic.place}/net/{nic.netdev}"
            yield f"sys/class/net/{nic.netdev}", f"../../{below}"
            yield f"sys/{below}/device", f"../../../{nic.function.address}"
        if nic.rdma is not None:
            below = f"{nic.place}/infiniband/{nic.rdma}"
            yield f"sys/class/infiniband/{nic.rdma}", f"../../{below}"
            yield f"sys/{below}/device", f"../../../{nic.function.address}"


def links_told(machine: SimulatedMachine) -> Files:
    """What mlxlink reports about each Mellanox NIC."""
    for nic in nics(machine):
        if nic.rdma is not None and not nic.efa:
            speed = "IB-NDR" if nic.infiniband else "100G"
            yield f"{LINKS}/{nic.rdma}.json", link_told(speed=speed)


def link_told(
    *, state: str = "Active", speed: str, effective: str = "15E-255", raw: str = "6E-10"
) -> str:
    """A link as `mlxlink -d DEVICE -c --json` of MFT 4.30 prints it; a link that is down has no
    rates. 15E-255 is none."""
    up = state == "Active"
    rate = float(effective)
    document = {
        "Operational Info": {
            "State": state,
            "Physical state": "LinkUp" if up else "N/A",
            "Speed": speed if up else "N/A",
            "Width": "4x" if up else "N/A",
            "FEC": "Interleaved_Standard_RS_FEC_PLR - (544,514)" if up else "N/A",
        },
        "Physical Counters and BER Info": {
            "Time Since Last Clear [Min]": "25074.8",
            "Effective Physical Errors": str(round(rate * 1e15)) if rate > 1e-200 else "0",
            "Effective Physical BER": effective if up else "N/A",
            "Raw Physical Errors Per Lane": {"values": ["0", "3", "0", "0"]},
            "Raw Physical BER": raw if up else "N/A",
            "Link Down Counter": "1",
            "Link Error Recovery Counter": "0",
        },
    }
    status = {"code": 0, "message": "Success"}
    return json.dumps({"result": {"output": document}, "status": status}, indent=4) + "\n"
