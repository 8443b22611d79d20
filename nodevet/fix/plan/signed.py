"""What is signed with a plan besides its actions: its nodes, and what each step declares. Pure."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from nodevet.base.printable import brief, plain
from nodevet.fix.model import Plan, PlannedNode, Step
from nodevet.resource import Contents, Resource, State, describe, filled, kind_of
from nodevet.resource.kernel import folded
from nodevet.sheet.text import count, nodeset
from nodevet.vet.findings.words import in_ranges

MOST = 8  # of one kind that are listed
DIGEST = 16  # hex digits


def facts(plan: Plan) -> Iterator[tuple[str, str]]:
    """Label and text, printable: the nodes, and a digest of what these and baselines are."""
    yield "nodes", "; ".join(filter(None, _nodes(plan)))


def _nodes(plan: Plan) -> Iterator[str]:
    nodes = plan.nodes
    steps = {step.host for step in plan.steps}
    yield listed([f"{plain(each)}: {nodeset(some)}" for each, some in _groups(nodes).items()])
    numbers: dict[int, list[str]] = {}
    for host, node in nodes.items():
        numbers.setdefault(len(node.gpus), []).append(host)
    yield listed([f"{count(number, 'GPU')}: {nodeset(some)}" for number, some in numbers.items()])
    others = [f"{nodeset([h])} is {brief(n.hostname)}" for h, n in nodes.items() if _renamed(h, n)]
    yield listed(others)
    idle = [host for host in nodes if host not in steps]
    yield f"without a step: {nodeset(idle)}" if idle else ""
    unused = set(plan.baselines) - {node.baseline for node in nodes.values()}
    yield f"baselines of no node: {listed(map(plain, sorted(unused)))}" if unused else ""
    text = msgspec.json.encode((nodes, plan.baselines), order="sorted")
    yield f"machines and baselines sha256 {hashlib.sha256(text).hexdigest()[:DIGEST]}"


def _groups(nodes: Mapping[str, PlannedNode]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = {}
    for host, node in nodes.items():
        for group in node.groups:
            found.setdefault(f"@{group}", []).append(host)
    return found


def _renamed(host: str, node: PlannedNode) -> bool:
    return bool(node.hostname) and node.hostname.partition(".")[0] != host.partition(".")[0]


def identity(node: PlannedNode) -> str:
    """All that one node is recognized by."""
    groups = f"groups {', '.join(node.groups)}" if node.groups else ""
    gpus = f"GPUs {', '.join(node.gpus)}" if node.gpus else ""
    known = (f"machine {node.machine_id}", f"boot {node.boot_id}", node.hostname, groups, gpus)
    return plain("; ".join(filter(None, known)))


def declared(step: Step, node: PlannedNode | None) -> str:
    """Services, options and GPUs of a step, printable."""
    told = [f"about {listed(map(plain, step.services))}"] if step.services else []
    if step.options:
        told.append(f"planned with {listed(f'--{plain(each)}' for each in step.options)}")
    if step.holders:
        told.append(f"stops and starts {listed(map(plain, step.holders))} around it")
    if step.gpus:
        numbers = {uuid: number for number, uuid in enumerate(node.gpus if node else ())}
        known = in_ranges(f"GPU {numbers[each]}" for each in step.gpus if each in numbers)
        others = [plain(each) for each in step.gpus if each not in numbers]
        told.append(f"needs {' '.join(filter(None, (known, listed(others))))}")
    return "; ".join(told)


def by_command(step: Step, contents: Contents) -> str:
    """What commands of a step change, and what it was: each kind of setting with its number."""
    own = {action.resource for action in step.actions if action.resource}
    before = {seen.resource: seen for seen in filled(step.before, contents)}
    found: dict[str, list[str]] = {}
    for each in step.resources:
        if each not in own:
            found.setdefault(_was(before.get(each)), []).append(_setting(each))
    told = [
        f"{setting} ({was})" + (f" × {some.count(setting):,}" if some.count(setting) > 1 else "")
        for was, some in found.items()
        for setting in folded(some)
    ]
    return f"set by commands: {listed(told)}" if told else ""


def _setting(resource: Resource) -> str:
    """`gpu power_limit_mw`: which GPU is in the command."""
    gpu = kind_of(resource).gpu_of(resource)
    return plain(resource.label.replace(f"{gpu}:", "", 1) if gpu else resource.label)


def _was(state: State | None) -> str:
    return plain(describe(state)) if state else "not read"


def listed(words: Iterable[str]) -> str:
    """At most MOST of them, and how many more there are."""
    every = list(words)
    more = len(every) - MOST
    return ", ".join([*every[:MOST], *([f"and {more:,} more"] if more > 0 else [])])
