"""What is wrong with the keys of a node or template, each by itself."""

import json
from collections.abc import Iterator

import pydantic

from nodevet.document.tree import Complaint, Mapping, Node, Scalar, Sequence, plain
from nodevet_sim.faults import FAULTS
from nodevet_sim.scenario.complaints import complaints, known_keys
from nodevet_sim.scenario.format import NodePart

KEYS = known_keys(NodePart)
MERGED = ("nvml", "files", "modules")  # of template and node, key by key; their values are text


def spelled(node: Mapping) -> dict[str, object]:
    """The tree as plain data, but each value of MERGED as text, in its spelling."""
    return {
        entry.key: _texts(entry.value) if entry.key in MERGED else plain(entry.value)
        for entry in node.entries
    }


def _texts(node: Node) -> object:
    if not isinstance(node, Mapping):
        return plain(node)
    return {entry.key: _text(entry.value) for entry in node.entries}


def _text(node: Node) -> object:
    if not isinstance(node, Scalar) or node.value is None:
        return plain(node)
    return str(int(node.value)) if isinstance(node.value, bool) else node.text


def wrong(node: Mapping) -> Iterator[Complaint]:
    """Everything that a node or template cannot say."""
    try:
        NodePart.model_validate_json(json.dumps(spelled(node)))
    except pydantic.ValidationError as error:
        yield from complaints(error, node, KEYS)
    yield from _parameters(node)


def _parameters(node: Mapping) -> Iterator[Complaint]:
    faults = node.get("faults")
    value = faults.value if faults else None
    listed = value.items if isinstance(value, Sequence) else (value,)
    for place, item in enumerate(listed):
        for entry in item.entries if isinstance(item, Mapping) else ():
            if entry.key not in FAULTS or not isinstance(entry.value, Mapping):
                continue
            model = FAULTS[entry.key].params
            try:
                model.model_validate_json(json.dumps(plain(entry.value)))
            except pydantic.ValidationError as error:
                for complaint in complaints(error, entry.value, known_keys(model)):
                    yield Complaint(
                        path=("faults", place, entry.key, *complaint.path),
                        place=complaint.place,
                        message=complaint.message,
                        advice=complaint.advice,
                    )
