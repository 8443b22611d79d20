"""Finds contradictions in a plan: names that would be paths, steps that contradict it. Pure.

A plan is a file from anywhere. Its id and the names of its hosts become folders of a run, nodevet
writes to its paths on nodes, and it does not restore what a step does not name.
"""

import re
from collections import Counter
from collections.abc import Iterator

from nodevet.base.host_names import name_problem
from nodevet.base.problems import quoted
from nodevet.base.uuids import UUID
from nodevet.checking.identity import SHOWN
from nodevet.checking.machines import machine, one_machine
from nodevet.fix.model import GPU_LABEL, Plan, Step
from nodevet.fix.plan.holders import holders_problem
from nodevet.fix.settings import faults
from nodevet.resource import kind_of, undeclared_resources, unit, unused_resources

ID = re.compile(r"[A-Za-z0-9]{8,16}")
FIX = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")  # the stem of a file
EFFECTIVE = ("now", "restart", "reset", "reboot")
OPTIONS = ("now", "restart", "reboot")


def contradictions(plan: Plan) -> Iterator[str]:
    """Every reason why nodevet must not show, sign, apply or roll back any part of the plan."""
    if not ID.fullmatch(plan.id):
        yield f"its id {quoted(plan.id)} is not 8 to 16 letters and digits"
    yield from faults(plan.rollout)
    for host, node in plan.nodes.items():
        if problem := name_problem(host):
            yield f"node {quoted(host)}: {problem}"
        if node.baseline not in plan.baselines:
            yield f"node {quoted(host)}: its baseline {quoted(node.baseline)} is not among those"
        if node.ids.uuid and not UUID.fullmatch(node.ids.uuid):
            yield f"node {quoted(host)}: its system UUID {quoted(node.ids.uuid)} is not a UUID"
    machines = (
        machine(host, node.machine_id, node.boot_id, node.gpus) for host, node in plan.nodes.items()
    )
    for group in one_machine(machines, kernels=True):
        yield f"nodes {', '.join(map(quoted, group.hosts[:SHOWN]))} are one machine"
    for id, times in Counter(step.id for step in plan.steps).items():
        if times > 1:
            yield f"{times} steps have the id {quoted(id)}"
    for step in plan.steps:
        if step.host not in plan.nodes:
            yield f"step {quoted(step.id)}: its host {quoted(step.host)} is not among the nodes"
        for why in _step_problems(step):
            yield f"step {quoted(step.id)}: {why}"
        if step.keep and not plan.rollout.reboots_each:
            yield (
                f"step {quoted(step.id)}: it has actions for after a reboot, but the plan reboots "
                "no host"
            )
    changes = Counter(
        (step.host, resource) for step in plan.steps for resource in set(step.resources)
    )
    exclusive = {
        (step.host, resource)
        for step in plan.steps
        for resource in set(step.resources) - set(unit.resources(step.holders))
    }
    for (host, resource), times in changes.items():
        if times > 1 and (host, resource) in exclusive:
            yield f"{times} steps of {quoted(host)} change {quoted(resource.label)}"


def _step_problems(step: Step) -> Iterator[str]:
    number = step.id.removeprefix(f"{step.host}/{step.fix}/")
    if not FIX.fullmatch(step.fix):
        yield f"{quoted(step.fix)} cannot be the name of a fix"
    elif not re.fullmatch(r"[1-9][0-9]{0,5}", number, re.ASCII):
        yield f"its id is not of {quoted(step.host)} and {quoted(step.fix)}"
    if not step.resources:
        yield "it names nothing that it changes"
    elif stray_resources := undeclared_resources(step.all_actions, step.resources):
        labels = ", ".join(quoted(stray.label) for stray in stray_resources)
        yield f"it would change settings that it does not name: {labels}"
    if not step.actions:
        yield "it does nothing"
    elif idle_resources := unused_resources(step.all_actions, step.resources):
        labels = ", ".join(
            quoted(unused_resource.label) for unused_resource in idle_resources[:SHOWN]
        )
        yield f"no action names {len(idle_resources)} of its resources: {labels}"
    gpus = [label for label in step.subjects if GPU_LABEL.fullmatch(label)]
    if step.subject_uuids and len(step.subject_uuids) != len(gpus):
        yield f"it names {len(gpus)} GPUs and {len(step.subject_uuids)} UUIDs"
    if why := holders_problem(step):
        yield why
    if step.effective not in EFFECTIVE:
        yield f"it is effective {quoted(step.effective)}, which is none of {', '.join(EFFECTIVE)}"
    for option in step.options:
        if option not in OPTIONS:
            yield f"{quoted(option)} is not an option of a fix"
    for resource, times in Counter(state.resource for state in step.before).items():
        if resource not in step.resources or times > 1:
            problem = "which it does not change" if times == 1 else f"{times} times"
            yield f"before names {quoted(resource.label)}, {problem}"
    for state in step.before:
        if state.why:
            yield f"the state of {quoted(state.resource.label)} could not be read"
        elif state.exists and (problem := kind_of(state.resource).stored_problem(state)):
            yield f"the state of {quoted(state.resource.label)} is none: {problem}"
    for resource, times in Counter(step.resources).items():
        if times > 1:
            yield f"it names {quoted(resource.label)} {times} times"
    yield from _name_problems(step)


def _name_problems(step: Step) -> Iterator[str]:
    """Resources whose kind does not allow their name."""
    resources = {action.resource for action in step.all_actions if action.resource}
    for resource in sorted(resources.union(step.resources)):
        if problem := kind_of(resource).name_problem(resource.name):
            yield f"{quoted(resource.label)} {problem}"
