"""The RDMA devices and ports that several checks judge."""

from collections.abc import Iterator

from nodevet.checking.expected import Words, matches
from nodevet.evidence.document import Evidence
from nodevet.evidence.infiniband import Infiniband, RdmaDevice, RdmaPort
from nodevet.model import Finding, Subject, unknown

NOT_LOADED = "the kernel has no RDMA device: `lsmod | grep mlx5_ib` and `dmesg | grep mlx5` say why"

NO_PORT = "ports: no port is listed, but each RDMA device has one"

DEVICES_READ = (
    "infiniband.devices[].name",
    "infiniband.devices[].physfn",
    "infiniband.found[]",
)
"""The fields that `each_device` reads: part of `reads` of a check that uses it."""


def device_subject(device: RdmaDevice) -> Subject:
    return Subject(kind="rdma", id=device.name)


def port_name(device: RdmaDevice, port: RdmaPort) -> str:
    """The port's name as in NCCL_IB_HCA: `mlx5_0:1`."""
    return f"{device.name}:{port.number}"


def port_subject(device: RdmaDevice, port: RdmaPort) -> Subject:
    return Subject(kind="port", id=port_name(device, port))


def each_device(evidence: Evidence, ignore: Words = ()) -> Iterator[RdmaDevice | Finding]:
    """Every RDMA device of this machine; an unknown finding in place of a device that was not read.

    Devices that `ignore` names are left out. So are virtual functions (SR-IOV) if their NIC is this
    machine's, too: they are for its guests. A guest does not see the physical NIC.
    """
    section = evidence[Infiniband]
    if section.data is None:
        yield unknown(why=f"infiniband: {section.why}")
        return
    if section.data.devices is None or section.data.found is None:
        field = "devices" if section.data.devices is None else "found"
        yield unknown(why=f"{field}: {section.data.why(field)}")
        return
    read_names = {device.name for device in section.data.devices}
    missing = sorted(
        name for name in set(section.data.found) - read_names if not matches(name, ignore)
    )
    if missing:
        yield unknown(why=f"RDMA devices that were not read: {', '.join(missing[:8])}")
    for device in section.data.devices:
        if matches(device.name, ignore):
            continue
        if device.physfn is None:
            why = f"physfn: {device.why('physfn')}"
            yield unknown(device_subject(device), why=why)
        elif not device.physfn:
            yield device


def each_port(
    evidence: Evidence, ignore: Words = ()
) -> Iterator[tuple[RdmaDevice, RdmaPort] | Finding]:
    """Every port of these devices, without the ports that `ignore` names."""
    for device in each_device(evidence, ignore):
        if isinstance(device, Finding):
            yield device
        elif device.ports is None:
            yield unknown(device_subject(device), why=f"ports: {device.why('ports')}")
        elif not device.ports:
            yield unknown(device_subject(device), why=NO_PORT)
        else:
            for port in device.ports:
                if not matches(port_name(device, port), ignore):
                    yield device, port
