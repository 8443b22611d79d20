"""What people sign with a plan besides its actions: its nodes, and each step's facts. Pure."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from nodevet.base.printable import brief, plain
from nodevet.base.ranges import in_ranges
from nodevet.fix.model import Plan, PlannedNode, Step
from nodevet.fix.plan.exact import exact, foreign_words, with_blanks
from nodevet.resource import Contents, Resource, State, describe, kind_of, with_contents
from nodevet.resource.kernel import fold_paths
from nodevet.sheet.text import count, nodeset

MOST = 8  # of one kind that are listed
DIGEST = 16  # hex digits


def facts(plan: Plan) -> Iterator[tuple[str, str]]:
    """(label, text), printable: the nodes, with a digest of the facts that no row lists; then
    texts that may look like others: words that are not ASCII, and texts with blanks at an end."""
    yield "nodes", "; ".join(filter(None, _nodes(plan)))
    document = msgspec.to_builtins(plan)
    if words := foreign_words(document):
        yield "not ASCII", short_list(words)
    if texts := with_blanks(document):
        yield "with blanks", short_list(texts)


def _nodes(plan: Plan) -> Iterator[str]:
    nodes = plan.nodes
    steps = {step.host for step in plan.steps}
    yield short_list(
        [f"{plain(group)}: {nodeset(members)}" for group, members in _groups(nodes).items()]
    )
    numbers: dict[int, list[str]] = {}
    for host, node in nodes.items():
        numbers.setdefault(len(node.gpus), []).append(host)
    yield short_list(
        [f"{count(number, 'GPU')}: {nodeset(members)}" for number, members in numbers.items()]
    )
    renamed = [
        f"{nodeset([h])} is {brief(n.hostname)}" for h, n in nodes.items() if _has_other_name(h, n)
    ]
    yield short_list(renamed)
    unchanged = [host for host in nodes if host not in steps]
    yield f"without a step: {nodeset(unchanged)}" if unchanged else ""
    unused = set(plan.baselines) - {node.baseline for node in nodes.values()}
    yield f"baselines of no node: {short_list(map(plain, sorted(unused)))}" if unused else ""
    before = [step.before for step in plan.steps]
    text = msgspec.json.encode((nodes, plan.baselines, before), order="sorted")
    digest = hashlib.sha256(text).hexdigest()[:DIGEST]
    yield f"machines, baselines and earlier states sha256 {digest}"


def _groups(nodes: Mapping[str, PlannedNode]) -> Mapping[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for host, node in nodes.items():
        for group in node.groups:
            groups.setdefault(f"@{group}", []).append(host)
    return groups


def _has_other_name(host: str, node: PlannedNode) -> bool:
    return bool(node.hostname) and node.hostname.partition(".")[0] != host.partition(".")[0]


def identity_text(node: PlannedNode) -> str:
    """Everything that identifies a node."""
    groups = f"groups {', '.join(node.groups)}" if node.groups else ""
    gpus = f"GPUs {', '.join(node.gpus)}" if node.gpus else ""
    own = (node.ids.uuid, *node.ids.serials, *node.ids.shared)
    ids = ", ".join(brief(one, 80) for one in own if one)
    parts = (f"machine {node.machine_id}", f"boot {node.boot_id}", node.hostname, ids, groups, gpus)
    return plain("; ".join(filter(None, parts)))


def declared_text(step: Step, node: PlannedNode | None) -> str:
    """Services, options and GPUs of a step, printable."""
    parts = [f"about {short_list(map(plain, step.services))}"] if step.services else []
    if step.options:
        parts.append(f"planned with {short_list(map(_option_text, step.options))}")
    if step.holders:
        parts.append(f"stops and starts {short_list(map(plain, step.holders))} around it")
    if step.gpus:
        numbers = {uuid: number for number, uuid in enumerate(node.gpus if node else ())}
        numbered = in_ranges(f"GPU {numbers[option]}" for option in step.gpus if option in numbers)
        unnumbered = [exact(option) for option in step.gpus if option not in numbers]
        parts.append(f"needs {' '.join(filter(None, (numbered, short_list(unnumbered))))}")
    if own_gpus := _subject_gpus_text(step, node.gpus if node else ()):
        parts.append(own_gpus)
    return "; ".join(parts)


def _subject_gpus_text(step: Step, gpus: Sequence[str]) -> str:
    """The UUIDs of the GPUs among the subjects; empty if the order of the node's `gpus` says so."""
    by_number = {f"GPU {number}": uuid for number, uuid in enumerate(gpus)}
    implied = tuple(by_number[label] for label in step.subjects if label in by_number)
    if step.subject_uuids == implied:
        return ""
    if not step.subject_uuids:
        return "knows its GPUs by their numbers"
    return f"about {', '.join(map(exact, step.subject_uuids))}"


def _option_text(option: str) -> str:
    """`--now`. The option `reboot` of a fix stands for both options that reboot each node."""
    return "--reboot or --power-cycle" if option == "reboot" else f"--{plain(option)}"


def commands_text(step: Step, contents: Contents) -> str:
    """The settings that commands of a step change, their earlier values and their numbers."""
    direct = {action.resource for action in step.all_actions if action.resource}
    before = {state.resource: state for state in with_contents(step.before, contents)}
    settings: dict[str, list[str]] = {}
    for resource in step.resources:
        if resource not in direct:
            settings.setdefault(_old_text(before.get(resource)), []).append(_setting(resource))
    parts = [
        f"{setting} ({old_text})"
        + (f" × {names.count(setting):,}" if names.count(setting) > 1 else "")
        for old_text, names in settings.items()
        for setting in fold_paths(names)
    ]
    return f"set by commands: {short_list(parts)}" if parts else ""


def _setting(resource: Resource) -> str:
    """`gpu power_limit_mw`; the command names the GPU."""
    gpu = kind_of(resource).gpu_of(resource)
    return plain(resource.label.replace(f"{gpu}:", "", 1) if gpu else resource.label)


def _old_text(state: State | None) -> str:
    return f"now {plain(describe(state))}" if state else "not read"


def short_list(words: Iterable[str]) -> str:
    """`a, b and 3 more`: at most MOST words."""
    items = list(words)
    hidden = len(items) - MOST
    return ", ".join([*items[:MOST], *([f"and {hidden:,} more"] if hidden > 0 else [])])
