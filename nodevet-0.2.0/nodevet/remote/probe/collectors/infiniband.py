"""RDMA devices and their ports: /sys/class/infiniband; InfiniBand, RoCE, EFA.

See Documentation/ABI/stable/sysfs-class-infiniband in the kernel tree.
"""

import re

from nodevet.remote.probe.devices import bus_id, counters, exists, link_target
from nodevet.remote.probe.files import (
    Absent,
    Reading,
    attempt,
    integer,
    line,
    link_name,
    names,
    no_note,
    parsed,
    quote,
    real_folder,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

COUNTERS = True
CLASS = "/sys/class/infiniband"
LARGEST = 512  # devices
TABLE = 1024  # entries of a port's table
EMPTY = 16  # entries in a row without content: no other follows
STATE = re.compile(r"[0-9]{1,3}: (\S.{0,40})\Z")
RATE = re.compile(r"([0-9]{1,5}(?:\.[0-9]{1,2})?) Gb/sec \(([0-9]{1,3})X ?(\S{0,20})\)\Z")
NO_GID = re.compile(r"[0:]+\Z")
PKEY = re.compile(r"0x([0-9a-fA-F]{4})\Z")
NOT_COUNTED = ("lifespan",)  # how long hw_counters are remembered, in ms


def parse_state(text: str) -> str:
    """The name of a state that is printed with its number. Raises ValueError.

    >>> parse_state("4: ACTIVE"), parse_state("5: LinkUp")
    ('ACTIVE', 'LinkUp')
    """
    match = STATE.match(text)
    if match is None:
        raise ValueError("not a state: {}".format(quote(text)))
    return match.group(1)


def parse_rate(text: str) -> "tuple[float, int, str]":
    """(Gb/s, lanes, name of the speed). Raises ValueError.

    >>> parse_rate("400 Gb/sec (4X NDR)"), parse_rate("2.5 Gb/sec (1X)")
    ((400.0, 4, 'NDR'), (2.5, 1, ''))
    """
    match = RATE.match(text)
    if match is None:
        raise ValueError("not a rate: {}".format(quote(text)))
    return float(match.group(1)), int(match.group(2)), match.group(3)


def parse_lid(text: str) -> int:
    """A LID, as 0x96. Raises ValueError."""
    if not re.match(r"0x[0-9a-fA-F]{1,8}\Z", text):
        raise ValueError("not a LID: {}".format(quote(text)))
    return int(text, 16)


def table(root: str, folder: str) -> "list[tuple[int, str]]":
    """(index, text) of the used entries of a table, up to EMPTY unused ones in a row: an adapter
    has a hundred, and reads each from its firmware. Raises OSError, ValueError."""
    indexes = sorted(int(name) for name in names(root, folder, TABLE) if name.isdigit())
    rows, empty_rows = [], 0
    for index in indexes:
        text, _ = attempt(line, root, "{}{}".format(folder, index))
        if text is not None and not NO_GID.match(text) and text != "0x0000":
            rows.append((index, text))
            empty_rows = 0
        else:
            empty_rows += 1
            if empty_rows == EMPTY:
                break
    return rows


def gids(root: str, folder: str, ethernet: bool) -> "list[Reading]":
    """The GIDs of a port; on Ethernet with type and interface. Raises OSError, ValueError."""
    records = []
    for index, text in table(root, folder + "gids/"):
        record = Reading(index=index, gid=text)
        for field, subfolder in (("type", "types"), ("netdev", "ndevs")):
            if ethernet:
                record.take(field, line, root, "{}gid_attrs/{}/{}".format(folder, subfolder, index))
            else:
                record[field] = ""
        records.append(record)
    return records


def pkeys(root: str, folder: str) -> "list[str]":
    """The partition keys of a port. Raises OSError, ValueError."""
    matches = [PKEY.match(text) for _, text in table(root, folder + "pkeys/")]
    return [match.group(1).lower() for match in matches if match]


def all_counters(root: str, folder: str) -> "list[dict[str, Any]]":
    """counters/* and hw_counters/*. Raises OSError, ValueError if there is neither."""
    by_name: "dict[str, dict[str, Any]]" = {}
    missing = None
    for subfolder in ("counters/", "hw_counters/"):
        try:
            for counter in counters(root, folder + subfolder):
                by_name.setdefault(counter["name"], counter)
        except FileNotFoundError as error:
            missing = missing or error
    if missing and not by_name:
        raise missing
    return [by_name[name] for name in sorted(by_name) if name not in NOT_COUNTED]


def port(root: str, folder: str, number: int) -> "Reading":
    """The record of a port."""
    record = Reading(number=number)
    record.take("link_layer", line, root, folder + "link_layer")
    record.take("state", parsed, root, folder + "state", parse_state)
    record.take("phys_state", parsed, root, folder + "phys_state", parse_state)
    rate, why = attempt(parsed, root, folder + "rate", parse_rate)
    if rate is None:
        record.fail_all(("rate_gbps", "width", "speed"), why)
    else:
        record["rate_gbps"], record["width"], record["speed"] = rate
    for field in ("lid", "sm_lid"):
        record.take(field, parsed, root, folder + field, parse_lid)
    is_ethernet = record["link_layer"] == "Ethernet"
    record.take("counters", all_counters, root, folder)
    record.take("gids", gids, root, folder, is_ethernet)
    if is_ethernet:
        record["pkeys"] = []
    else:
        record.take("pkeys", pkeys, root, folder)
    return record


def interfaces(root: str, device: str) -> "dict[str, int]":
    """{interface of a device: number of its port}. Raises OSError, ValueError."""
    ports_by_name = {}
    for name in names(root, device + "net"):
        number, _ = attempt(parsed, root, "{}net/{}/dev_port".format(device, name), integer)
        ports_by_name[name] = 1 + (number or 0)
    return ports_by_name


def netdev(record: "Reading", interface_ports: "dict[str, int] | None", is_only: bool) -> str:
    """The interface of a port: that of its GIDs, or the device's only one for it. `is_only`: the
    device has no other port. Raises ValueError."""
    gid_netdevs: "list[str]" = [gid["netdev"] for gid in record["gids"] or () if gid["netdev"]]
    if gid_netdevs:
        return gid_netdevs[0]
    if interface_ports is None:
        raise ValueError("the device's interfaces were not read")
    candidates = sorted(
        name for name in interface_ports if is_only or interface_ports[name] == record["number"]
    )
    if len(candidates) > 1:
        raise ValueError("the device has {} interfaces".format(len(candidates)))
    return candidates[0] if candidates else ""


def device(root: str, name: str) -> "Reading":
    """The record of a device."""
    folder = real_folder(root, "{}/{}/".format(CLASS, name))
    record = Reading(name=name)
    record.take("driver", link_name, root, folder + "device/driver")
    record.take("bus_id", bus_id, root, folder.rstrip("/"))
    record.take("physfn", link_target, root, folder + "device/", "physfn")
    record.take("numa_node", parsed, root, folder + "device/numa_node", integer)
    for field in ("node_guid", "fw_ver", "board_id", "hca_type"):
        record.take(field, line, root, folder + field)
    interface_ports, why = attempt(interfaces, root, folder + "device/")
    if interface_ports is None and why == "ENOENT" and exists(root, folder + "device"):
        interface_ports = {}
    if interface_ports is None:
        record.fail("netdevs", why)
    else:
        record["netdevs"] = sorted(interface_ports)
    record.take("ports", ports, root, folder, interface_ports)
    return record


def ports(root: str, folder: str, interface_ports: "dict[str, int] | None") -> "list[Reading]":
    """Every port of a device. Raises OSError, ValueError."""
    numbers = sorted(int(name) for name in names(root, folder + "ports", 256) if name.isdigit())
    records = []
    for number in numbers:
        record = port(root, "{}ports/{}/".format(folder, number), number)
        record.take("netdev", netdev, record, interface_ports, len(numbers) == 1)
        records.append(record)
    return records


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", no_note)
    try:
        device_names = names(root, CLASS)
    except FileNotFoundError:
        if not exists(root, "/sys/class"):
            raise Absent("no /sys/class")
        device_names = []  # the kernel's RDMA modules are not loaded: it has no device
    section = Reading(found=device_names)
    if len(device_names) > LARGEST:
        why = "{} devices, more than {}".format(len(device_names), LARGEST)
        section.fail_all(("devices", "found"), why)
        return section
    section["devices"] = []
    for name in device_names:
        note(name)
        section["devices"].append(device(root, name))
    return section
