"""The network of a fleet: one namespace and one pair of interfaces for each node.

Nodes have addresses of 198.18.0.0/15, which RFC 2544 keeps for tests of networks: one of 198.18,
by which this machine reaches them, and one of 198.19, of a network for storage; and one of IPv6, of
2001:2::/48, which RFC 5180 keeps for them. Their default routes go to addresses that do not answer:
nothing leaves this machine.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

MOST_FLEETS = 250
INNER = "eth0"  # the node's interface
PREFIX = "nvsim"  # of this machine's interfaces; names have at most 15 characters


@dataclass(frozen=True)
class NodeNetwork:
    """What one node is connected with."""

    fleet: int  # 0 to MOST_FLEETS - 1
    node: int  # 0 to MOST_NODES - 1
    owner: str  # the fleet's name, which the interface has as its alias

    @property
    def address(self) -> str:
        return f"198.18.{self.fleet}.{self.node + 1}"

    @property
    def gateway(self) -> str:
        """This machine's end."""
        return f"198.18.{self.fleet}.254"

    @property
    def router(self) -> str:
        """The target of the default route: nothing answers there."""
        return f"198.18.{self.fleet}.253"

    @property
    def storage(self) -> str:
        """In the second network."""
        return f"198.19.{self.fleet}.{self.node + 1}/24"

    @property
    def prefix_ipv6(self) -> str:
        """The first half of the addresses of its fleet."""
        return f"2001:2:0:{self.fleet:x}::"

    @property
    def interface(self) -> str:
        """This machine's interface."""
        return f"{PREFIX}{self.fleet}n{self.node}"


def interfaces(owner: str, number: int) -> Iterator[str]:
    """This machine's interfaces of a fleet. The number may be taken: a container that shares this
    machine's network has its own fleets. Source: /sys/class/net/*/ifalias.
    """
    for path in Path("/sys/class/net").glob(f"{PREFIX}{number}n*"):
        with suppress(OSError):  # it is just removed
            if (path / "ifalias").read_text(encoding="utf-8").rstrip("\n") == owner:
                yield path.name


def up(network: NodeNetwork, namespace: str) -> tuple[tuple[str, ...], ...]:
    """The commands that make the namespace and connect it.

    The interfaces end with the namespace, which ends with its last user.
    """
    outer, inner = network.interface, INNER
    inside = ("ip", "-n", namespace)
    return (
        ("ip", "netns", "add", namespace),
        (
            *("ip", "link", "add", outer, "type", "veth"),
            *("peer", "name", inner, "netns", namespace),
        ),
        ("ip", "addr", "add", network.gateway, "peer", network.address, "dev", outer),
        ("ip", "link", "set", outer, "up", "alias", network.owner),
        (*inside, "addr", "add", network.address, "peer", network.gateway, "dev", inner),
        (*inside, "link", "set", inner, "up"),
        (*inside, "link", "set", "lo", "up"),
    )


def default_route(network: NodeNetwork, namespace: str, verb: str) -> tuple[str, ...]:
    """The command that adds it, or with the verb `del` takes it away."""
    words = ("default", "via", network.router, "dev", INNER, "onlink")
    return ("ip", "-n", namespace, "route", verb, *words)


def default_route_ipv6(network: NodeNetwork, namespace: str, verb: str) -> tuple[str, ...]:
    """The same of IPv6."""
    words = ("default", "via", f"{network.prefix_ipv6}ffff", "dev", INNER)
    return ("ip", "-6", "-n", namespace, "route", verb, *words)


def address_ipv6(network: NodeNetwork, namespace: str, verb: str) -> tuple[str, ...]:
    """The same of the address of IPv6."""
    address = f"{network.prefix_ipv6}{network.node + 1:x}/64"
    return ("ip", "-6", "-n", namespace, "addr", verb, address, "dev", INNER, "nodad")


def storage_address(network: NodeNetwork, namespace: str, verb: str) -> tuple[str, ...]:
    """The same of the address in the second network."""
    return ("ip", "-n", namespace, "addr", verb, network.storage, "dev", INNER)
