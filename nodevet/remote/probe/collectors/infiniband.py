"""RDMA devices and their ports: /sys/class/infiniband; InfiniBand, RoCE, EFA.

See Documentation/ABI/stable/sysfs-class-infiniband in the kernel tree.
"""

import re

from nodevet.remote.probe.devices import bus_id, counters, exists, linked
from nodevet.remote.probe.files import (
    Absent,
    Reading,
    attempt,
    integer,
    line,
    link_name,
    names,
    parsed,
    quote,
    silent,
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
    """Gb/s, lanes and the speed's name. Raises ValueError.

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
    """The entries of a table that are in use, as (index, text), up to where many in a row are
    not: adapters have a hundred, and each is asked of the firmware. Raises OSError, ValueError."""
    indexes = sorted(int(name) for name in names(root, folder, TABLE) if name.isdigit())
    found, empty = [], 0
    for index in indexes:
        text, _ = attempt(line, root, "{}{}".format(folder, index))
        if text is not None and not NO_GID.match(text) and text != "0x0000":
            found.append((index, text))
            empty = 0
        else:
            empty += 1
            if empty == EMPTY:
                break
    return found


def gids(root: str, place: str, ethernet: bool) -> "list[Reading]":
    """The GIDs of a port; of an Ethernet one with their type and interface. Raises OSError,
    ValueError."""
    found = []
    for index, text in table(root, place + "gids/"):
        record = Reading(index=index, gid=text)
        for field, folder in (("type", "types"), ("netdev", "ndevs")):
            if ethernet:
                record.take(field, line, root, "{}gid_attrs/{}/{}".format(place, folder, index))
            else:
                record[field] = ""
        found.append(record)
    return found


def pkeys(root: str, place: str) -> "list[str]":
    """The partition keys of a port. Raises OSError, ValueError."""
    matches = [PKEY.match(text) for _, text in table(root, place + "pkeys/")]
    return [match.group(1).lower() for match in matches if match]


def counted(root: str, place: str) -> "list[dict[str, Any]]":
    """counters/* and hw_counters/*. Raises OSError, ValueError if there is neither."""
    found: "dict[str, dict[str, Any]]" = {}
    missing = None
    for folder in ("counters/", "hw_counters/"):
        try:
            for counter in counters(root, place + folder):
                found.setdefault(counter["name"], counter)
        except FileNotFoundError as error:
            missing = missing or error
    if missing and not found:
        raise missing
    return [found[name] for name in sorted(found) if name not in NOT_COUNTED]


def port(root: str, place: str, number: int) -> "Reading":
    """Everything about one port."""
    record = Reading(number=number)
    record.take("link_layer", line, root, place + "link_layer")
    record.take("state", parsed, root, place + "state", parse_state)
    record.take("phys_state", parsed, root, place + "phys_state", parse_state)
    rate, why = attempt(parsed, root, place + "rate", parse_rate)
    if rate is None:
        record.fail_all(("rate_gbps", "width", "speed"), why)
    else:
        record["rate_gbps"], record["width"], record["speed"] = rate
    for field in ("lid", "sm_lid"):
        record.take(field, parsed, root, place + field, parse_lid)
    ethernet = record["link_layer"] == "Ethernet"
    record.take("counters", counted, root, place)
    record.take("gids", gids, root, place, ethernet)
    if ethernet:
        record["pkeys"] = []
    else:
        record.take("pkeys", pkeys, root, place)
    return record


def interfaces(root: str, device: str) -> "dict[str, int]":
    """The names of a device's interfaces, each with the number of its port. Raises OSError,
    ValueError."""
    found = {}
    for name in names(root, device + "net"):
        number, _ = attempt(parsed, root, "{}net/{}/dev_port".format(device, name), integer)
        found[name] = 1 + (number or 0)
    return found


def netdev(record: "Reading", below: "dict[str, int] | None", alone: bool) -> str:
    """The interface of a port: that of its GIDs, or the only one that the device has for it.
    Raises ValueError. `alone`: the device has no other port."""
    told: "list[str]" = [gid["netdev"] for gid in record["gids"] or () if gid["netdev"]]
    if told:
        return told[0]
    if below is None:
        raise ValueError("the device's interfaces were not read")
    found = sorted(name for name in below if alone or below[name] == record["number"])
    if len(found) > 1:
        raise ValueError("the device has {} interfaces".format(len(found)))
    return found[0] if found else ""


def device(root: str, name: str) -> "Reading":
    """Everything about one device."""
    place = "{}/{}/".format(CLASS, name)
    record = Reading(name=name)
    record.take("driver", link_name, root, place + "device/driver")
    record.take("bus_id", bus_id, root, place.rstrip("/"))
    record.take("physfn", linked, root, place + "device/", "physfn")
    record.take("numa_node", parsed, root, place + "device/numa_node", integer)
    for field in ("node_guid", "fw_ver", "board_id", "hca_type"):
        record.take(field, line, root, place + field)
    below, why = attempt(interfaces, root, place + "device/")
    if below is None and why == "ENOENT" and exists(root, place + "device"):
        below = {}
    if below is None:
        record.fail("netdevs", why)
    else:
        record["netdevs"] = sorted(below)
    record.take("ports", ports, root, place, below)
    return record


def ports(root: str, place: str, below: "dict[str, int] | None") -> "list[Reading]":
    """Every port of a device. Raises OSError, ValueError."""
    numbers = sorted(int(name) for name in names(root, place + "ports", 256) if name.isdigit())
    found = []
    for number in numbers:
        record = port(root, "{}ports/{}/".format(place, number), number)
        record.take("netdev", netdev, record, below, len(numbers) == 1)
        found.append(record)
    return found


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", silent)
    try:
        found = names(root, CLASS)
    except FileNotFoundError:
        if not exists(root, "/sys/class"):
            raise Absent("no /sys/class")
        found = []  # the kernel's RDMA modules are not loaded: it has no device
    section = Reading(found=found)
    if len(found) > LARGEST:
        why = "{} devices, more than {}".format(len(found), LARGEST)
        section.fail_all(("devices", "found"), why)
        return section
    section["devices"] = []
    for name in found:
        note(name)
        section["devices"].append(device(root, name))
    return section
