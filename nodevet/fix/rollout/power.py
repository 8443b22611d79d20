"""The power of a node, as its BMC switches it. A feature implements it (nodevet.bmc.powering)."""

from collections.abc import Callable, Mapping
from typing import Protocol

REBOOT = "reboot"  # asked of the operating system, or by the drain hook
ON = "on"  # the last request of a power cycle, which begins with others


class NodePower(Protocol):
    """The power of one node. Every method but `text` raises UserError."""

    def ready(self) -> None:
        """Read the password."""

    def text(self) -> str:
        """`its BMC says that the power is on`, or why it cannot be read."""

    def cycle(self, asked: Callable[[str], None], *, runs: bool) -> None:
        """Switch the node off and on. `asked` is called before each request, with what the BMC is
        asked for. `runs`: the node answers, so its power is on."""

    def switch_on_if_off(self, asked: Callable[[str], None]) -> bool:
        """Whether the node was off, and was switched on."""


Powers = Mapping[str, NodePower]
"""By host; of those whose BMC the inventory names."""
