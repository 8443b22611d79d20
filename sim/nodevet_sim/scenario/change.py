"""`nodevet sim set NODE KEY=VALUE`: a node's specification with one thing changed. Pure."""

import copy
import json
import re
from dataclasses import replace
from pathlib import Path

from nodevet.base.printable import brief
from nodevet.base.problems import Place, did_you_mean
from nodevet.document.parse import parse
from nodevet.document.text import Source
from nodevet.document.tree import dotted, plain
from nodevet_sim.description import LogLine
from nodevet_sim.scenario.errors import ScenarioError
from nodevet_sim.scenario.format import FIELDS, SHORT, NodePart
from nodevet_sim.scenario.spec import NodeKeys, NodeSpec, Origin
from nodevet_sim.scenario.validate import wrong
from nodevet_sim.state import SYSTEM_KEYS, StateError, line

ADDED = ("fault", "kernel_log")
NVML = re.compile(r"gpu\.(\*|\d{1,3})\.")


def changed(spec: NodeSpec, key: str, value: str) -> NodeSpec:
    """The specification after KEY=VALUE. Raises ScenarioError.

    KEY is a scenario's key of a node, with dots for nested keys; `gpu.3.lost` is short for
    `nvml.gpu.3.lost`, a path of /sys or /proc for one of `files`. `fault` adds one, `kernel_log` a
    line, now; every other key takes the place of what it was.
    """
    where = Origin(f"{brief(key)}={brief(value)}", Place())
    try:
        return _changed(spec, key, value, where)
    except StateError as error:
        raise ScenarioError([where.problem(spec.name, str(error))]) from error


def _changed(spec: NodeSpec, key: str, value: str, where: Origin) -> NodeSpec:
    said: NodeKeys = copy.deepcopy(spec.said)
    events = spec.events
    field = key.partition(".")[0]
    if key == "kernel_log" and not value.startswith("{"):
        _one_line(value)
        return replace(spec, events=(*events, LogLine(value, None)))
    if key.startswith(("/", "sys/", "proc/")):
        field, said["files"] = "files", {**_mapping(said, "files"), key: value}
    elif NVML.match(key) or key in SYSTEM_KEYS or field == "nvml":
        name = key.removeprefix("nvml.")
        line(name, value)
        field, said["nvml"] = "nvml", {**_mapping(said, "nvml"), name: value}
    elif key == "fault":
        known = said.get("faults") or []
        before = known if isinstance(known, list) else [known]
        events = (*events, len(before))
        field, said["faults"] = "faults", [*before, _value(value)]
    elif field not in FIELDS or field == "template":
        known_keys = (*(name for name in FIELDS if name != "template"), *ADDED)
        advice = did_you_mean(field, known_keys, f"choose one of: {', '.join(known_keys)}")
        raise StateError(f"a node has no key {brief(field)!r}; {advice}")
    else:
        _put(said, key.split("."), _value(value))
        if key == "faults":
            said["faults"] = said["faults"] or []
            events = tuple(event for event in events if isinstance(event, LogLine))
    return replace(
        spec,
        said=said,
        part=_part(said, where, spec.name),
        where={**spec.where, **_wheres(spec, field, where, said)},
        events=events,
    )


def _mapping(said: NodeKeys, key: str) -> dict[str, object]:
    known = said.get(key)
    return dict(known) if isinstance(known, dict) else {}


def _put(said: NodeKeys, keys: list[str], value: object) -> None:
    """Set a nested key; text on the way (`gpus: h100-sxm`) is that of its main field."""
    inner = said
    for key in keys[:-1]:
        known = inner.get(key)
        if isinstance(known, str) and key in SHORT:
            known = {SHORT[key]: known}
        inner[key] = dict(known) if isinstance(known, dict) else {}
        inner = inner[key]  # type: ignore[assignment]
    inner[keys[-1]] = value


def _value(text: str) -> object:
    """The value as YAML has it. Raises StateError."""
    _one_line(text)
    tree = parse(Source(path=Path(), shown="", text=f"value: {text}\n", sha256=""))
    if tree.root is None or tree.problems:
        problem = tree.problems[0]
        raise StateError("; ".join(filter(None, (problem.message, problem.advice))))
    entry = tree.root.get("value")
    if entry is None or len(tree.root.entries) != 1:
        raise StateError("the value is not valid YAML; put it in quotes")
    return plain(entry.value)


def _one_line(text: str) -> None:
    if not text.isprintable() or len(text) > 4096:
        raise StateError("the value is not one line of printable text")


def _part(said: NodeKeys, where: Origin, name: str) -> NodePart:
    text = json.dumps(said)
    root = parse(Source(path=Path(), shown="", text=text, sha256="")).root
    if root is None:
        raise StateError("the value cannot be read; put it in quotes")
    problems = [
        where.problem(
            f"{name}.{dotted(problem.path)}",
            "; ".join(filter(None, (problem.message, problem.advice))),
        )
        for problem in wrong(root)
    ]
    if problems:
        raise ScenarioError(problems)
    return NodePart.model_validate_json(text)


def _wheres(spec: NodeSpec, field: str, where: Origin, said: NodeKeys) -> dict[str, Origin]:
    """The position of what changed: what was typed."""
    if field != "faults":
        return {field: where}
    faults = said["faults"]
    count = len(faults) if isinstance(faults, list) else 1
    kept = {} if len(spec.part.faults) < count else {f"faults[{at}]": where for at in range(count)}
    return {**kept, "faults": where, f"faults[{count - 1}]": where}
