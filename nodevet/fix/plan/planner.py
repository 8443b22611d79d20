"""From what fixes would change to a plan: all of it has one manager and can be rolled back.

Pure. `draft` says what would be changed; its state is read on the nodes; `make` decides.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from nodevet.checking import identity
from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.fix.model import Conflict, Plan, PlannedNode, Step
from nodevet.fix.plan.candidates import Candidate, Draft, Left, Rules, Withheld
from nodevet.fix.rollout.preconditions import own_name, users
from nodevet.fixing.model import Risk
from nodevet.model import Finding, HostReport, Verdict
from nodevet.resource import Resource, RestoreError, State, holds, kept, restore, unit
from nodevet.vet.findings.words import difference, subjects_of


class FixStates(msgspec.Struct, frozen=True, kw_only=True):
    """What a second visit to one host told; `why` where it told nothing."""

    seen: tuple[State, ...] = ()
    owners: Mapping[str, Sequence[str]] = {}  # resource label -> who else sets it
    agents: tuple[str, ...] = ()  # what may set it again, in words: configuration managers
    why: str = ""


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A plan and, of everything else that is not right, why it is not in it."""

    plan: Plan
    contents: Mapping[str, bytes] = {}  # what files hold that it changes, by SHA-256
    withheld: tuple[Withheld, ...] = ()
    left: tuple[Left, ...] = ()
    unvetted: tuple[HostReport, ...] = ()  # or without anything that was judged
    unknown: int = 0  # findings that the evidence does not decide

    @property
    def exit_code(self) -> int:
        """1 there is something to do; 3 there may be; 0 there is not, as far as fixes go."""
        if self.plan.steps:
            return 1
        again = any(each.runs or each.suspected for each in self.withheld)
        return 3 if self.unvetted or self.unknown or self.plan.conflicts or again else 0


def make(draft: Draft, rules: Rules, looked: Mapping[str, FixStates]) -> Proposal:
    """The plan, and what is left out of it with the reason.

    A host that is not in `looked` has a conflict for each of its changes. Raises ValueError
    where `now` has no time zone.
    """
    if rules.now.tzinfo is None:
        raise ValueError("the time of a plan needs a time zone")
    conflicts = list(draft.conflicts)
    fit: list[tuple[Candidate, tuple[State, ...]]] = []
    told = {host: found.agents for host, found in looked.items()}
    doubts = identity.doubts(node.report for node in draft.nodes.values())
    for each in draft.candidates:
        node = draft.nodes[each.host]
        found = looked.get(each.host, FixStates(why="its state was not read"))
        clash = (
            _unknown_node(node.report, node.evidence)
            or doubts.get(each.host)
            or _unfit(each, found)
        )
        if clash:
            conflicts.append(_conflict(each, *clash))
        else:
            fit.append((each, _of(each, found.seen)))
    for each, _ in fit[:]:
        if more := next((one for one, _ in fit if _does(one, each)), None):
            fit = [pair for pair in fit if pair[0] is not each]
            why = f"{more.fix} does it too, and more"
            conflicts.append(_conflict(each, why, "plan again once that is applied"))
    for each, _ in fit[:]:
        others = [one for one, _ in fit if one.host == each.host and one is not each]
        if clash := _barred(each, others, draft.nodes[each.host].evidence):
            fit = [pair for pair in fit if pair[0] is not each]
            conflicts.append(_conflict(each, *clash))
    shared = _shared(each for each, _ in fit)
    hosts = {host: place for place, host in enumerate(draft.nodes)}
    numbers: Counter[tuple[str, str]] = Counter()
    steps: list[Step] = []
    contents: dict[str, bytes] = {}
    turns = {fix: turn for turn, fix in enumerate(draft.order)}
    for each, seen in sorted(fit, key=lambda one: (hosts[one[0].host], turns[one[0].fix])):
        if clash := _collision(each, shared):
            conflicts.append(_conflict(each, *clash))
        else:
            numbers[each.host, each.fix] += 1
            before, held = kept(seen)
            contents.update(held)
            number = numbers[each.host, each.fix]
            steps.append(_step(each, before, number, told.get(each.host, ())))
    return _proposal(draft, rules, tuple(steps), tuple(dict.fromkeys(conflicts)), contents)


def _proposal(
    draft: Draft,
    rules: Rules,
    steps: tuple[Step, ...],
    conflicts: tuple[Conflict, ...],
    contents: Mapping[str, bytes],
) -> Proposal:
    hosts = {step.host for step in steps}
    nodes = {host: node for host, node in draft.nodes.items() if host in hosts}
    plan = Plan(
        nodevet=rules.nodevet,
        id=rules.id,
        author=rules.author,
        created=rules.now.isoformat(timespec="seconds"),
        expires=(rules.now + rules.valid).isoformat(timespec="seconds"),
        baselines={
            node.baseline.label: node.baseline.sha256 for node in nodes.values() if node.baseline
        },
        nodes={
            host: PlannedNode(
                machine_id=node.report.machine_id or "",
                boot_id=node.report.boot_id or "",
                baseline=node.report.baseline,
                groups=node.report.groups,
                hostname=own_name(node.evidence),
                gpus=identity.own_gpus(node.evidence),
            )
            for host, node in nodes.items()
        },
        steps=steps,
        conflicts=conflicts,
        rollout=rules.rollout(len(nodes)),
    )
    reports = [node.report for node in draft.nodes.values()]
    return Proposal(
        plan=plan,
        contents=contents,
        withheld=draft.withheld,
        left=draft.left,
        unvetted=tuple(each for each in reports if each.unjudged),
        unknown=sum(
            finding.verdict is Verdict.UNKNOWN for each in reports for finding in each.findings
        ),
    )


def _step(each: Candidate, seen: tuple[State, ...], number: int, agents: tuple[str, ...]) -> Step:
    change = each.change
    return Step(
        id=f"{each.host}/{each.fix}/{number}",
        host=each.host,
        fix=each.fix,
        subjects=change.subjects,
        expected=change.expected,
        actual=change.actual,
        unit=change.unit,
        risk=change.risk,
        effective=change.effective,
        services=change.services,
        options=each.options,
        gpus=change.gpus,
        holders=each.holders,
        actions=change.actions,
        resources=change.resources,
        before=seen,
        reason=_reason(each),
        note="; ".join(filter(None, (change.note, *agents))),
    )


def _reason(each: Candidate) -> str:
    """The findings in words, equal ones once, and where the baseline wants it."""
    groups: dict[str, list[tuple[str, Finding]]] = {}
    for finding in each.findings:
        groups.setdefault("; ".join(filter(None, difference(finding))), []).append(
            (each.host, finding)
        )
    told = [
        ": ".join(filter(None, (subjects_of(members)[0], words)))
        for words, members in groups.items()
    ]
    origins = dict.fromkeys(finding.origin for finding in each.findings if finding.origin)
    return "; ".join(told) + "".join(f" ({origin})" for origin in origins)


def _conflict(each: Candidate, why: str, advice: str) -> Conflict:
    return Conflict(host=each.host, fix=each.fix, why=why, advice=advice)


Clash = tuple[str, str]
"""Why a change is not planned, and advice."""


def _unknown_node(report: HostReport, evidence: Evidence | None) -> Clash | None:
    """A node that could not be told from another one under its name."""
    section = evidence[HostInfo] if evidence else None
    for field in ("machine_id", "boot_id"):
        if getattr(report, field):
            continue
        why = section.data.why(field) if section and section.data else section and section.why
        return f"which node this is cannot be told: {field}: {why or 'not in the evidence'}", ""
    return None


def _of(each: Candidate, seen: Iterable[State]) -> tuple[State, ...]:
    """The states of what a change changes, each once."""
    resources = set(each.change.resources)
    return tuple({one.resource: one for one in seen if one.resource in resources}.values())


def _unfit(each: Candidate, found: FixStates) -> Clash | None:
    """Another manager, or what cannot be restored."""
    if found.why:
        return f"its state and its managers are unknown: {found.why}", ""
    owned = [
        resource.label for resource in each.change.resources if found.owners.get(resource.label)
    ]
    if owned:
        owners = dict.fromkeys(owner for label in owned for owner in found.owners[label])
        more = f" (and {len(owned) - 1} more)" if len(owned) > 1 else ""
        return (
            f"conflict: {owned[0]}{more} is also managed by {', '.join(owners)}",
            f"disable it there, or drop {each.fix} from the baseline's `fix`",
        )
    seen = _of(each, found.seen)
    for resource in each.change.resources:
        if resource not in {one.resource for one in seen}:
            return f"{resource.label}: its state was not read, so it cannot be rolled back", ""
    try:
        restore(*seen, actions=each.change.actions)
    except RestoreError as error:
        return f"cannot be rolled back: {error}", ""
    return _waiting(each, seen)


def _waiting(each: Candidate, seen: Sequence[State]) -> Clash | None:
    """It was done already, and only what brings it into force is missing."""
    rest = [
        action
        for action in unit.without(each.change.actions, each.holders)
        if action != unit.RELOAD
    ]
    if each.change.effective == "now" or not all(holds(action, seen) for action in rest):
        return None
    why = f"it is set, and in force after a {each.change.effective}"
    if each.change.effective != "restart":
        return why, f"drain and reboot it; if it was: nodevet explain {each.fix}"
    advice = "restart it when it may be interrupted, or plan with --restart"
    return f"{why}: {' '.join(each.change.services)}", advice


def _shared(candidates: Iterable[Candidate]) -> Mapping[tuple[str, Resource], Sequence[str]]:
    """The fixes of each resource that several changes of one host have, but for services that all
    of them just stop and start again."""
    found: dict[tuple[str, Resource], list[str]] = {}
    changed: set[tuple[str, Resource]] = set()
    for each in candidates:
        around = set(unit.resources(each.holders))
        for resource in set(each.change.resources):
            found.setdefault((each.host, resource), []).append(each.fix)
            changed |= {(each.host, resource)} - {(each.host, one) for one in around}
    return {key: fixes for key, fixes in found.items() if len(fixes) > 1 and key in changed}


def _does(one: Candidate, other: Candidate) -> bool:
    """Whether one change of a host does all of another one's, and more."""
    return (
        one.host == other.host
        and set(one.change.resources) > set(other.change.resources)
        and all(
            any(mine.covers(theirs) for mine in one.change.actions)
            for theirs in other.change.actions
        )
    )


def _barred(
    each: Candidate, others: Sequence[Candidate], evidence: Evidence | None
) -> Clash | None:
    """Its risk wants GPUs free that a service uses which another change needs to be running."""
    change = each.change
    services = {name for other in others for name in other.change.services}
    if change.risk is Risk.LIVE or change.services or not services or evidence is None:
        return None
    nvml = change.risk is Risk.IDLE
    free = set(users(evidence, change.gpus, nvml=nvml, services=services))
    theirs = [one for one in users(evidence, change.gpus, nvml=nvml) if one not in free]
    if not theirs:
        return None
    fixes = sorted({other.fix for other in others if other.change.services})
    names = " ".join(sorted(services))
    return (
        f"its risk is {change.risk.value}, and {theirs[0]}, which {' and '.join(fixes)} is about: "
        "one plan cannot have both",
        f"apply this plan, stop {names}, then plan --fix {each.fix}",
    )


def _collision(
    each: Candidate, shared: Mapping[tuple[str, Resource], Sequence[str]]
) -> Clash | None:
    for resource in each.change.resources:
        fixes = Counter(shared.get((each.host, resource), ()))
        if not fixes:
            continue
        others = sorted(set(fixes) - {each.fix})
        if not others:
            return f"two changes of {each.fix} change {resource.label}", "report it"
        then = " then ".join(f"--fix {fix}" for fix in sorted(fixes))
        return (
            f"{resource.label} is also changed by {', '.join(others)}",
            f"one after another: {then}",
        )
    return None
