"""Default routes and addresses, in the network namespace of the machine.

/proc/net/route, ipv6_route and if_inet6, proc(5). Which interface has which IPv4 address only
netlink says; below another root /proc/net/fib_trie says the addresses, and the routes to their
networks say the interface, if it is the only one that they name.
"""

import re
import socket
import struct

from nodevet.remote.probe.devices import exists
from nodevet.remote.probe.files import Absent, Reading, integer, quote, read_bytes
from nodevet.remote.probe.netlink import addresses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Sequence

PLACES = ("/proc/1/net", "/proc/net")  # below another root /proc/net is that of who reads it
LARGEST = 8 << 20  # bytes; 60,000 routes
SHOWN = 64  # addresses of an interface
DEFAULTS = 256
UP, GATEWAY, REJECT = 0x1, 0x2, 0x200  # RTF_*, linux/route.h
LOOPBACK, LINK = 0x10, 0x20  # scope of an IPv6 address
LOCAL = re.compile(r"\s*/32 host LOCAL\Z")
TRIE_ADDRESS = re.compile(r"\s*\|-- ([0-9.]{7,15})\Z")


def ipv4(word: str) -> str:
    """An address as /proc/net/route prints it, in the machine's own byte order. Raises ValueError.

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
    found = []
    for row in text.splitlines()[1:]:
        words = row.split()
        if len(words) < 8:
            raise ValueError("not a route: {}".format(quote(row)))
        name, destination, gateway, flags, _, _, metric, mask = words[:8]
        start, size = number(ipv4(destination)), number(ipv4(mask))
        found.append((name, start, ipv4(gateway), int(flags, 16), integer(metric), size))
    return found


def number(address: str) -> int:
    """
    >>> number("0.0.1.0")
    256
    """
    found: int = struct.unpack("!I", socket.inet_aton(address))[0]
    return found


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
    found = []
    for row in text.splitlines():
        if not row.startswith("0" * 32 + " 00 "):
            continue
        words = row.split()
        if len(words) != 10:
            raise ValueError("not a route: {}".format(quote(row)))
        flags, metric = int(words[8], 16), int(words[5], 16)
        if flags & UP and not flags & REJECT:
            gateway = ipv6(words[4]) if flags & GATEWAY else ""
            found.append({"interface": words[9], "gateway": gateway, "metric": metric})
    return bounded(found)


def bounded(routes: "Iterable[dict[str, object]]") -> "list[dict[str, object]]":
    found = list(routes)
    if len(found) > DEFAULTS:
        raise ValueError("more than {} default routes".format(DEFAULTS))
    return found


def parse_inet6(text: str) -> "list[tuple[str, str]]":
    """(interface, "2001:db8::1/64") of each address that is not of loopback or of one link.
    Raises ValueError."""
    found = []
    for row in text.splitlines():
        words = row.split()
        if len(words) != 6:
            raise ValueError("not an address: {}".format(quote(row)))
        if int(words[3], 16) not in (LOOPBACK, LINK):
            found.append((words[5], "{}/{}".format(ipv6(words[0]), int(words[2], 16))))
    return found


def parse_trie(text: str) -> "list[str]":
    """The machine's own IPv4 addresses, sorted, each once, apart from those of loopback."""
    found, last = set(), ""
    for row in text.splitlines():
        match = TRIE_ADDRESS.match(row)
        if match:
            last = match.group(1)
        elif last and LOCAL.match(row):
            found.add(last)
    return sorted(address for address in found if not address.startswith("127."))


def placed(
    own: "Iterable[str]", routes: "Sequence[tuple[str, int, str, int, int, int]]"
) -> "tuple[list[tuple[str, str]], list[str]]":
    """[(interface, "192.0.2.2/24")] of these addresses by the routes to their networks, and
    those that several interfaces could have, or none."""
    found, left = [], []
    for address in own:
        value = number(address)
        fits = [
            (mask, name)
            for name, destination, _, flags, _, mask in routes
            if mask and flags & UP and not flags & GATEWAY and value & mask == destination
        ]
        narrow = max((mask for mask, _ in fits), default=0)
        interfaces = {name for mask, name in fits if mask == narrow}
        if len(interfaces) == 1:
            found.append((interfaces.pop(), "{}/{}".format(address, bin(narrow).count("1"))))
        else:
            left.append(address)
    return found, left


def listed(pairs: "Iterable[tuple[str, str]]") -> "list[dict[str, object]]":
    """The addresses by interface; of an interface with many the first."""
    names: "dict[str, list[str]]" = {}
    for name, address in pairs:
        names.setdefault(name, []).append(address)
    return [
        {"name": name, "addresses": names[name][:SHOWN], "count": len(names[name])}
        for name in sorted(names)
    ]


def text_of(root: str, path: str) -> str:
    """A file of /proc/net, whole. Raises OSError, ValueError."""
    data = read_bytes(root, path, LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError("longer than {} MiB".format(LARGEST >> 20))
    return data.decode("utf-8", "backslashreplace")


def ipv4_addresses(
    root: str, place: str, routes: "Sequence[tuple[str, int, str, int, int, int]]"
) -> "tuple[list[tuple[str, str]], list[str]]":
    """As `placed` has them. Raises OSError, ValueError."""
    if root == "/":
        known = addresses()
        return [(name, address) for name, address in known if not address.startswith("127.")], []
    own = parse_trie(text_of(root, place + "/fib_trie"))
    if routes is None:
        raise ValueError("the routes were not read")
    return placed(own, routes)


def ipv6_addresses(root: str, place: str) -> "list[tuple[str, str]]":
    """Raises OSError, ValueError. A kernel without IPv6 has none."""
    try:
        return parse_inet6(text_of(root, place + "/if_inet6"))
    except FileNotFoundError:
        return []


def ipv6_defaults(root: str, place: str) -> "list[dict[str, object]]":
    """Raises OSError, ValueError. A kernel without IPv6 has none."""
    try:
        return parse_default_ipv6(text_of(root, place + "/ipv6_route"))
    except FileNotFoundError:
        return []


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    places = PLACES[1:] if root == "/" else PLACES
    place = next((each for each in places if exists(root, each + "/route")), None)
    if place is None:
        raise Absent("no /proc/net/route")
    found, read = Reading(), Reading()
    read.take("routes", lambda: parse_routes(text_of(root, place + "/route")))
    if read["routes"] is None:
        found.fail("default_ipv4", read["errors"]["routes"])
    else:
        found.take("default_ipv4", default_ipv4, read["routes"])
    found.take("default_ipv6", ipv6_defaults, root, place)
    read.take("ipv4", ipv4_addresses, root, place, read["routes"])
    read.take("ipv6", ipv6_addresses, root, place)
    why = read["errors"].get("ipv4") or read["errors"].get("ipv6")
    if why:
        found.fail_all(("interfaces", "unplaced"), why)
    else:
        known, found["unplaced"] = read["ipv4"]
        found["interfaces"] = listed(known + read["ipv6"])
    return found
