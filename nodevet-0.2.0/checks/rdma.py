"""RDMA devices have the expected names and network interfaces; RoCE devices have usable GIDs.

**Why it matters.** Jobs name devices and GID indexes (NCCL_IB_HCA, NCCL_IB_GID_INDEX). After a
kernel or udev update mlx5_3 may be another port than before. A RoCE device whose interface is down
or has no address has no usable GID, and a job hangs or falls back to TCP.

**Read from** `/sys/class/infiniband/*/{device/net,ports/*/gids,ports/*/gid_attrs}` and the state
of the interfaces in /sys/class/net.

**Verdicts.** `devices` sets the interface of each device, `names` the required devices. `count`
counts all devices except those in `ignore` and virtual functions that this host keeps for its
guests. Each Ethernet port must have a network interface that is up, and a GID of `gid_type` in use;
with `gid_index` the GID at that index must have this type. Each address of the interface gives a
GID of type RoCE v2; without an address the interface has only its link-local GID (fe80). InfiniBand
ports and EFA need neither: a node that has only these is not applicable unless the baseline names
or counts devices.

**To fix it** names: `rdma link` and the udev rule rdma-persistent-naming of rdma-core. No GID: `ip
addr show dev NAME`; give the interface its address. `show_gids` lists the GIDs.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from nodevet.checking.aspects import (
    Aspect,
    aspect_findings,
    aspect_if,
    unknown_aspect,
    unread_aspect,
)
from nodevet.checking.expected import Words
from nodevet.checking.named import reads_of
from nodevet.checking.rdma import DEVICES_READ, NO_PORT, NOT_LOADED, device_subject, each_device
from nodevet.evidence.document import Evidence
from nodevet.evidence.infiniband import RdmaDevice, RdmaPort
from nodevet.evidence.network import Network, is_up
from nodevet.model import (
    NODE,
    Area,
    Check,
    CheckParams,
    Finding,
    Subject,
    Value,
    Verdict,
    fail,
    not_applicable,
    ok,
    unknown,
)

NAMES = (
    "`rdma link` lists the devices; with rdma-core's udev rule rdma-persistent-naming names "
    "follow the PCI slot, otherwise the order in which drivers load"
)
NO_GID = "`ip addr show` of the interface: each address gives a GID; `show_gids` lists them"
UP = "`ip link set dev NAME up`; if it has no carrier, check cable, transceiver and switch port"

Number = Annotated[int, Meta(ge=0, le=4096)]
Name = Annotated[str, Meta(min_length=1, max_length=64)]


class Params(CheckParams):
    """`rdma: 9` or `rdma: {count: 8, gid_type: RoCE v2, gid_index: 3}` or
    `rdma: {devices: {mlx5_0: ens1f0np0, mlx5_1: ens2f0np0}, ignore: ["mlx5_bond_*"]}`"""

    bare: ClassVar[str] = "count"

    count: Number | None = None
    """The number of RDMA devices."""
    names: tuple[Name, ...] = ()
    """Devices that must be present."""
    devices: Mapping[Name, Name] = {}
    """The network interface of each device."""
    ignore: Words = ()
    """Devices to skip; `*` stands for any text."""
    gid_type: Literal["RoCE v2", "IB/RoCE v1"] = "RoCE v2"
    """The type of GID that each Ethernet port must have."""
    gid_index: Annotated[int, Meta(ge=0, le=1023)] | None = None
    """The index of this GID in the port's table."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    findings = list(judge_devices(evidence, params))
    yield from findings
    if not findings:
        yield not_applicable(
            why="the node has no RDMA device with an Ethernet port, and the baseline expects none"
        )


def judge_devices(evidence: Evidence, params: Params) -> Iterator[Finding]:
    entries = list(each_device(evidence, params.ignore))
    devices = {device.name: device for device in entries if isinstance(device, RdmaDevice)}
    unjudged = [finding for finding in entries if isinstance(finding, Finding)]
    yield from unjudged
    if any(finding.subject == NODE for finding in unjudged) and not devices:
        return
    if params.count is not None:
        yield count(len(devices), bool(unjudged), params.count)
    for name in dict.fromkeys((*params.names, *params.devices)):
        if name not in devices:
            yield missing_device(name, bool(unjudged))
    for device in devices.values():
        yield from aspect_findings(device_subject(device), aspects(evidence, device, params), {})


def count(present: int, unsure: bool, required: int) -> Finding:
    expected, actual = {"RDMA devices": required}, {"RDMA devices": present}
    if unsure and present <= required:
        return unknown(expected=expected, why=f"{present} were read; others were not")
    if present != required:
        return fail(expected=expected, actual=actual, advice=NAMES if present else NOT_LOADED)
    return ok(expected=expected, actual=actual)


def missing_device(name: str, unsure: bool) -> Finding:
    subject = Subject(kind="rdma", id=name)
    if unsure:
        return unknown(subject, why="it was not read, or does not exist")
    return fail(subject, expected="present", actual="missing", advice=NAMES)


def aspects(evidence: Evidence, device: RdmaDevice, params: Params) -> Iterator[Aspect]:
    interface = params.devices.get(device.name)
    if device.name in params.names or interface is not None:
        yield aspect_if("device", True, expected="present", actual="present")
    if device.ports is None:
        yield unread_aspect(device, "ports")
        return
    if not device.ports:
        yield unknown_aspect("ports", NO_PORT)
        return
    if interface is not None:
        yield interface_aspect(device, device.ports, interface)
    for port in device.ports:
        name = f"port {port.number} " if len(device.ports) > 1 else ""
        if port.link_layer is None:
            yield unread_aspect(port, "link_layer")
        elif port.link_layer == "Ethernet":
            yield netdev(evidence, port, name)
            yield gid(port, params, name)


def interface_aspect(device: RdmaDevice, ports: tuple[RdmaPort, ...], interface: str) -> Aspect:
    """Whether any port of a device has this interface."""
    names = sorted({port.netdev for port in ports if port.netdev})
    if interface not in names:
        for port in ports:
            if port.netdev is None:
                return unread_aspect(port, "netdev")
    actual = ", ".join(names) or "none"
    return aspect_if(
        "interface", interface in names, expected=interface, actual=actual, advice=NAMES
    )


def netdev(evidence: Evidence, port: RdmaPort, name: str) -> Aspect:
    """Whether an Ethernet port has an interface that is up."""
    if port.netdev is None:
        return unread_aspect(port, "netdev")
    if not port.netdev:
        return aspect_if(f"{name}interface state", False, expected="up", actual="no interface",
                   advice=NAMES)  # fmt: skip
    section = evidence[Network]
    interface = section.data.by_name.get(port.netdev) if section.data else None
    if interface is None or interface.operstate is None:
        why = f"interface {port.netdev} was not read"
        if section.data is None:
            why = f"network: {section.why}"
        elif interface is not None:
            why = f"operstate: {interface.why('operstate')}"
        return Aspect(Verdict.UNKNOWN, f"{name}interface state", why=why)
    up = is_up(interface)
    if up is None:
        return Aspect(
            Verdict.UNKNOWN,
            f"{name}interface state",
            why=f"carrier of {port.netdev}: {interface.why('carrier')}",
        )
    actual = "no carrier" if interface.operstate == "unknown" else interface.operstate
    return aspect_if(
        f"{name}interface state",
        up,
        expected="up",
        actual="up" if up else actual,
        advice=UP,
    )


def gid(port: RdmaPort, params: Params, name: str) -> Aspect:
    """Whether a port has a GID of the type, at the expected index if there is one."""
    label = f"{name}GID" if params.gid_index is None else f"{name}GID {params.gid_index}"
    if port.gids is None:
        return unread_aspect(port, "gids")
    candidates = [
        candidate for candidate in port.gids if params.gid_index in (None, candidate.index)
    ]
    if any(candidate.type == params.gid_type for candidate in candidates):
        return aspect_if(label, True, expected=params.gid_type, actual=params.gid_type)
    for candidate in candidates:
        if candidate.type is None:
            return unread_aspect(candidate, "type")
    actual = ", ".join(dict.fromkeys(candidate.type or "" for candidate in candidates)) or "none"
    return aspect_if(label, False, expected=params.gid_type, actual=actual, advice=NO_GID)


def learn(evidence: Evidence) -> Mapping[str, Value] | None:
    devices = [device for device in each_device(evidence) if isinstance(device, RdmaDevice)]
    if not devices:
        return None
    pairs = {
        device.name: port.netdev
        for device in devices
        for port in device.ports or ()
        if port.netdev and port.link_layer == "Ethernet"
    }
    return {"count": len(devices), **({"devices": pairs} if pairs else {})}


CHECK = Check(
    params=Params,
    area=Area.NETWORK,
    reads=(
        *DEVICES_READ,
        *reads_of("infiniband.devices[].ports[].gids[]", "index", "type"),
        *reads_of("infiniband.devices[].ports[]", "link_layer", "netdev"),
        *reads_of("network.interfaces[]", "carrier", "name", "operstate"),
    ),
    judge=judge,
    unasked="for nodes that use all their RDMA devices",
    learn=learn,
)
