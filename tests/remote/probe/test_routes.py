"""Default routes and addresses: from the kernel's own answer, or from files of another root."""

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote.probe import netlink
from nodevet.remote.probe.collectors import routes
from nodevet.remote.probe.files import Absent

Check = Callable[[str, dict[str, Any]], Any]

HEAD = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
TRIE = """\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.1.0.0/16 2 0 2
           |-- 10.1.0.7
              /32 host LOCAL
        |-- 10.1.255.255
           /32 link BROADCAST
Local:
        +-- 127.0.0.0/31 1 0 0
           |-- 127.0.0.1
              /32 host LOCAL
           |-- 10.1.0.7
              /32 host LOCAL
           |-- 172.16.0.9
              /32 host LOCAL
           |-- 192.168.5.5
              /32 host LOCAL
"""
INET6 = """\
20010db8000000000000000000000007 04 40 00 80     eno1
fe80000000000000a288c2fffeaabbcc 04 40 20 80     eno1
00000000000000000000000000000001 01 80 10 80       lo
"""
ZERO = "0" * 32
ROUTE6 = f"""\
20010db8000000000000000000000000 40 {ZERO} 00 {ZERO} 00000100 00000001 00000000 00000001     eno1
{ZERO} 00 {ZERO} 00 20010db8000000000000000000000001 00000400 00000003 00000000 00000003     eno1
{ZERO} 00 {ZERO} 00 {ZERO} ffffffff 00000001 00000000 00200200       lo
"""


def word(address: str) -> str:
    """An address as /proc/net/route has it on this machine."""
    return f"{int.from_bytes(socket.inet_aton(address), sys.byteorder):08X}"


def row(name: str, destination: str, gateway: str, flags: int, metric: int, mask: str) -> str:
    words = [name, word(destination), word(gateway), f"{flags:04X}", "0", "0", str(metric)]
    return "\t".join([*words, word(mask), "0", "0", "0"]) + "\n"


ROUTES = HEAD + "".join(
    [
        row("eno1", "0.0.0.0", "10.1.0.1", 0x3, 100, "0.0.0.0"),
        row("eno2", "0.0.0.0", "0.0.0.0", 0x1, 200, "0.0.0.0"),
        row("*", "0.0.0.0", "0.0.0.0", 0x201, 0, "0.0.0.0"),  # unreachable default
        row("eno1", "10.1.0.0", "0.0.0.0", 0x1, 100, "255.255.0.0"),
        row("ib0", "172.16.0.0", "0.0.0.0", 0x1, 0, "255.255.0.0"),
        row("ib1", "172.16.0.0", "0.0.0.0", 0x1, 0, "255.255.0.0"),
    ]
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("proc/1/net", "proc/net"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "route").write_text(HEAD)
    place = tmp_path / "proc/1/net"
    for name, text in (
        ("route", ROUTES), ("fib_trie", TRIE), ("if_inet6", INET6), ("ipv6_route", ROUTE6),
    ):  # fmt: skip
        (place / name).write_text(text)
    return tmp_path.resolve()


def test_default_routes_are_those_of_pid_1_and_not_of_the_reader(root: Path, check: Check) -> None:
    found = check("routes", routes.collect(str(root), {}))
    told = [(each.interface, each.gateway, each.metric) for each in found.default_ipv4]
    assert told == [("eno1", "10.1.0.1", 100), ("eno2", "", 200)]
    (sixth,) = found.default_ipv6
    assert (sixth.interface, sixth.gateway, sixth.metric) == ("eno1", "2001:db8::1", 1024)


def test_addresses_that_only_one_interface_can_have(root: Path, check: Check) -> None:
    found = check("routes", routes.collect(str(root), {}))
    told = {each.name: each.addresses for each in found.interfaces}
    assert told == {"eno1": ("10.1.0.7/16", "2001:db8::7/64")}
    assert found.unplaced == ("172.16.0.9", "192.168.5.5")


def test_each_part_fails_alone(root: Path, check: Check) -> None:
    (root / "proc/1/net/fib_trie").unlink()
    (root / "proc/1/net/ipv6_route").write_text(f"{ZERO} 00 and so on\n")
    found = check("routes", routes.collect(str(root), {}))
    assert found.why("interfaces") == "ENOENT" and "not a route" in found.why("default_ipv6")
    assert len(found.default_ipv4) == 2
    (root / "proc/1/net/route").write_text(HEAD + "eno1\tworld\n")
    assert "not a route" in check("routes", routes.collect(str(root), {})).why("default_ipv4")


def test_a_kernel_without_ipv6_has_no_ipv6_routes(root: Path, check: Check) -> None:
    for name in ("if_inet6", "ipv6_route"):
        (root / f"proc/1/net/{name}").unlink()
    found = check("routes", routes.collect(str(root), {}))
    assert found.default_ipv6 == () and found.interfaces[0].addresses == ("10.1.0.7/16",)


def test_only_the_first_addresses_of_an_interface_are_listed() -> None:
    pairs = [("kube-ipvs0", f"10.0.{at // 256}.{at % 256}/32") for at in range(3000)]
    (found,) = routes.by_interface([*pairs])
    assert (len(found["addresses"]), found["count"]) == (64, 3000)


def test_a_tree_without_routes_says_so(tmp_path: Path) -> None:
    with pytest.raises(Absent):
        routes.collect(str(tmp_path), {})


def test_values_of_the_running_kernel_are_read(check: Check) -> None:
    check("routes", routes.collect("/", {}))
    assert ("lo", "127.0.0.1/8") in netlink.addresses()


@pytest.mark.parametrize("data", [b"\x01", b"\xff" * 16, b"\x04\0\0\0" + bytes(12)])
def test_an_invalid_netlink_message_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="netlink message"):
        list(netlink.messages(data))


@pytest.mark.parametrize(
    "data", [b"", bytes(8), bytes(8) + b"\x03\0\0\0", bytes(8) + b"\xff\0\2\0"]
)
def test_an_invalid_netlink_address_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"address|attribute"):
        netlink.parse_address(data)
