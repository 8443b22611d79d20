"""Who configures the interfaces of section network, and which of them carry nodevet's session.

The session's addresses are those of SSH_CONNECTION, ssh(1), in the environment of this process or
of one that started it: sudo removes the variable.
"""

import json
import os
import re
from collections import Counter

from nodevet.remote.probe.files import Absent, Reading, attempt, line, names, read, split_stat
from nodevet.remote.probe.link_configs import (
    FROM_NETPLAN,
    ifupdown,
    networkd_files,
    nm_managed,
    of_ifupdown,
    of_netplan,
    of_networkd,
    of_nm,
    output,
    parse_definitions,
)
from nodevet.remote.probe.link_files import link_file, properties
from nodevet.remote.systemd import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

ASKED = True
AFTER = ("network",)
CLASS = "/sys/class/net"
UNITS = ("systemd-networkd.service", "NetworkManager.service")
LARGEST = 512  # interfaces
SESSION = re.compile(
    r"(?:^|\0)SSH_CONNECTION=([0-9a-fA-F:.]{2,45})(?:%\S+)? [0-9]+"
    r" ([0-9a-fA-F:.]{2,45})(?:%(\S+))? [0-9]+(?:\0|\Z)"
)
NO_SESSION = "no process here has SSH_CONNECTION, which names the session's addresses"


def parse_session(environ: str) -> "tuple[str, str, str] | None":
    """(the client's address, the node's own, its interface or "") of an environment.

    >>> parse_session("A=1\\0SSH_CONNECTION=192.0.2.7 55044 192.0.2.1 22\\0")
    ('192.0.2.7', '192.0.2.1', '')
    """
    match = SESSION.search(environ)
    return (match.group(1), match.group(2), match.group(3) or "") if match else None


def session() -> "tuple[str, str, str]":
    """As `parse_session`, of this process or its nearest ancestor. Raises OSError, ValueError."""
    pid = os.getpid()
    while pid > 0:
        found = parse_session(read("/", "/proc/{}/environ".format(pid)))
        if found:
            return found
        pid = int(split_stat(read("/", "/proc/{}/stat".format(pid)))[1][1])
    raise ValueError(NO_SESSION + " it is reached")


def rows(*words: str) -> "list[dict[str, Any]]":
    """What `ip -j` prints, without empty rows. Raises ValueError."""
    answer = json.loads(output("ip", "-j", *words) or "[]")
    return [row for row in answer if row]


def devices(routes: "Iterable[dict[str, Any]]") -> "set[str]":
    """The interfaces of routes, of each next hop.

    >>> sorted(devices([{"dev": "a"}, {"nexthops": [{"dev": "b"}, {"dev": "c"}]}]))
    ['a', 'b', 'c']
    """
    hops = [hop for route in routes for hop in [route] + list(route.get("nexthops", ()))]
    return {hop["dev"] for hop in hops if "dev" in hop}


def carriers() -> "list[str]":
    """The interfaces of the default routes and of this session. Raises OSError, ValueError."""
    families = ["-4"] + (["-6"] if os.path.exists("/proc/net/if_inet6") else [])
    routes = [route for family in families for route in rows(family, "route", "show", "default")]
    client, own, interface = session()
    if interface:
        return sorted(devices(routes) | {interface})
    having = {row["ifname"] for row in rows("address", "show", "to", own) if "ifname" in row}
    answers = devices(rows("route", "get", client, "from", own))
    if not having or not answers:
        raise ValueError("no interface has the address of this session, " + own)
    return sorted(devices(routes) | having | answers)


def adjacent(root: str, name: str, side: str) -> "list[str]":
    """The interfaces right below or above one. Raises OSError, ValueError."""
    entries = names(root, "{}/{}".format(CLASS, name))
    return [entry[len(side) :] for entry in entries if entry.startswith(side)]


def with_lower(root: str, wanted: "Iterable[str]") -> "list[str]":
    """These interfaces, and all below them."""
    reached: "list[str]" = []
    remaining = list(wanted)
    while remaining and len(reached) < LARGEST:
        name = remaining.pop(0)
        if name not in reached:
            reached.append(name)
            remaining += attempt(adjacent, root, name, "lower_")[0] or []
    return sorted(reached)


class Managers(object):
    """What each manager says of all interfaces. Raises OSError, ValueError."""

    def __init__(self, root: str) -> None:
        states = [row.get("ActiveState") for row in show(UNITS, ("ActiveState",))]
        self.root = root
        self.networkd = networkd_files(root) if states[0] == "active" else {}
        self.nm = nm_managed() if states[1] == "active" else {}
        self.ifupdown = ifupdown(root)
        self.udev = properties(root)
        self.definitions: "dict[str, tuple[str, str]] | None" = None  # of netplan
        paths = list(filter(None, self.networkd.values())) + [path for _, path in self.nm.values()]
        self.shared = Counter(paths)

    def of_netplan(self, name: str, record: "Reading") -> "Reading":
        """As link_configs.of_netplan. Raises ValueError."""
        if self.definitions is None and FROM_NETPLAN.match(str(record["path"])):
            self.definitions = parse_definitions(output("netplan", "get"))
        return of_netplan(self.root, name, record, self.definitions or {})

    def managers(self, name: str) -> "list[Reading]":
        """The records of the managers of one interface. Raises OSError, ValueError."""
        records = []
        index = line(self.root, "{}/{}/ifindex".format(CLASS, name))
        if index in self.networkd:
            path = self.networkd[index]
            if path is None:
                raise ValueError("systemd-networkd has not configured it yet")
            records.append(of_networkd(self.root, path, self.shared[path]))
        if name in self.nm:
            uuid, path = self.nm[name]
            records.append(of_nm(self.root, uuid, path, self.shared[path] if path else 1))
        records = [self.of_netplan(name, record) for record in records]
        return records + of_ifupdown(name, self.ifupdown)

    def link_file(self, name: str) -> "Reading":
        """The record of udev's file for an interface. Raises OSError, ValueError."""
        index = line(self.root, "{}/{}/ifindex".format(CLASS, name))
        return link_file(self.root, name, index, self.udev)


def link(
    root: str, name: str, details: "dict[str, Any] | None", sources: "Managers | None", why: str
) -> "Reading":
    """The record of an interface."""
    record = Reading(name=name)
    if details is None:
        record.fail_all(("kind", "max_mtu"), "`ip -d link` does not list it")
    else:
        record["kind"] = str(details.get("linkinfo", {}).get("info_kind", ""))
        record["max_mtu"] = int(details.get("max_mtu", 0))
    record.take("lower", adjacent, root, name, "lower_")
    record.take("upper", adjacent, root, name, "upper_")
    if sources is None:
        record.fail_all(("managers", "link_file"), why)
    else:
        record.take("managers", sources.managers, name)
        record.take("link_file", sources.link_file, name)
    return record


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    if root != "/":
        raise Absent("the managers of interfaces are queried on a running machine only")
    network = request.get("found", {}).get("network", {}).get("data") or {}
    section = Reading()
    section.take("carriers", carriers)
    names_wanted = with_lower(root, list(network.get("found") or ()) + (section["carriers"] or []))
    listed, why = attempt(rows, "-d", "link", "show")
    details = {row.get("ifname"): row for row in listed or ()}
    sources, why = attempt(Managers, root)
    section["links"] = [link(root, name, details.get(name), sources, why) for name in names_wanted]
    return section
