"""Network interfaces: /sys/class/net.

See Documentation/ABI/testing/sysfs-class-net and sysfs-class-net-statistics in the kernel tree.
A host of containers has hundreds of virtual interfaces: of them only bonds, bridges, VLANs and
what physical ones belong to are read, and those that a baseline names, which may be a pattern.
Counters that it names (counter:rx_discards_phy) and that are not here are those of a NIC's driver,
which ethtool(8) prints, if it is installed.
"""

import os
import re
from fnmatch import fnmatchcase

from nodevet.remote.probe.devices import bus_id, counters, exists, linked
from nodevet.remote.probe.files import (
    Absent,
    Reading,
    attempt,
    flag,
    integer,
    line,
    link_name,
    names,
    parse_words,
    parsed,
    path_under,
    quote,
    resolve,
    silent,
)
from nodevet.remote.program import ToolError, find, printed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

COUNTERS = True
CLASS = "/sys/class/net"
LARGEST = 512  # interfaces that are read
READ = ("bond", "bridge", "vlan", "ipoib_child")  # kinds of virtual ones
REPRESENTOR = re.compile(r"(c[0-9]+)?pf[0-9]+[vs]f[0-9]+\Z")  # phys_port_name, of a NIC's switch
ON_A_BUS = re.compile(r"/sys/devices/(?!virtual/)")
IFF_UP = 0x1
STATISTICS = (
    "collisions",
    "rx_bytes",
    "rx_crc_errors",
    "rx_dropped",
    "rx_errors",
    "rx_fifo_errors",
    "rx_frame_errors",
    "rx_length_errors",
    "rx_missed_errors",
    "rx_over_errors",
    "rx_packets",
    "tx_aborted_errors",
    "tx_bytes",
    "tx_carrier_errors",
    "tx_dropped",
    "tx_errors",
    "tx_fifo_errors",
    "tx_packets",
)
CARRIER = ("carrier_changes", "carrier_down_count", "carrier_up_count")
COUNTER = "counter:"  # before a counter's name among what is asked for
ETHTOOL_SECONDS = 3  # for one interface
ETHTOOL_MOST = 64  # interfaces
BONDED = ("link_failure_count",)  # bonding_slave/, of an interface in a bond


def parse_speed(text: str) -> int:
    """Mb/s. Raises ValueError for -1, or what 32 bits make of it: unknown.

    >>> parse_speed("400000")
    400000
    """
    speed = integer(text)
    if not 0 < speed < (1 << 31):
        raise ValueError("the kernel does not know it: {}".format(speed))
    return speed


def parse_admin(text: str) -> bool:
    """Whether `flags` has IFF_UP. Raises ValueError.

    >>> parse_admin("0x1003"), parse_admin("0x1002")
    (True, False)
    """
    if not text.startswith("0x"):
        raise ValueError("not a number: {}".format(quote(text)))
    return bool(int(text, 16) & IFF_UP)


def parse_devtype(text: str) -> str:
    """What the kernel calls an interface in its uevent; empty if nothing.

    >>> parse_devtype("DEVTYPE=vlan\\nINTERFACE=bond0.100\\nIFINDEX=9\\n")
    'vlan'
    """
    told = [row for row in text.split("\n") if row.startswith("DEVTYPE=")]
    return told[0].partition("=")[2] if told else ""


def virtual_kind(root: str, place: str) -> str:
    """What a virtual interface is."""
    told, _ = attempt(parsed, root, place + "uevent", parse_devtype)
    folders = (("bonding", "bond"), ("bridge", "bridge"))
    return told or next((kind for name, kind in folders if exists(root, place + name)), "virtual")


def lower(root: str, place: str) -> "list[str]":
    """The names of the interfaces below one: a bond's, a bridge's ports. Raises OSError,
    ValueError."""
    try:
        return sorted(parsed(root, place + "bonding/slaves", parse_words))
    except FileNotFoundError:
        return [name[6:] for name in names(root, place) if name.startswith("lower_")]


def counted(root: str, place: str) -> "list[dict[str, Any]]":
    """What is counted of an interface. Raises OSError, ValueError."""
    return (
        counters(root, place + "statistics/", STATISTICS)
        + counters(root, place, CARRIER)
        + counters(root, place + "bonding_slave/", BONDED)
    )


def parse_ethtool(text: str) -> "dict[str, int]":
    """{name: value} of what `ethtool -S` prints; the first of equal names.

    >>> parse_ethtool("NIC statistics:\\n     tx_timeout: 0\\n     [0]: rx_bytes: 7\\n")
    {'tx_timeout': 0, '[0]: rx_bytes': 7}
    """
    found: "dict[str, int]" = {}
    for row in text.splitlines():
        name, _, value = row.strip().rpartition(":")
        number, _ = attempt(integer, value)
        if name and number is not None:
            found.setdefault(name, number)
    return found


def of_the_driver(root: str, name: str, wanted: "Iterable[str]") -> "list[dict[str, Any]]":
    """The counters of a NIC's driver, those `wanted`; one that it does not have is left out."""
    told, why = None, "ethtool says it of the running machine alone"
    if root == "/":
        told, why = attempt(ethtool, name)
    if told is None:
        return [{"name": each, "value": None, "errors": {"value": why}} for each in wanted]
    return [{"name": each, "value": told[each]} for each in wanted if each in told]


def ethtool(name: str) -> "dict[str, int]":
    """What ethtool says of an interface. Raises ValueError if that is nothing."""
    if name.startswith("-"):
        raise ValueError("ethtool would take its name for an option")
    try:
        return parse_ethtool(printed([find("ethtool"), "-S", name], ETHTOOL_SECONDS))
    except ToolError as error:
        raise ValueError(str(error))


def interface(root: str, name: str, kind: str) -> "Reading":
    """Everything about one interface."""
    place = "{}/{}/".format(CLASS, name)
    record = Reading(name=name, kind=kind)
    record.take("type", parsed, root, place + "type", integer)
    record.take("address", line, root, place + "address")
    record.take("admin_up", parsed, root, place + "flags", parse_admin)
    record.take("operstate", line, root, place + "operstate")
    record.take("carrier", parsed, root, place + "carrier", flag)
    record.take("speed_mbps", parsed, root, place + "speed", parse_speed)
    record.take("duplex", line, root, place + "duplex")
    record.take("mtu", parsed, root, place + "mtu", integer)
    record.take("master", linked, root, place, "master")
    record.take("lower", lower, root, place)
    record.take("counters", counted, root, place)
    if kind in ("physical", "virtual_function"):
        record.take("driver", link_name, root, place + "device/driver")
        record.take("bus_id", bus_id, root, place.rstrip("/"))
        record.take("numa_node", numa_node, root, place + "device/")
    else:
        record.update(driver="", bus_id="", numa_node=-1)
    return record


def numa_node(root: str, device: str) -> int:
    """-1 also of what is on no bus with NUMA nodes. Raises OSError, ValueError."""
    try:
        return parsed(root, device + "numa_node", integer)
    except FileNotFoundError:
        return -1


def physical_kind(root: str, place: str) -> str:
    """What an interface of a device is: another partition of an InfiniBand port (ib0.8001) and
    the near end of a virtual function are no links of their own."""
    if exists(root, place + "parent"):
        return "ipoib_child"
    name, _ = attempt(line, root, place + "phys_port_name")
    return "representor" if name and REPRESENTOR.match(name) else "physical"


def kinds(root: str) -> "dict[str, str]":
    """{name: kind} of every interface. Raises OSError, ValueError."""
    found = {}
    for name in names(root, CLASS):
        place = "{}/{}/".format(CLASS, name)
        if exists(root, place + "device/physfn"):
            found[name] = "virtual_function"
        elif exists(root, place + "device") or ON_A_BUS.match(resolve(root, place)):
            found[name] = physical_kind(root, place)
        elif os.path.isdir(path_under(root, place)):  # bonding_masters is a file
            found[name] = virtual_kind(root, place)
    return found


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", silent)
    try:
        known = kinds(root)
    except FileNotFoundError:
        raise Absent("the kernel has no network: no " + CLASS)
    asks = request.get("asks", {}).get("network", ())
    asked = [each for each in asks if not each.startswith(COUNTER)]
    named = sorted(each[len(COUNTER) :] for each in asks if each.startswith(COUNTER))
    extra = [each for each in named if each not in STATISTICS + CARRIER + BONDED]
    real = [name for name in known if known[name] in ("physical", "virtual_function")]
    masters = {linked(root, "{}/{}/".format(CLASS, name), "master") for name in real}
    wanted = sorted(
        name
        for name in known
        if name in real
        or name in masters
        or known[name] in READ
        or any(fnmatchcase(name, pattern) for pattern in asked)
    )
    network = Reading(others=len(known) - len(wanted))
    if len(wanted) > LARGEST:
        why = "{} interfaces, more than {}".format(len(wanted), LARGEST)
        network.fail_all(("interfaces", "found"), why)
        return network
    network["interfaces"] = []
    for name in wanted:
        note(name)
        record = interface(root, name, known[name])
        if extra and name in real[:ETHTOOL_MOST] and record["counters"] is not None:
            record["counters"] += of_the_driver(root, name, extra)
        network["interfaces"].append(record)
    network["found"] = wanted
    return network
