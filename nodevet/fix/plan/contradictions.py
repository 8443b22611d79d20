"""What is wrong with a plan in itself: names that would be paths, steps that contradict it. Pure.

A plan comes as a file, from anywhere. Its id and the names of its hosts become folders of a run,
its paths are written on nodes, and what a step does not name is not restored.
"""

import re
from collections import Counter
from collections.abc import Iterator

from nodevet.base.problems import quoted
from nodevet.checking.identity import SHOWN
from nodevet.checking.machines import machine, one_machine
from nodevet.fix.model import Plan, Step
from nodevet.fix.plan.holders import fault
from nodevet.fix.settings import faults
from nodevet.inventory.settings import name_problem
from nodevet.resource import kind_of, unit, unnamed, untouched

ID = re.compile(r"[A-Za-z0-9]{8,16}")
FIX = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")  # the stem of a file
EFFECTIVE = ("now", "restart", "reset", "reboot")
OPTIONS = ("now", "restart")


def contradictions(plan: Plan) -> Iterator[str]:
    """Everything for which no part of such a plan may be shown, signed, applied or rolled back."""
    if not ID.fullmatch(plan.id):
        yield f"its id {quoted(plan.id)} is not 8 to 16 letters and digits"
    yield from faults(plan.rollout)
    for host, node in plan.nodes.items():
        if problem := name_problem(host):
            yield f"node {quoted(host)}: {problem}"
        if node.baseline not in plan.baselines:
            yield f"node {quoted(host)}: its baseline {quoted(node.baseline)} is not among those"
    machines = (
        machine(host, node.machine_id, node.boot_id, node.gpus) for host, node in plan.nodes.items()
    )
    for found in one_machine(machines, kernels=True):
        yield f"nodes {', '.join(map(quoted, found.hosts[:SHOWN]))} are one machine"
    for id, times in Counter(step.id for step in plan.steps).items():
        if times > 1:
            yield f"{times} steps have the id {quoted(id)}"
    for step in plan.steps:
        if step.host not in plan.nodes:
            yield f"step {quoted(step.id)}: its host {quoted(step.host)} is not among the nodes"
        for why in _of_step(step):
            yield f"step {quoted(step.id)}: {why}"
    touched = Counter(
        (step.host, resource) for step in plan.steps for resource in set(step.resources)
    )
    changed = {
        (step.host, resource)
        for step in plan.steps
        for resource in set(step.resources) - set(unit.resources(step.holders))
    }
    for (host, resource), times in touched.items():
        if times > 1 and (host, resource) in changed:
            yield f"{times} steps of {quoted(host)} change {quoted(resource.label)}"


def _of_step(step: Step) -> Iterator[str]:
    number = step.id.removeprefix(f"{step.host}/{step.fix}/")
    if not FIX.fullmatch(step.fix):
        yield f"{quoted(step.fix)} cannot be the name of a fix"
    elif not re.fullmatch(r"[1-9][0-9]{0,5}", number, re.ASCII):
        yield f"its id is not of {quoted(step.host)} and {quoted(step.fix)}"
    if not step.resources:
        yield "it names nothing that it changes"
    elif stray := unnamed(step.actions, step.resources):
        named = ", ".join(quoted(each.label) for each in stray)
        yield f"it would change what it does not name: {named}"
    if not step.actions:
        yield "it does nothing"
    elif idle := untouched(step.actions, step.resources):
        labels = ", ".join(quoted(each.label) for each in idle[:SHOWN])
        yield f"no action names {len(idle)} of its resources: {labels}"
    if why := fault(step):
        yield why
    if step.effective not in EFFECTIVE:
        yield f"it is in force {quoted(step.effective)}, which is none of {', '.join(EFFECTIVE)}"
    for option in step.options:
        if option not in OPTIONS:
            yield f"{quoted(option)} is no option of a fix"
    seen = Counter(seen.resource for seen in step.before)
    for resource, times in seen.items():
        if resource not in step.resources or times > 1:
            label = quoted(resource.label)
            yield f"what {label} was is told, and is no one part of what it changes"
    for resource in (seen.resource for seen in step.before if seen.why):
        yield f"what {quoted(resource.label)} was could not be read"
    for resource, times in Counter(step.resources).items():
        if times > 1:
            yield f"it names {quoted(resource.label)} {times} times"
    yield from _names(step)


def _names(step: Step) -> Iterator[str]:
    """What of its resources cannot have such a name."""
    changed = {action.resource for action in step.actions if action.resource}
    for resource in sorted(changed.union(step.resources)):
        if problem := kind_of(resource).name_problem(resource.name):
            yield f"{quoted(resource.label)} {problem}"
