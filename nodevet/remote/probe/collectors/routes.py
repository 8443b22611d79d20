"""Default routes and addresses, in the network namespace of the machine.

/proc/net/route, ipv6_route and if_inet6, proc(5). netlink gives the interfaces of IPv4 addresses.
Below another root the addresses come from /proc/net/fib_trie, and their interfaces from the routes
to their networks, if those name only one.
"""

import re
import socket
import struct

from nodevet.remote.probe.devices import exists
from nodevet.remote.probe.files import Absent, Reading, integer, quote, read_bytes, text_lines
from nodevet.remote.probe.netlink import addresses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Sequence

FOLDERS = ("/proc/1/net", "/proc/net")  # below another root /proc/net is the reader's
LARGEST = 8 << 20  # bytes; 60,000 routes
MOST_ADDRESSES = 64  # addresses of an interface
DEFAULTS = 256
UP, GATEWAY, REJECT = 0x1, 0x2, 0x200  # RTF_*, linux/route.h
LOOPBACK, LINK = 0x10, 0x20  # scope of an IPv6 address
LOCAL = re.compile(r"\s*/32 host LOCAL\Z")
TRIE_ADDRESS = re.compile(r"\s*\|-- ([0-9.]{7,15})\Z")


def ipv4(word: str) -> str:
    """An address of /proc/net/route, in the machine's byte order. Raises ValueError.

    >>> ipv4("0100007F") if __import__("sys").byteorder == "little" else "127.0.0.1"
    '127.0.0.1'
    """
    if not re.match(r"[0-9A-F]{8}\Z", word):
        raise ValueError("not an address: {}".format(quote(word)))
    return socket.inet_ntoa(struct.pack("=I", int(word, 16)))


def ipv6(word: str) -> str:
    """An address of 32 hex digits. Raises ValueError."""
    if not re.match(r"[0-9a-f]{32}\Z", word):
        raise ValueError("not an address: {}".format(quote(word)))
    return socket.inet_ntop(socket.AF_INET6, bytes(bytearray.fromhex(word)))


def parse_routes(text: str) -> "list[tuple[str, int, str, int, int, int]]":
    """(interface, destination, gateway, flags, metric, mask) of each row. Raises ValueError."""
    routes = []
    for row in text_lines(text)[1:]:
        words = row.split()
        if len(words) < 8:
            raise ValueError("not a route: {}".format(quote(row)))
        name, destination, gateway, flags, _, _, metric, mask = words[:8]
        start, size = number(ipv4(destination)), number(ipv4(mask))
        routes.append((name, start, ipv4(gateway), int(flags, 16), integer(metric), size))
    return routes


def number(address: str) -> int:
    """
    >>> number("0.0.1.0")
    256
    """
    value: int = struct.unpack("!I", socket.inet_aton(address))[0]
    return value


def default_ipv4(
    routes: "Iterable[tuple[str, int, str, int, int, int]]",
) -> "list[dict[str, object]]":
    """The default routes that lead somewhere. Raises ValueError."""
    return bounded(
        {"interface": name, "gateway": gateway if flags & GATEWAY else "", "metric": metric}
        for name, destination, gateway, flags, metric, mask in routes
        if destination == mask == 0 and flags & UP and not flags & REJECT
    )


def parse_default_ipv6(text: str) -> "list[dict[str, object]]":
    """The default routes that lead somewhere. Raises ValueError."""
    routes = []
    for row in text_lines(text):
        if not row.startswith("0" * 32 + " 00 "):
            continue
        words = row.split()
        if len(words) != 10:
            raise ValueError("not a route: {}".format(quote(row)))
        flags, metric = int(words[8], 16), int(words[5], 16)
        if flags & UP and not flags & REJECT:
            gateway = ipv6(words[4]) if flags & GATEWAY else ""
            routes.append({"interface": words[9], "gateway": gateway, "metric": metric})
    return bounded(routes)


def bounded(routes: "Iterable[dict[str, object]]") -> "list[dict[str, object]]":
    checked = list(routes)
    if len(checked) > DEFAULTS:
        raise ValueError("more than {} default routes".format(DEFAULTS))
    return checked


def parse_inet6(text: str) -> "list[tuple[str, str]]":
    """(interface, "2001:db8::1/64") of each address that is not loopback or link-local. Raises
    ValueError."""
    addresses_found = []
    for row in text_lines(text):
        words = row.split()
        if len(words) != 6:
            raise ValueError("not an address: {}".format(quote(row)))
        if int(words[3], 16) not in (LOOPBACK, LINK):
            addresses_found.append((words[5], "{}/{}".format(ipv6(words[0]), int(words[2], 16))))
    return addresses_found


def parse_trie(text: str) -> "list[str]":
    """The machine's sorted IPv4 addresses, without loopback."""
    local_addresses, last = set(), ""
    for row in text_lines(text):
        match = TRIE_ADDRESS.match(row)
        if match:
            last = match.group(1)
        elif last and LOCAL.match(row):
            local_addresses.add(last)
    return sorted(address for address in local_addresses if not address.startswith("127."))


def assign_interfaces(
    own_addresses: "Iterable[str]", routes: "Sequence[tuple[str, int, str, int, int, int]]"
) -> "tuple[list[tuple[str, str]], list[str]]":
    """([(interface, "192.0.2.2/24")] by the routes to the addresses' networks, addresses without
    exactly one interface)."""
    pairs, unplaced = [], []
    for address in own_addresses:
        value = number(address)
        matching = [
            (mask, name)
            for name, destination, _, flags, _, mask in routes
            if mask and flags & UP and not flags & GATEWAY and value & mask == destination
        ]
        longest_mask = max((mask for mask, _ in matching), default=0)
        interfaces = {name for mask, name in matching if mask == longest_mask}
        if len(interfaces) == 1:
            pairs.append((interfaces.pop(), "{}/{}".format(address, bin(longest_mask).count("1"))))
        else:
            unplaced.append(address)
    return pairs, unplaced


def by_interface(pairs: "Iterable[tuple[str, str]]") -> "list[dict[str, object]]":
    """[{name, addresses: the first, count}] by interface."""
    names: "dict[str, list[str]]" = {}
    for name, address in pairs:
        names.setdefault(name, []).append(address)
    return [
        {"name": name, "addresses": names[name][:MOST_ADDRESSES], "count": len(names[name])}
        for name in sorted(names)
    ]


def text_of(root: str, path: str) -> str:
    """The text of a file of /proc/net. Raises OSError, ValueError."""
    data = read_bytes(root, path, LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError("longer than {} MiB".format(LARGEST >> 20))
    return data.decode("utf-8", "backslashreplace")


def ipv4_addresses(
    root: str, folder: str, routes: "Sequence[tuple[str, int, str, int, int, int]]"
) -> "tuple[list[tuple[str, str]], list[str]]":
    """As `assign_interfaces`. Raises OSError, ValueError."""
    if root == "/":
        pairs = addresses()
        return [(name, address) for name, address in pairs if not address.startswith("127.")], []
    own_addresses = parse_trie(text_of(root, folder + "/fib_trie"))
    if routes is None:
        raise ValueError("the routes were not read")
    return assign_interfaces(own_addresses, routes)


def ipv6_addresses(root: str, folder: str) -> "list[tuple[str, str]]":
    """Raises OSError, ValueError. A kernel without IPv6 has none."""
    try:
        return parse_inet6(text_of(root, folder + "/if_inet6"))
    except FileNotFoundError:
        return []


def ipv6_defaults(root: str, folder: str) -> "list[dict[str, object]]":
    """Raises OSError, ValueError. A kernel without IPv6 has none."""
    try:
        return parse_default_ipv6(text_of(root, folder + "/ipv6_route"))
    except FileNotFoundError:
        return []


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    folders = FOLDERS[1:] if root == "/" else FOLDERS
    folder = next((candidate for candidate in folders if exists(root, candidate + "/route")), None)
    if folder is None:
        raise Absent("no /proc/net/route")
    section, raw = Reading(), Reading()
    raw.take("routes", lambda: parse_routes(text_of(root, folder + "/route")))
    if raw["routes"] is None:
        section.fail("default_ipv4", raw["errors"]["routes"])
    else:
        section.take("default_ipv4", default_ipv4, raw["routes"])
    section.take("default_ipv6", ipv6_defaults, root, folder)
    raw.take("ipv4", ipv4_addresses, root, folder, raw["routes"])
    raw.take("ipv6", ipv6_addresses, root, folder)
    why = raw["errors"].get("ipv4") or raw["errors"].get("ipv6")
    if why:
        section.fail_all(("interfaces", "unplaced"), why)
    else:
        pairs, section["unplaced"] = raw["ipv4"]
        section["interfaces"] = by_interface(pairs + raw["ipv6"])
    return section
