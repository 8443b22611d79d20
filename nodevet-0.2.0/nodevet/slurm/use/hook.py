"""The drain hook of plan and apply: takes a node out of Slurm, reboots it, and gives it back."""

import re
import time
from collections.abc import Callable, Sequence

from nodevet.base.printable import brief
from nodevet.slurm import scontrol
from nodevet.slurm.decide import left_alone, names_in_slurm
from nodevet.slurm.nodes import ControllerNode
from nodevet.slurm.reason import PLAN, VISIT, Trouble, reason_text
from nodevet.slurm.scontrol import SlurmError

PAUSES = (1.0, 2.0, 5.0, 10.0)  # seconds between looks; the last one repeats
PLAN_ID = re.compile(r"[A-Za-z0-9]{8,16}")
Tell = Callable[[str], None]


def drain(
    host: str, plan: str, checks: Sequence[str], offer: Tell, say: Tell, reservation: str = ""
) -> None:
    """Drain a node for a plan, unless nodevet has drained it already or Slurm did for a failed
    prolog, and wait until its jobs have ended. `offer` gets what the hook can do later.
    `reservation`: the maintenance that the node has to be in. Raises SlurmError."""
    node = _node(host)
    if reservation and reservation not in scontrol.maintenances(node.name):
        named = brief(reservation)
        raise SlurmError(f"{node.name} is not in the maintenance reservation {named} now")
    troubles = [Trouble(check, "is being fixed") for check in checks]
    reason = reason_text(run_of(plan), troubles or [Trouble(VISIT, "is being fixed")])
    _require_ours(node, reservation)
    offer("undrain reboot" if scontrol.reboots() else "undrain")
    if not node.is_drained:
        scontrol.drain([node.name], reason)
        node = scontrol.read_node(node.name)
        if not node.is_drained or node.reason != reason:
            raise SlurmError(f"{node.name} was changed meanwhile: {_standing(node)}")
    _until(
        node,
        lambda node: not node.has_jobs,
        lambda node: _require_drained(node, reservation),
        say,
    )


def reboot(host: str, reservation: str = "") -> None:
    """Let Slurm reboot a node that `drain` has drained; it stays drained. Raises SlurmError.

    Without ASAP, after which Slurm takes the node back into service before anyone has vetted it.
    """
    node = _node(host)
    _require_drained(node, reservation)
    if node.has_jobs:
        raise SlurmError(f"jobs run on {node.name}")
    scontrol.reboot(node.name)


def undrain(host: str, plan: str, say: Tell) -> None:
    """Give a node back if `drain` took it for this plan; what others drained, and what nodevet
    drained for another reason, stays. Raises SlurmError."""
    node = _until(_node(host), lambda node: not node.is_rebooting, lambda node: None, say)
    if not node.is_drained or node.own is None or node.own.run != run_of(plan):
        say(f"{node.name} is left as it is: {_standing(node)}")
        return
    scontrol.resume([node.name])
    node = scontrol.read_node(node.name)
    if node.is_drained:
        raise SlurmError(f"{node.name} is drained again: {_standing(node)}")


def run_of(plan: str) -> str:
    """The word for a plan in a reason. Raises SlurmError."""
    if not PLAN_ID.fullmatch(plan):
        raise SlurmError("NODEVET_PLAN names no plan: nodevet apply calls this hook and sets it")
    return f"{PLAN}{plan}"


def _node(host: str) -> ControllerNode:
    for name in names_in_slurm(host):
        if node := scontrol.read_nodes([name]).get(name):
            return node
    raise SlurmError(f"Slurm has no node {brief(host)}")


def _require_ours(node: ControllerNode, reservation: str) -> None:
    """Raises SlurmError if someone else is at work on the node."""
    if node.is_rebooting:
        raise SlurmError(f"{node.name} is being rebooted: {_standing(node)}")
    if node.is_drained and not node.reason:
        raise SlurmError(f"someone drained {node.name} and gave no reason")
    if node.is_foreign:
        raise SlurmError(f"{node.name} is left alone, {left_alone(node, '')}")
    _require_no_other_maintenance(node, reservation)


def _require_no_other_maintenance(node: ControllerNode, reservation: str) -> None:
    """Raises SlurmError if a maintenance reservation holds the node that is not the named one."""
    others = set(scontrol.maintenances(node.name)) - {reservation} if node.is_maintained else set()
    if others:
        named = f"{node.name} is in the maintenance reservation {brief(min(others))}"
        raise SlurmError(f"{named}; if that is yours, see --reservation")


def _require_drained(node: ControllerNode, reservation: str) -> None:
    _require_ours(node, reservation)
    if not node.is_drained:
        raise SlurmError(f"someone has resumed {node.name}")


def _until(
    node: ControllerNode,
    is_done: Callable[[ControllerNode], bool],
    require: Callable[[ControllerNode], None],
    say: Tell,
) -> ControllerNode:
    """Look at a node until it `is_done`; a controller that does not answer is asked again. apply
    ends a hook that takes too long. Raises what `require` raises."""
    looks = 0
    while True:
        require(node)
        if is_done(node):
            return node
        time.sleep(PAUSES[min(looks, len(PAUSES) - 1)])
        looks += 1
        try:
            node = scontrol.read_node(node.name)
        except SlurmError as error:
            say(f"still waiting for {node.name}: {error}")


def _standing(node: ControllerNode) -> str:
    reason = f", {brief(node.reason)!r}" if node.reason else ""
    by = f" by {brief(node.user)}" if node.user else ""
    return f"{'+'.join(node.states)}{reason}{by}"
