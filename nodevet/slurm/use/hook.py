"""The drain hook of plan and apply: takes a node out of Slurm, reboots it, and gives it back."""

import time
from collections.abc import Callable, Sequence

from nodevet.base.plan_marks import is_mark, is_of
from nodevet.base.printable import brief
from nodevet.slurm import scontrol
from nodevet.slurm.decide import names_in_slurm, why_not_drained
from nodevet.slurm.nodes import ControllerNode
from nodevet.slurm.reason import PLAN, VISIT, Trouble, marked, reason_text, unmarked
from nodevet.slurm.scontrol import SlurmError

PAUSES = (1.0, 2.0, 5.0, 10.0)  # seconds between looks; the last one repeats
Say = Callable[[str], None]


def drain(
    host: str, plan: str, checks: Sequence[str], offer: Say, say: Say, reservation: str = ""
) -> None:
    """Drain a node for a plan, or one run of it, and wait until its jobs have ended. It may be
    drained already, by nodevet or by Slurm for a failed prolog; then its reason gets the plan's
    mark. `offer` gets the names of what the hook can do later. `reservation`: the maintenance that
    must hold the node.
    Raises SlurmError."""
    node = _node(host)
    if reservation and reservation not in scontrol.maintenances(node.name):
        name = brief(reservation)
        raise SlurmError(f"{node.name} is not in the maintenance reservation {name} now")
    troubles = [Trouble(check, "is being fixed") for check in checks]
    reason = reason_text(run_of(plan), troubles or [Trouble(VISIT, "is being fixed")])
    _require_ours(node, reservation)
    offer("undrain reboot" if scontrol.reboots() else "undrain")
    if not node.is_drained:
        node = _drain(node, reason)
    elif node.own_reason is None or plan not in node.own_reason.plans:
        node = _drain(node, marked(node.written, plan))
    _wait_until(
        node,
        lambda node: not (node.has_jobs or node.is_unknown),
        lambda node: _require_drained(node, reservation),
        say,
    )


def require_no_other_plan(host: str, plan: str) -> None:
    """Raises SlurmError if apply has drained the node for another plan, or another run, too."""
    node = _node(host)
    plans = node.own_reason.plans if node.is_drained and node.own_reason else ()
    if other := next((mark for mark in plans if mark != plan), ""):
        works = f"apply works on {node.name} for plan {other}, too, and may be rebooting it"
        command = f"nodevet slurm hook {node.name} --do undrain --plan {other}"
        raise SlurmError(f"{works}; if it no longer runs: {command}")


def reboot(host: str, reservation: str = "") -> None:
    """Let Slurm reboot a node that `drain` has drained; it stays drained. Raises SlurmError.

    Without ASAP, after which Slurm takes the node back into service before anyone has vetted it.
    """
    node = _node(host)
    _require_drained(node, reservation)
    if node.has_jobs:
        raise SlurmError(f"jobs run on {node.name}")
    scontrol.reboot(node.name)


def undrain(host: str, plan: str, unchanged: Say, say: Say) -> None:
    """Resume a node if `drain` drained it for this plan, or for this run of it. A node that others
    drained, or nodevet for another reason, stays drained: `unchanged` gets who holds it. Raises
    SlurmError."""
    node = _wait_until(_node(host), _is_settled, lambda node: None, say)
    own = node.own_reason if node.is_drained else None
    marks = [mark for mark in own.plans if is_of(mark, plan)] if own else []
    for mark in marks:
        if node.own_reason and (node.own_reason.run, node.own_reason.plans) != (
            run_of(mark),
            (mark,),
        ):
            node = _drain(node, unmarked(node.written, mark))
    if (
        not node.is_drained
        or node.own_reason is None
        or node.own_reason.plans not in [(mark,) for mark in marks]
    ):
        stays = "stays drained" if node.is_drained else "is no longer drained for this plan"
        unchanged(f"{node.name} {stays}: {_state_text(node)}")
        return
    try:
        scontrol.resume([node.name])
    except SlurmError:  # it may have resumed the node
        if scontrol.read_node(node.name).is_drained:
            raise
    node = scontrol.read_node(node.name)
    if node.is_drained:
        raise SlurmError(f"{node.name} is drained again: {_state_text(node)}")


def _drain(node: ControllerNode, reason: str) -> ControllerNode:
    """The node, drained for this reason. Raises SlurmError."""
    scontrol.drain([node.name], reason)
    node = scontrol.read_node(node.name)
    if not node.is_drained or reason not in (node.reason, node.written):
        raise SlurmError(f"Slurm did not keep the drain of {node.name}: {_state_text(node)}")
    return node


def _is_settled(node: ControllerNode) -> bool:
    return not (node.is_rebooting or node.is_unknown)


def run_of(plan: str) -> str:
    """The first word of a reason for this plan. Raises SlurmError."""
    if not is_mark(plan):
        raise SlurmError("NODEVET_PLAN is not a plan id; nodevet apply sets it for this hook")
    return f"{PLAN}{plan}"


def _node(host: str) -> ControllerNode:
    for name in names_in_slurm(host):
        if node := scontrol.read_nodes([name]).get(name):
            return node
    raise SlurmError(f"Slurm has no node {brief(host)}")


def _require_ours(node: ControllerNode, reservation: str) -> None:
    """Raises SlurmError if someone else is working on the node."""
    if node.is_rebooting:
        raise SlurmError(f"{node.name} is being rebooted: {_state_text(node)}")
    if node.is_drained and not node.reason:
        raise SlurmError(f"someone drained {node.name} and gave no reason")
    if node.is_foreign:
        raise SlurmError(f"refused to drain {node.name}: {why_not_drained(node, '')}")
    _require_no_other_maintenance(node, reservation)


def _require_no_other_maintenance(node: ControllerNode, reservation: str) -> None:
    """Raises SlurmError if another maintenance reservation than the named one holds the node."""
    others = set(scontrol.maintenances(node.name)) - {reservation} if node.is_maintained else set()
    if others:
        place = f"{node.name} is in the maintenance reservation {brief(min(others))}"
        raise SlurmError(f"{place}; if this reservation is yours, name it with --reservation")


def _require_drained(node: ControllerNode, reservation: str) -> None:
    _require_ours(node, reservation)
    if not node.is_drained:
        raise SlurmError(f"someone has resumed {node.name}")


def _wait_until(
    node: ControllerNode,
    is_done: Callable[[ControllerNode], bool],
    require: Callable[[ControllerNode], None],
    say: Say,
) -> ControllerNode:
    """Read a node until it `is_done`, also while the controller does not answer. apply ends a hook
    that takes too long. Raises what `require` raises."""
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


def _state_text(node: ControllerNode) -> str:
    reason = f", {brief(node.reason)!r}" if node.reason else ""
    by = f" by {brief(node.user)}" if node.user else ""
    return f"{'+'.join(node.states)}{reason}{by}"
