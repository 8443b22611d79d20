"""Drains and resumes nodes as planned. It reads each node again right before and right after."""

from collections.abc import Callable, Iterable, Sequence

from nodevet.slurm import scontrol
from nodevet.slurm.decide import STARTING, NodePlan, why_not_drained
from nodevet.slurm.nodes import ControllerNode

AT_ONCE = 200  # nodes in one command
CHANGED = "its state in Slurm has just changed"


def drain(plans: Sequence[NodePlan], tag: str = "") -> list[NodePlan]:
    """Carry the plans out and return them; `why_not` is set if one failed. `tag`: see
    nodevet.slurm.reason."""
    return _in_groups(
        plans,
        lambda node, plan: why_not_drained(node, plan.reason),
        lambda names, reason: scontrol.drain(names, reason, tag),
        lambda node, plan: node.is_drained and node.reason == plan.reason,
    )


def resume(plans: Sequence[NodePlan]) -> list[NodePlan]:
    """Like `drain`."""
    return _in_groups(
        plans,
        _why_not_resumed,
        lambda names, _: scontrol.resume(names),
        lambda node, plan: not node.is_drained,
    )


def _why_not_resumed(node: ControllerNode, plan: NodePlan) -> str:
    if node.is_unknown:
        return STARTING
    return "" if node.is_drained and node.reason == plan.reason else CHANGED


def _in_groups(
    plans: Sequence[NodePlan],
    why_not: Callable[[ControllerNode, NodePlan], str],
    act: Callable[[Sequence[str], str], None],
    is_done: Callable[[ControllerNode, NodePlan], bool],
) -> list[NodePlan]:
    """Nodes with the same reason are one group, so that a large cluster needs few commands."""
    ended = {plan.node: plan for plan in plans}
    groups: dict[str, list[NodePlan]] = {}
    for plan in plans:
        if not plan.why_not:
            groups.setdefault(plan.reason, []).append(plan)
    for group in _pieces(groups.values()):
        ended.update(_one_group(group, why_not, act, is_done))
    return list(ended.values())


def _pieces(groups: Iterable[list[NodePlan]]) -> Iterable[list[NodePlan]]:
    for group in groups:
        for at in range(0, len(group), AT_ONCE):
            yield group[at : at + AT_ONCE]


def _one_group(
    group: list[NodePlan],
    why_not: Callable[[ControllerNode, NodePlan], str],
    act: Callable[[Sequence[str], str], None],
    is_done: Callable[[ControllerNode, NodePlan], bool],
) -> dict[str, NodePlan]:
    try:
        before = scontrol.read_nodes([plan.node for plan in group])
        refused = {plan.node: why_not(before[plan.node], plan) for plan in group}
        names = [name for name, why in refused.items() if not why]
        if names:
            act(names, group[0].reason)
        after = scontrol.read_nodes(names) if names else {}
    except scontrol.SlurmError as error:
        return {plan.node: plan._replace(why_not=str(error), is_short=True) for plan in group}
    ended = {}
    for plan in group:
        why = refused[plan.node]
        if not why and not is_done(after[plan.node], plan):
            why = f"Slurm did not keep this: its state is {'+'.join(after[plan.node].states)}"
        ended[plan.node] = plan._replace(why_not=why, is_short=bool(why))
    return ended
