"""A governor that is set and does not show, since a fault sets it after that. Pure."""

import json

from nodevet_sim.description import SimulatedNode
from nodevet_sim.faults.node import GOVERNOR
from nodevet_sim.scenario.change import changed
from nodevet_sim.scenario.describe import describe
from nodevet_sim.scenario.spec import NodeSpec


def hidden_by(spec: NodeSpec) -> str:
    """Which fault hides the governor that the node says, with what to do; empty if none does."""
    governor = spec.part.governor
    if governor is None or _shows(describe(spec), governor):
        return ""
    said = spec.said.get("faults") or []
    faults = said if isinstance(said, list) else [said]
    for at, fault in enumerate(faults):
        others = json.dumps([*faults[:at], *faults[at + 1 :]])
        if _shows(describe(changed(spec, "faults", others)), governor):
            name = fault if isinstance(fault, str) else next(iter(fault))
            return (
                f"governor={governor} changes nothing: the fault {name} sets it; take that away in "
                f"the same command: 'faults={others}'"
            )
    return ""


def _shows(node: SimulatedNode, governor: str) -> bool:
    return all(
        content == f"{governor}\n"
        for path, content in node.files.items()
        if GOVERNOR.fullmatch(path)
    )
