"""The network of a fleet: one namespace and one pair of interfaces for each node. Pure.

Nodes have addresses of 198.18.0.0/15, which RFC 2544 keeps for tests of networks, and
no route but the one to this machine: nothing leaves it.
"""

from dataclasses import dataclass

MOST_FLEETS = 250
MOST_NODES = 250
PREFIX = "nvsim"  # of this machine's interfaces; names have at most 15 characters


@dataclass(frozen=True)
class NodeNetwork:
    """What one node is connected with."""

    fleet: int  # 0 to MOST_FLEETS - 1
    node: int  # 0 to MOST_NODES - 1

    @property
    def address(self) -> str:
        return f"198.18.{self.fleet}.{self.node + 1}"

    @property
    def gateway(self) -> str:
        """This machine's end."""
        return f"198.18.{self.fleet}.254"

    @property
    def interface(self) -> str:
        """This machine's interface."""
        return f"{PREFIX}{self.fleet}n{self.node}"


def up(network: NodeNetwork, namespace: str) -> tuple[tuple[str, ...], ...]:
    """The commands that make the namespace and connect it.

    The interfaces are gone when the namespace is, and that is when its last user is gone.
    """
    outer, inner = network.interface, "eth0"
    inside = ("ip", "-n", namespace)
    return (
        ("ip", "netns", "add", namespace),
        (
            *("ip", "link", "add", outer, "type", "veth"),
            *("peer", "name", inner, "netns", namespace),
        ),
        ("ip", "addr", "add", network.gateway, "peer", network.address, "dev", outer),
        ("ip", "link", "set", outer, "up"),
        (*inside, "addr", "add", network.address, "peer", network.gateway, "dev", inner),
        (*inside, "link", "set", inner, "up"),
        (*inside, "link", "set", "lo", "up"),
    )
