"""The expected number of EFA devices exists, uses the efa driver and is active.

**Why it matters.** A p5 instance has 32 EFA devices, a p4d instance four. If one is missing, NCCL
still runs, over fewer rails, and a job on hundreds of nodes runs at the pace of this node.

**Read from** `/sys/class/infiniband/*/device/driver` and `ports/*/state`; the PCI bus for devices
that have no driver.

**Verdicts.** nodevet counts the RDMA devices with the efa driver; each of their ports must be
ACTIVE. The right number depends on the instance type and on how the instance was launched: state it
in the baseline of that type (p4d.24xlarge 4, p5.48xlarge 32, p5en.48xlarge 16, p6-b200.48xlarge 8).

**To fix it** if the PCI bus has fewer devices, the instance was launched without these network
interfaces of type efa. If the PCI bus has devices that have no driver: `modprobe efa`, `dmesg |
grep efa`.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.aspects import Aspect, aspect_findings, aspect_if, unread_aspect
from nodevet.checking.rdma import DEVICES_READ, device_subject, each_device
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.infiniband import RdmaDevice
from nodevet.evidence.pci import Pci
from nodevet.model import (
    NODE,
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    Value,
    fail,
    ok,
    unknown,
)

AMAZON, EFA = "1d0f", "efa"  # PCI vendor; device efa0, efa1, efa2, ...
UNBOUND = (
    "`modprobe efa`; `dmesg | grep efa` says why the driver did not bind the devices on the PCI bus"
)
LAUNCH = (
    "the instance was launched with other network interfaces: give each network card an "
    "interface of type efa (or efa-only), and check the instance type"
)
DOWN = "see `dmesg | grep efa`; reset it with a reboot, then stop and start the instance"


class Params(CheckParams):
    """`efa: 32`"""

    bare: ClassVar[str] = "count"

    count: Annotated[int, Meta(ge=0, le=256)]


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    efa_devices: list[RdmaDevice] = []
    findings: list[Finding] = []
    for entry in each_device(evidence):
        if isinstance(entry, Finding):
            findings.append(entry)
        elif entry.driver is None:
            findings.append(unread(device_subject(entry), entry, "driver"))
        elif entry.driver == EFA:
            efa_devices.append(entry)
    yield from findings
    if efa_devices or not any(finding.subject == NODE for finding in findings):
        yield count(evidence, len(efa_devices), bool(findings), params.count)
    for device in efa_devices:
        yield from aspect_findings(device_subject(device), states(device), {})


def count(evidence: Evidence, present: int, unsure: bool, required: int) -> Finding:
    expected, actual = {"EFA devices": required}, {"EFA devices": present}
    if unsure and present <= required:
        return unknown(expected=expected, why=f"only {present} were read, not all")
    if present == required:
        return ok(expected=expected, actual=actual)
    functions = (data.functions if (data := evidence[Pci].data) else None) or ()
    on_bus = sum(
        function.vendor == AMAZON and (function.device or "").startswith(EFA)
        for function in functions
    )
    why = f"{on_bus} on the PCI bus" if functions else ""
    advice = UNBOUND if on_bus > present else LAUNCH
    return fail(expected=expected, actual=actual, why=why, advice=advice)


def states(device: RdmaDevice) -> Iterator[Aspect]:
    if device.ports is None:
        yield unread_aspect(device, "ports")
    elif not device.ports:
        yield aspect_if("state", False, expected="ACTIVE", actual="no port", advice=DOWN)
    for port in device.ports or ():
        if port.state is None:
            yield unread_aspect(port, "state")
        else:
            right = port.state == "ACTIVE"
            yield aspect_if("state", right, expected="ACTIVE", actual=port.state, advice=DOWN)


def learn(evidence: Evidence) -> Value:
    devices = [device for device in each_device(evidence) if isinstance(device, RdmaDevice)]
    return sum(device.driver == EFA for device in devices) or None


CHECK = Check(
    params=Params,
    area=Area.NETWORK,
    reads=(
        *DEVICES_READ,
        "infiniband.devices[].driver",
        "infiniband.devices[].ports[].state",
    ),
    judge=judge,
    unasked="only a site knows its instance type: say efa: 32",
    learn=learn,
    actions={DOWN: NeededAction.REBOOT},
)
