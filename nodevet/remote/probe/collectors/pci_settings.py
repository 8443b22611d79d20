"""Settings of GPUs, NICs and the ports above them: PCI Express, ACS, IOMMU, interrupts.

/sys/bus/pci/devices/*/{config,iommu_group,msi_irqs}, /sys/kernel/iommu_groups/*/type,
/proc/irq/*/{effective_affinity_list,smp_affinity_list}. The request names the parts: config, iommu,
interrupts.
"""

import re

from nodevet.remote.probe.collectors.pci import DEVICES
from nodevet.remote.probe.cpulist import format_cpulist, parse_cpulist
from nodevet.remote.probe.files import (
    Reading,
    SectionError,
    attempt,
    first_readable,
    integer,
    line,
    link_name,
    names,
    no_note,
    reason,
)
from nodevet.remote.probe.pci_config import Registers, access_control, express

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Container, Iterable

AFTER = ("pci",)  # which functions there are
ASKED = True
NOT_ASKED = "the probe was not asked for it"  # as nodevet.evidence.core has it
EXPRESS = (
    "max_payload_b",
    "max_payload_most_b",
    "max_read_request_b",
    "relaxed_ordering",
    "aspm",
)
ACS = ("acs_supported", "acs_enabled")
DATA_NICS, OTHER_NETWORK, MELLANOX = ("0200", "0207", "0208"), "0280", "15b3"
NUMBER = re.compile(r"[0-9]{1,7}\Z")
MOST_IRQS = 2048  # of one function, by the standard of MSI-X


def config(record: "Reading", root: str, folder: str) -> None:
    """Set the fields of PCI Express and ACS."""
    registers, why = attempt(Registers, root, folder + "config")
    if registers is None:
        record.fail_all(EXPRESS + ACS, why)
        return
    try:
        values, why = attempt(express, registers)
        record.fail_all(EXPRESS, why) if values is None else record.update(values)
        access, why = attempt(access_control, registers, registers.size)
        record.fail_all(ACS, why) if access is None else record.update(zip(ACS, access))
    finally:
        registers.close()


def iommu(record: "Reading", root: str, folder: str) -> None:
    """Set the IOMMU group and its type: DMA, DMA-FQ, identity."""
    try:
        record["iommu_group"] = integer(link_name(root, folder + "iommu_group"))
    except FileNotFoundError:
        record["iommu_group"] = -1
        record["iommu_type"] = ""
        return
    except (OSError, ValueError) as error:
        record.fail_all(("iommu_group", "iommu_type"), reason(error))
        return
    group = "/sys/kernel/iommu_groups/{}/type".format(record["iommu_group"])
    record.take("iommu_type", line, root, group)


def interrupts(record: "Reading", root: str, folder: str) -> None:
    """Set the number of interrupts, and the CPUs that get any of them."""
    numbers, why = attempt(names, root, folder + "msi_irqs", MOST_IRQS)
    if why == "ENOENT":
        numbers = []
    elif numbers is None:
        record.fail_all(("irqs", "irq_cpus"), why)
        return
    numbers = [number for number in numbers if NUMBER.match(number)]
    record["irqs"] = len(numbers)
    record.take("irq_cpus", cpus_of, root, numbers)


def cpus_of(root: str, numbers: "Iterable[int]") -> str:
    """The CPUs that get these interrupts, as a list. Raises OSError, ValueError."""
    readers = [(name, parse_cpulist) for name in ("effective_affinity_list", "smp_affinity_list")]
    cpus = set()
    for number in numbers:
        cpus.update(first_readable(root, "/proc/irq/{}/".format(number), *readers))
    return format_cpulist(cpus)


PARTS = (  # name, fields, for ports too, function
    ("config", EXPRESS + ACS, True, config),
    ("iommu", ("iommu_group", "iommu_type"), False, iommu),
    ("interrupts", ("irqs", "irq_cpus"), False, interrupts),
)


PORTS_TOO = {part for part, _, ports_too, _ in PARTS if ports_too}


def kind_of(function: "dict[str, Any]") -> str:
    """gpu, nic or nvme, as PciFunction.kind of nodevet.evidence.pci; else ""."""
    code = function["class_code"] or ""
    if function["physfn"] or function["revision"] == "ff":
        return ""
    if function["vendor"] == "10de" and code[:4] in ("0300", "0302"):
        return "gpu"
    if code[:4] in DATA_NICS or (code[:4] == OTHER_NETWORK and function["vendor"] == MELLANOX):
        return "nic"
    return "nvme" if code[:4] == "0108" else ""


def setting(
    root: str, function: "dict[str, Any]", kind: str, requested: "Container[str]"
) -> "Reading":
    record = Reading(
        address=function["address"],
        kind=kind,
        driver=function["driver"] or "",
        above=function["upstream"] or [],
        local_cpulist=function["local_cpulist"],
    )
    if record["local_cpulist"] is None:
        record.fail("local_cpulist", function["errors"].get("local_cpulist", "not read"))
    folder = "{}/{}/".format(DEVICES, function["address"])
    for part, fields, ports_too, take in PARTS:
        if part not in requested:
            record.fail_all(fields, NOT_ASKED)
        elif kind == "port" and not ports_too:
            record.fail_all(fields, "nodevet does not read it for a port")
        else:
            take(record, root, folder)
    return record


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", no_note)
    requested = request.get("asks", {}).get("pci_settings", ())
    bus = request.get("found", {}).get("pci", {})
    if bus.get("status") != "ok":
        raise SectionError("pci: {}".format(bus.get("why", "not read")))
    functions = {function["address"]: function for function in bus["data"]["functions"] or ()}
    kinds = {address: kind_of(function) for address, function in functions.items()}
    kinds = {address: kind for address, kind in kinds.items() if kind}
    for address in list(kinds) if PORTS_TOO.intersection(requested) else ():
        for port in functions[address]["upstream"] or ():
            if port in functions:
                kinds.setdefault(port, "port")
    settings = []
    for address in sorted(kinds):
        note(address)
        settings.append(setting(root, functions[address], kinds[address], requested))
    return Reading(count=len(settings), functions=settings)
