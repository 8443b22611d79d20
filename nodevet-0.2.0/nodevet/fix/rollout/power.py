"""The power of a node, as its BMC switches it. A feature implements it (nodevet.bmc.powering)."""

from collections.abc import Callable, Mapping
from typing import Protocol

from nodevet.checking.bmc_identity import BmcMatch, MachineIds

REBOOT = "reboot"  # asked of the operating system, or by the drain hook
ON = "on"  # the last request of a power cycle, which begins with others


class NodePower(Protocol):
    """The power of one node. Every method but `text` and `refusal` raises UserError."""

    def ready(self) -> None:
        """Read the password."""

    def text(self) -> str:
        """`its BMC says that the power is on`, or why it cannot be read."""

    def identity(self, node: MachineIds) -> BmcMatch:
        """Whether the BMC belongs to the node with these ids."""

    def refusal(self, found: BmcMatch) -> str:
        """Why a BMC with this match may not switch the node; empty if it may."""

    def cycle(
        self,
        asked: Callable[[str], None],
        *,
        node: MachineIds,
        runs: bool,
        rebooted: Callable[[], bool],
    ) -> None:
        """Switch the node off and on. `asked` is called before each request, with what the BMC is
        asked for. `node`: what identifies it. `runs`: the node answers, so its power is on.
        `rebooted`: whether the node answers in another boot by now."""

    def switch_on_if_off(self, asked: Callable[[str], None], *, node: MachineIds) -> bool:
        """Whether the node was off, and was switched on."""


Powers = Mapping[str, NodePower]
"""By host; of those whose BMC the inventory names."""
