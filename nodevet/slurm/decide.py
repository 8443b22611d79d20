"""Whether a node is drained, or left as it is. Pure."""

from nodevet.base.printable import brief
from nodevet.slurm.nodes import ControllerNode
from nodevet.slurm.reason import parse

BUSY = "jobs run on it: a look after they end drains it"


def left_alone(node: ControllerNode, reason: str, *, idle_only: bool = False) -> str:
    """Why this node is not drained with this reason; "" if it is. `idle_only`: its jobs have to end
    first."""
    own, wished = node.own, parse(reason)
    if node.is_foreign:
        by = f" by {brief(node.user)}" if node.user else ""
        return f"its reason stays: {brief(node.reason)!r}{by}"
    if node.is_drained and own and wished and own.checks == wished.checks:
        return f"it is drained for this already: {node.reason}"
    if idle_only and node.has_jobs and not node.is_drained:
        return BUSY
    return ""
