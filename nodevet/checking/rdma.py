"""The RDMA devices and ports that several checks judge."""

from collections.abc import Iterator

from nodevet.checking.expected import Words, matches
from nodevet.evidence.document import Evidence
from nodevet.evidence.infiniband import Infiniband, RdmaDevice, RdmaPort
from nodevet.model import Finding, Subject, unknown

NOT_LOADED = "the kernel has no RDMA device: `lsmod | grep mlx5_ib` and `dmesg | grep mlx5` say why"

NO_PORT = "ports: none is listed, and each RDMA device has one"

DEVICES_READ = (
    "infiniband.devices[].name",
    "infiniband.devices[].physfn",
    "infiniband.found[]",
)
"""Part of `reads` of whoever uses `each_device`."""


def device_subject(device: RdmaDevice) -> Subject:
    return Subject(kind="rdma", id=device.name)


def port_name(device: RdmaDevice, port: RdmaPort) -> str:
    """As NCCL_IB_HCA has it: `mlx5_0:1`."""
    return f"{device.name}:{port.number}"


def port_subject(device: RdmaDevice, port: RdmaPort) -> Subject:
    return Subject(kind="port", id=port_name(device, port))


def each_device(evidence: Evidence, ignore: Words = ()) -> Iterator[RdmaDevice | Finding]:
    """Every RDMA device of this machine's own; the unknown finding in place of what was not read.

    Left out are those that `ignore` names, and virtual functions (SR-IOV) of a NIC that is this
    machine's too: it has them for its guests. In a guest there is no physical one to be seen.
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
    """Every port of these devices, apart from those that `ignore` names."""
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
