"""Network interfaces: /sys/class/net.

See Documentation/ABI/testing/sysfs-class-net and sysfs-class-net-statistics in the kernel tree.
A host of containers has hundreds of virtual interfaces. Only bonds, bridges, VLANs, masters of
physical interfaces, and those that a baseline names or matches are read. Other counters that a
baseline names (counter:rx_discards_phy) come from the NIC's driver by ethtool(8), if installed.
Ring sizes come from the driver without it.
"""

import os
import re
from fnmatch import fnmatchcase

from nodevet.remote.probe.devices import bus_id, counters, exists, link_target
from nodevet.remote.probe.files import (
    Absent,
    Reading,
    attempt,
    flag,
    integer,
    line,
    link_name,
    names,
    no_note,
    parsed,
    path_under,
    quote,
    real_folder,
    resolve,
    text_lines,
)
from nodevet.remote.probe.rings import ring_sizes
from nodevet.remote.program import ToolError, find_program, output_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

COUNTERS = True
CLASS = "/sys/class/net"
LARGEST = 512  # interfaces that are read
HAVE_RINGS = ("physical", "virtual_function", "virtual")
VIRTUAL_KINDS = ("bond", "bridge", "vlan", "ipoib_child")  # kinds of virtual ones
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
COUNTER = "counter:"  # before a counter's name in the request
ETHTOOL_SECONDS = 3  # for one interface
ETHTOOL_MOST = 64  # interfaces
BOND_COUNTERS = ("link_failure_count",)  # bonding_slave/, of an interface in a bond


def parse_speed(text: str) -> int:
    """Mb/s. Raises ValueError for -1, signed or not: unknown.

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
    """The kernel's type of an interface in its uevent; "" if there is none.

    >>> parse_devtype("DEVTYPE=vlan\\nINTERFACE=bond0.100\\nIFINDEX=9\\n")
    'vlan'
    """
    rows = [row for row in text.split("\n") if row.startswith("DEVTYPE=")]
    return rows[0].partition("=")[2] if rows else ""


def virtual_kind(root: str, folder: str) -> str:
    """The kind of a virtual interface."""
    devtype, _ = attempt(parsed, root, folder + "uevent", parse_devtype)
    folders = (("bonding", "bond"), ("bridge", "bridge"))
    return devtype or next(
        (kind for name, kind in folders if exists(root, folder + name)), "virtual"
    )


def lower_interfaces(root: str, folder: str) -> "list[str]":
    """The interfaces below a bond or bridge. Raises OSError, ValueError."""
    try:
        return sorted(parsed(root, folder + "bonding/slaves", str.split))
    except FileNotFoundError:
        return [name[6:] for name in names(root, folder) if name.startswith("lower_")]


def all_counters(root: str, folder: str) -> "list[dict[str, Any]]":
    """The counters of an interface. Raises OSError, ValueError."""
    return (
        counters(root, folder + "statistics/", STATISTICS)
        + counters(root, folder, CARRIER)
        + counters(root, folder + "bonding_slave/", BOND_COUNTERS)
    )


def parse_ethtool(text: str) -> "dict[str, int]":
    """{name: value} of `ethtool -S`; of equal names the first.

    >>> parse_ethtool("NIC statistics:\\n     tx_timeout: 0\\n     [0]: rx_bytes: 7\\n")
    {'tx_timeout': 0, '[0]: rx_bytes': 7}
    """
    values: "dict[str, int]" = {}
    for row in text_lines(text):
        name, _, value = row.strip().rpartition(":")
        number, _ = attempt(integer, value)
        if name and number is not None:
            values.setdefault(name, number)
    return values


def driver_counters(root: str, name: str, counter_names: "Iterable[str]") -> "list[dict[str, Any]]":
    """The counters of a NIC's driver with these names."""
    values, why = None, "ethtool says it of the running machine alone"
    if root == "/":
        values, why = attempt(ethtool, name)
    if values is None:
        return [
            {"name": counter, "value": None, "errors": {"value": why}} for counter in counter_names
        ]
    return [
        {"name": counter, "value": values[counter]}
        for counter in counter_names
        if counter in values
    ]


def ethtool(name: str) -> "dict[str, int]":
    """`ethtool -S` of an interface. Raises ValueError."""
    if name.startswith("-"):
        raise ValueError("ethtool would take its name for an option")
    try:
        return parse_ethtool(output_of([find_program("ethtool"), "-S", name], ETHTOOL_SECONDS))
    except ToolError as error:
        raise ValueError(str(error))


def interface(root: str, name: str, kind: str) -> "Reading":
    """The record of an interface."""
    folder = real_folder(root, "{}/{}/".format(CLASS, name))
    record = Reading(name=name, kind=kind)
    record.take("type", parsed, root, folder + "type", integer)
    record.take("address", line, root, folder + "address")
    record.take("admin_up", parsed, root, folder + "flags", parse_admin)
    record.take("operstate", line, root, folder + "operstate")
    record.take("carrier", parsed, root, folder + "carrier", flag)
    record.take("speed_mbps", parsed, root, folder + "speed", parse_speed)
    record.take("duplex", line, root, folder + "duplex")
    record.take("mtu", parsed, root, folder + "mtu", integer)
    record.take("master", link_target, root, folder, "master")
    record.take("lower", lower_interfaces, root, folder)
    record.take("counters", all_counters, root, folder)
    if kind in HAVE_RINGS:
        record.take("rings", ring_sizes, root, name)
    else:
        record.fail("rings", "this kind of interface has none of its own")
    if kind in ("physical", "virtual_function"):
        record.take("driver", link_name, root, folder + "device/driver")
        record.take("bus_id", bus_id, root, folder.rstrip("/"))
        record.take("numa_node", numa_node, root, folder + "device/")
    else:
        record.update(driver="", bus_id="", numa_node=-1)
    return record


def numa_node(root: str, device: str) -> int:
    """-1 also on a bus without NUMA nodes. Raises OSError, ValueError."""
    try:
        return parsed(root, device + "numa_node", integer)
    except FileNotFoundError:
        return -1


def physical_kind(root: str, folder: str) -> str:
    """The kind of a device's interface: a partition of an InfiniBand port (ib0.8001) and the near
    end of a virtual function are not links of their own."""
    if exists(root, folder + "parent"):
        return "ipoib_child"
    name, _ = attempt(line, root, folder + "phys_port_name")
    return "representor" if name and REPRESENTOR.match(name) else "physical"


def kinds(root: str) -> "dict[str, str]":
    """{name: kind} of every interface. Raises OSError, ValueError."""
    kinds_by_name = {}
    for name in names(root, CLASS):
        folder = "{}/{}/".format(CLASS, name)
        if exists(root, folder + "device/physfn"):
            kinds_by_name[name] = "virtual_function"
        elif exists(root, folder + "device") or ON_A_BUS.match(resolve(root, folder)):
            kinds_by_name[name] = physical_kind(root, folder)
        elif os.path.isdir(path_under(root, folder)):  # bonding_masters is a file
            kinds_by_name[name] = virtual_kind(root, folder)
    return kinds_by_name


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", no_note)
    try:
        kinds_by_name = kinds(root)
    except FileNotFoundError:
        raise Absent("the kernel has no network: no " + CLASS)
    asks = request.get("asks", {}).get("network", ())
    patterns = [ask for ask in asks if not ask.startswith(COUNTER)]
    counter_names = sorted(ask[len(COUNTER) :] for ask in asks if ask.startswith(COUNTER))
    driver_names = [ask for ask in counter_names if ask not in STATISTICS + CARRIER + BOND_COUNTERS]
    physical = [
        name for name in kinds_by_name if kinds_by_name[name] in ("physical", "virtual_function")
    ]
    masters = {link_target(root, "{}/{}/".format(CLASS, name), "master") for name in physical}
    selected = sorted(
        name
        for name in kinds_by_name
        if name in physical
        or name in masters
        or kinds_by_name[name] in VIRTUAL_KINDS
        or any(fnmatchcase(name, pattern) for pattern in patterns)
    )
    network = Reading(others=len(kinds_by_name) - len(selected))
    if len(selected) > LARGEST:
        why = "{} interfaces, more than {}".format(len(selected), LARGEST)
        network.fail_all(("interfaces", "found"), why)
        return network
    network["interfaces"] = []
    for name in selected:
        note(name)
        record = interface(root, name, kinds_by_name[name])
        if driver_names and name in physical[:ETHTOOL_MOST] and record["counters"] is not None:
            record["counters"] += driver_counters(root, name, driver_names)
        network["interfaces"].append(record)
    network["found"] = selected
    return network
