"""NVIDIA functions, NICs and NVMe, and all ports above them: /sys/bus/pci/devices.

See Documentation/ABI/testing/sysfs-bus-pci and sysfs-bus-pci-devices-aer_stats
in the kernel tree.
"""

import re

from nodevet.remote.probe.cpulist import normal, normal_mask
from nodevet.remote.probe.files import (
    Absent,
    NotHeld,
    Reading,
    first_readable,
    integer,
    link_name,
    names,
    no_note,
    parsed,
    quote,
    read_bytes,
    real_folder,
    reason,
    resolve,
    text_lines,
)
from nodevet.remote.probe.pci_config import Registers, target_generation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

COUNTERS = True
DEVICES = "/sys/bus/pci/devices"
LARGEST = 1 << 16  # functions
NVIDIA = "10de"
ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z")
HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}\Z")
PORT = "0604"
GENERATIONS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}  # GT/s
WIDTHS = (1, 2, 4, 8, 12, 16, 32)
AER = ("correctable", "nonfatal", "fatal")
AER_SERVICES = "/sys/bus/pci_express/drivers/aer"  # of ports, as 0000:17:01.0:pcie002
FIRMWARE = "/sys/bus/platform/drivers/GHES"  # APEI's error sources, drivers/acpi/apei/ghes.c
IDS = (  # field, file, hex digits
    ("class_code", "class", 6),
    ("vendor", "vendor", 4),
    ("device", "device", 4),
    ("subsystem_vendor", "subsystem_vendor", 4),
    ("subsystem_device", "subsystem_device", 4),
)


def parse_hex(text: str, digits: int) -> str:
    """A number that sysfs prints as 0x10de, as that many hex digits. Raises ValueError."""
    match = re.match(r"0x([0-9a-fA-F]{1,8})\Z", text)
    if match is None or int(match.group(1), 16) >> (4 * digits):
        raise ValueError("not {} hex digits: {}".format(digits, quote(text)))
    return "{:0{}x}".format(int(match.group(1), 16), digits)


def parse_speed(text: str) -> float:
    """GT/s per lane of "16.0 GT/s PCIe" or "16 GT/s". Raises ValueError: "Unknown"."""
    match = re.match(r"([0-9]{1,3}(?:\.[0-9])?) GT/s(?: PCIe)?\Z", text)
    if match is None:
        raise ValueError("the kernel says {}".format(quote(text)))
    return float(match.group(1))


def parse_width(text: str) -> int:
    """Lanes of a link. Raises ValueError for 0, 63 and 255: no link."""
    width = integer(text)
    if width not in WIDTHS:
        raise ValueError("the kernel says {} lanes: no link".format(width))
    return width


def parse_aer(text: str) -> "tuple[int, dict[str, int]]":
    """(total, {kind: count above zero}) of an aer_dev_* file. Raises ValueError."""
    total, kinds = None, {}
    for row in text_lines(text):
        kind, _, count = row.strip().rpartition(" ")
        if kind.startswith("TOTAL_ERR_"):
            total = integer(count)
        elif kind and integer(count):
            kinds[kind] = integer(count)
    if total is None:
        raise ValueError("no TOTAL_ERR_ row")
    return total, kinds


def parse_upstream(path: str) -> "list[str]":
    """Addresses of the ports above a function, nearest first, from its resolved path.

    >>> parse_upstream("/sys/devices/pci0000:00/0000:00:01.0/0000:19:00.0")
    ['0000:00:01.0']
    """
    parts = path.split("/")
    bridges = [index for index, part in enumerate(parts) if HOST_BRIDGE.match(part)]
    if not bridges:
        raise ValueError("no host bridge in the device's path")
    parts_above = parts[bridges[-1] + 1 : -1]
    return [part for part in reversed(parts_above) if ADDRESS.match(part)]


LINK = (
    ("link_gts", "current_link_speed", parse_speed),
    ("link_gts_max", "max_link_speed", parse_speed),
    ("link_width", "current_link_width", parse_width),
    ("link_width_max", "max_link_width", parse_width),
)


def revision(root: str, folder: str) -> str:
    """The revision now: ff once the function has fallen off the bus. sysfs reads `revision` at
    boot, but `config` now."""
    try:
        config = read_bytes(root, folder + "config", 64)
    except (OSError, ValueError):
        config = b""
    if config[8:9] == b"\xff":
        return "ff"
    return parsed(root, folder + "revision", parse_hex, 2)


def target_speed(root: str, folder: str) -> float:
    """The target GT/s of the link below a port. Raises OSError, ValueError."""
    registers = Registers(root, folder + "config")
    try:
        generation = target_generation(registers)
    finally:
        registers.close()
    if generation not in GENERATIONS:
        raise ValueError("the port does not say")
    return GENERATIONS[generation]


def aer(root: str, folder: str) -> "Reading":
    record = Reading(kinds={})
    for field in AER:
        record.take(field, parsed, root, folder + "aer_dev_" + field, parse_aer)
        if record[field] is not None:
            record[field], kinds = record[field]
            for kind, count in kinds.items():
                record["kinds"][kind] = record["kinds"].get(kind, 0) + count
    return record


def bound_devices(root: str, driver: str) -> "list[str]":
    """The devices of a driver; empty without the driver."""
    try:
        return [name for name in names(root, driver, LARGEST) if ":" in name or "." in name]
    except FileNotFoundError:
        return []


def aer_ports(root: str) -> "list[str]":
    """The ports whose AER service is the kernel's, drivers/pci/pcie/portdrv.c: none if the firmware
    handles errors first (_OSC), with pci=noaer, or without visible ports."""
    return sorted(
        {name.rpartition(":")[0] for name in bound_devices(root, AER_SERVICES) if ":" in name}
    )


def identity(root: str, folder: str, address: str) -> "Reading":
    """The address, class and vendor of a function, with which its record begins."""
    record = Reading(address=address)
    for field, file, digits in IDS[:2]:
        record.take(field, parsed, root, folder + file, parse_hex, digits)
    return record


def function(root: str, folder: str, record: "Reading") -> "Reading":
    """The record of a function, which `identity` began. `upstream` is empty, with a reason, if its
    path does not show the ports above it."""
    for field, file, digits in IDS[2:]:
        record.take(field, parsed, root, folder + file, parse_hex, digits)
    record.take("revision", revision, root, folder)
    try:
        record["driver"] = link_name(root, folder + "driver")
    except (OSError, NotHeld) as error:
        is_unbound = isinstance(error, FileNotFoundError)
        record.fail("driver", "no driver is bound" if is_unbound else reason(error))
    record.take("physfn", physical_function, root, folder)
    record.take("numa_node", parsed, root, folder + "numa_node", integer)
    lists = (("local_cpulist", normal), ("local_cpus", normal_mask))
    record.take("local_cpulist", first_readable, root, folder, *lists)
    for field, file, parse in LINK:
        record.take(field, parsed, root, folder + file, parse)
    if (record["class_code"] or "")[:4] == PORT:
        record.take("link_gts_target", target_speed, root, folder)
    else:
        record.fail("link_gts_target", "not a port")
    record["aer"] = aer(root, folder)
    record.take("upstream", upstream, root, folder)
    if record["upstream"] is None:
        record["upstream"] = []
    return record


def physical_function(root: str, folder: str) -> str:
    """The address of a virtual function's physical function; else "". Raises OSError.

    See Documentation/PCI/pci-iov-howto.rst in the kernel tree.
    """
    try:
        return link_name(root, folder + "physfn")
    except FileNotFoundError:
        return ""


def upstream(root: str, folder: str) -> "list[str]":
    """Addresses of the ports above a function, nearest first. Raises ValueError."""
    return parse_upstream(resolve(root, folder))


def is_of_interest(record: "Reading") -> bool:
    """Whether a function is NVIDIA's, a NIC, NVMe, or unknown."""
    code, vendor = record["class_code"], record["vendor"]
    return not code or vendor in (None, NVIDIA) or code[:2] == "02" or code[:4] == "0108"


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", no_note)
    try:
        addresses = [name for name in names(root, DEVICES, LARGEST) if ADDRESS.match(name)]
    except FileNotFoundError:
        raise Absent("the kernel has no PCI bus: no " + DEVICES)
    folders = {
        address: real_folder(root, "{}/{}/".format(DEVICES, address)) for address in addresses
    }
    records, functions = {}, {}
    for address, folder in folders.items():
        note(address)
        records[address] = identity(root, folder, address)
        if is_of_interest(records[address]):
            functions[address] = function(root, folder, records[address])
    ports = {port for record in functions.values() for port in record["upstream"]}
    for address in sorted(ports.difference(functions)):
        note(address)
        folder = folders.get(address, "{}/{}/".format(DEVICES, address))
        record = records.get(address) or identity(root, folder, address)
        functions[address] = function(root, folder, record)
    section = Reading(functions=[functions[address] for address in sorted(functions)])
    section.take("aer_ports", aer_ports, root)
    section.take("firmware_sources", lambda: len(bound_devices(root, FIRMWARE)))
    return section
