"""NVIDIA functions, NICs and NVMe, and every port above them: /sys/bus/pci/devices.

See Documentation/ABI/testing/sysfs-bus-pci and sysfs-bus-pci-devices-aer_stats
in the kernel tree.
"""

import re

from nodevet.remote.probe.cpulist import normal, normal_mask
from nodevet.remote.probe.files import (
    Absent,
    Reading,
    either,
    integer,
    link_name,
    names,
    parsed,
    quote,
    read_bytes,
    reason,
    resolve,
    silent,
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
    """Lanes of a link. Raises ValueError for 0, 63 and 255, which mean that there is none."""
    width = integer(text)
    if width not in WIDTHS:
        raise ValueError("the kernel says {} lanes: no link".format(width))
    return width


def parse_aer(text: str) -> "tuple[int, dict[str, int]]":
    """(total, {kind: count above zero}) of an aer_dev_* file. Raises ValueError."""
    total, kinds = None, {}
    for row in text.splitlines():
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
    above = parts[bridges[-1] + 1 : -1]
    return [part for part in reversed(above) if ADDRESS.match(part)]


LINK = (
    ("link_gts", "current_link_speed", parse_speed),
    ("link_gts_max", "max_link_speed", parse_speed),
    ("link_width", "current_link_width", parse_width),
    ("link_width_max", "max_link_width", parse_width),
)


def revision(root: str, place: str) -> str:
    """The revision as the function answers now: ff once it has fallen off the bus.

    sysfs keeps what it read at boot in `revision`; `config` asks the function.
    """
    try:
        config = read_bytes(root, place + "config", 64)
    except (OSError, ValueError):
        config = b""
    if config[8:9] == b"\xff":
        return "ff"
    return parsed(root, place + "revision", parse_hex, 2)


def target(root: str, place: str) -> float:
    """GT/s that the link below a port is to train to at most. Raises OSError, ValueError."""
    registers = Registers(root, place + "config")
    try:
        generation = target_generation(registers)
    finally:
        registers.close()
    if generation not in GENERATIONS:
        raise ValueError("the port does not say")
    return GENERATIONS[generation]


def aer(root: str, place: str) -> "Reading":
    record = Reading(kinds={})
    for field in AER:
        record.take(field, parsed, root, place + "aer_dev_" + field, parse_aer)
        if record[field] is not None:
            record[field], kinds = record[field]
            for kind, count in kinds.items():
                record["kinds"][kind] = record["kinds"].get(kind, 0) + count
    return record


def bound(root: str, driver: str) -> "list[str]":
    """The names of the devices that a driver has; none if there is no such driver."""
    try:
        return [name for name in names(root, driver, LARGEST) if ":" in name or "." in name]
    except FileNotFoundError:
        return []


def aer_ports(root: str) -> "list[str]":
    """The ports whose AER service is the kernel's own, drivers/pci/pcie/portdrv.c: none where
    the firmware handles errors first (_OSC), with pci=noaer, and if no port is seen."""
    return sorted({name.rpartition(":")[0] for name in bound(root, AER_SERVICES) if ":" in name})


def function(root: str, address: str) -> "Reading":
    """Everything about one function. Where its path does not say what is above it,
    `upstream` is empty and its reason given."""
    place = "{}/{}/".format(DEVICES, address)
    record = Reading(address=address)
    for field, file, digits in IDS:
        record.take(field, parsed, root, place + file, parse_hex, digits)
    record.take("revision", revision, root, place)
    try:
        record["driver"] = link_name(root, place + "driver")
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        record.fail("driver", "no driver is bound" if missing else reason(error))
    record.take("physfn", physical_function, root, place)
    record.take("numa_node", parsed, root, place + "numa_node", integer)
    lists = (("local_cpulist", normal), ("local_cpus", normal_mask))
    record.take("local_cpulist", either, root, place, *lists)
    for field, file, parse in LINK:
        record.take(field, parsed, root, place + file, parse)
    if (record["class_code"] or "")[:4] == PORT:
        record.take("link_gts_target", target, root, place)
    else:
        record.fail("link_gts_target", "not a port")
    record["aer"] = aer(root, place)
    record.take("upstream", upstream, root, place)
    if record["upstream"] is None:
        record["upstream"] = []
    return record


def physical_function(root: str, place: str) -> str:
    """The address of a virtual function's physical one; empty for any other. Raises OSError.

    See Documentation/PCI/pci-iov-howto.rst in the kernel tree.
    """
    try:
        return link_name(root, place + "physfn")
    except FileNotFoundError:
        return ""


def upstream(root: str, place: str) -> "list[str]":
    """Addresses of the ports above a function, nearest first. Raises ValueError."""
    return parse_upstream(resolve(root, place))


def wanted(root: str, address: str) -> bool:
    """Whether a function is NVIDIA's, a NIC or NVMe, or does not say what it is."""
    place = "{}/{}/".format(DEVICES, address)
    try:
        code = parsed(root, place + "class", parse_hex, 6)
        vendor = parsed(root, place + "vendor", parse_hex, 4)
    except (OSError, ValueError):
        return True
    return vendor == NVIDIA or code[:2] == "02" or code[:4] == "0108"


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", silent)
    try:
        addresses = [name for name in names(root, DEVICES, LARGEST) if ADDRESS.match(name)]
    except FileNotFoundError:
        raise Absent("the kernel has no PCI bus: no " + DEVICES)
    functions = {}
    for address in addresses:
        note(address)
        if wanted(root, address):
            functions[address] = function(root, address)
    ports = {port for record in functions.values() for port in record["upstream"]}
    for address in sorted(ports.difference(functions)):
        note(address)
        functions[address] = function(root, address)
    found = Reading(functions=[functions[address] for address in sorted(functions)])
    found.take("aer_ports", aer_ports, root)
    found.take("firmware_sources", lambda: len(bound(root, FIRMWARE)))
    return found
