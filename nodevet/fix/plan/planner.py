"""Makes a plan of the changes that have one manager and can be rolled back.

Pure. `draft` collects the changes; nodevet reads their state on the nodes; `make` decides.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from nodevet.checking import identity
from nodevet.checking.bmc_identity import node_ids
from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo
from nodevet.fix.model import Conflict, Plan, PlannedNode, Step
from nodevet.fix.plan.candidates import Candidate, Draft, Rules, UnfixedFinding, Withheld
from nodevet.fix.rollout.managers import advice
from nodevet.fix.rollout.preconditions import own_name, users
from nodevet.fixing.model import Risk
from nodevet.model import Finding, HostReport, Verdict
from nodevet.resource import Resource, RestoreError, State, holds, restore, to_stored, unit
from nodevet.vet.findings.words import difference, subjects_of


class FixStates(msgspec.Struct, frozen=True, kw_only=True):
    """What a second visit to one host read; `why` if it read nothing."""

    seen: tuple[State, ...] = ()
    owners: Mapping[str, Sequence[str]] = {}  # resource label -> its other managers
    agents: tuple[str, ...] = ()  # configuration managers that may set it again, in words
    why: str = ""


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A plan, and everything else that fails, with the reason why the plan leaves it out."""

    plan: Plan
    contents: Mapping[str, bytes] = {}  # of the files that it changes, by SHA-256
    withheld: tuple[Withheld, ...] = ()
    left: tuple[UnfixedFinding, ...] = ()
    unvetted: tuple[HostReport, ...] = ()  # hosts that were not vetted, or have no verdict
    unknown: int = 0  # findings with verdict unknown

    @property
    def exit_code(self) -> int:
        """1: the plan has steps; 3: something could not be judged or planned; 0: nothing to do."""
        if self.plan.steps:
            return 1
        withheld = any(entry.runs or entry.suspected for entry in self.withheld)
        return 3 if self.unvetted or self.unknown or self.plan.conflicts or withheld else 0


def make(draft: Draft, rules: Rules, states: Mapping[str, FixStates]) -> Proposal:
    """The plan, and what it leaves out, with reasons. `states`: of each host.

    A host without states has a conflict for each of its changes. Raises ValueError if `now` has no
    time zone.
    """
    if rules.now.tzinfo is None:
        raise ValueError("the time of a plan needs a time zone")
    conflicts = list(draft.conflicts)
    fit: list[tuple[Candidate, tuple[State, ...]]] = []
    doubts = identity.doubts(node.report for node in draft.nodes.values())
    for candidate in draft.candidates:
        node = draft.nodes[candidate.host]
        host_states = states.get(candidate.host, FixStates(why="its state was not read"))
        clash = (
            _identity_reason(node.report, node.evidence)
            or doubts.get(candidate.host)
            or _unfit_reason(candidate, host_states)
        )
        if clash:
            conflicts.append(_conflict(candidate, *clash))
        else:
            fit.append((candidate, _states_of(candidate, host_states.seen)))
    for candidate, _ in fit[:]:
        if larger := next((other for other, _ in fit if _includes(other, candidate)), None):
            fit = [pair for pair in fit if pair[0] is not candidate]
            why = f"{larger.fix} does it too"
            conflicts.append(_conflict(candidate, why, "plan again once that is applied"))
    for candidate, _ in fit[:]:
        host = candidate.host
        neighbours = [other for other, _ in fit if other.host == host and other is not candidate]
        if clash := _blocked_reason(candidate, neighbours, draft.nodes[host].evidence):
            fit = [pair for pair in fit if pair[0] is not candidate]
            conflicts.append(_conflict(candidate, *clash))
    shared = _shared_resources(candidate for candidate, _ in fit)
    hosts = {host: turn for turn, host in enumerate(draft.nodes)}
    fixes = {fix: turn for turn, fix in enumerate(draft.order)}
    fit.sort(key=lambda pair: (hosts[pair[0].host], fixes[pair[0].fix]))
    numbers: Counter[tuple[str, str]] = Counter()
    steps: list[Step] = []
    contents: dict[str, bytes] = {}
    for candidate, seen in fit:
        if clash := _shared_reason(candidate, shared):
            conflicts.append(_conflict(candidate, *clash))
        else:
            numbers[candidate.host, candidate.fix] += 1
            before, files = to_stored(seen)
            contents.update(files)
            number = numbers[candidate.host, candidate.fix]
            steps.append(_step(candidate, before, number, states[candidate.host].agents))
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
                ids=node_ids(node.evidence),
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
        unvetted=tuple(report for report in reports if report.unjudged),
        unknown=sum(
            finding.verdict is Verdict.UNKNOWN for report in reports for finding in report.findings
        ),
    )


def _step(
    candidate: Candidate, states: tuple[State, ...], number: int, agents: tuple[str, ...]
) -> Step:
    change = candidate.change
    return Step(
        id=f"{candidate.host}/{candidate.fix}/{number}",
        host=candidate.host,
        fix=candidate.fix,
        subjects=change.subjects,
        subject_uuids=candidate.subject_uuids,
        expected=change.expected,
        actual=change.actual,
        unit=change.unit,
        risk=change.risk,
        effective=change.effective,
        services=change.services,
        options=candidate.options,
        gpus=change.gpus,
        holders=candidate.holders,
        actions=change.actions,
        keep=change.keep,
        resources=change.resources,
        before=states,
        reason=_reason(candidate),
        note="; ".join(filter(None, (change.note, *agents))),
    )


def _reason(candidate: Candidate) -> str:
    """The findings in words, equal ones once, with file and line of the baseline."""
    groups: dict[str, list[tuple[str, Finding]]] = {}
    for finding in candidate.findings:
        groups.setdefault("; ".join(filter(None, difference(finding))), []).append(
            (candidate.host, finding)
        )
    parts = [
        ": ".join(filter(None, (subjects_of(members)[0], words)))
        for words, members in groups.items()
    ]
    origins = dict.fromkeys(finding.origin for finding in candidate.findings if finding.origin)
    return "; ".join(parts) + "".join(f" ({origin})" for origin in origins)


def _conflict(candidate: Candidate, why: str, advice: str) -> Conflict:
    return Conflict(host=candidate.host, fix=candidate.fix, why=why, advice=advice)


Clash = tuple[str, str]
"""Why a change is not planned, and advice."""


def _identity_reason(report: HostReport, evidence: Evidence | None) -> Clash | None:
    """Why nodevet could not identify the node, if it cannot."""
    section = evidence[HostInfo] if evidence else None
    for field in ("machine_id", "boot_id"):
        if getattr(report, field):
            continue
        why = section.data.why(field) if section and section.data else section and section.why
        return f"cannot identify the node: {field}: {why or 'not in the evidence'}", ""
    return None


def _states_of(candidate: Candidate, states: Iterable[State]) -> tuple[State, ...]:
    """The states of a change's resources, each once."""
    resources = set(candidate.change.resources)
    return tuple(
        {state.resource: state for state in states if state.resource in resources}.values()
    )


def _unfit_reason(candidate: Candidate, fix_states: FixStates) -> Clash | None:
    """Another manager, or a state that cannot be restored, or a change that waits already."""
    if fix_states.why:
        return f"its state and its managers are unknown: {fix_states.why}", ""
    managed = [
        resource.label
        for resource in candidate.change.resources
        if fix_states.owners.get(resource.label)
    ]
    if managed:
        managers = dict.fromkeys(owner for label in managed for owner in fix_states.owners[label])
        rest = f" (and {len(managed) - 1} more)" if len(managed) > 1 else ""
        return (
            f"conflict: {managed[0]}{rest} is also managed by {', '.join(managers)}",
            advice(managers, [candidate.fix], place="the baseline's `fix`"),
        )
    states = _states_of(candidate, fix_states.seen)
    for resource in candidate.change.resources:
        if resource not in {state.resource for state in states}:
            return f"{resource.label}: its state was not read, so it cannot be rolled back", ""
    try:
        restore(*states, actions=candidate.change.actions)
    except RestoreError as error:
        return f"cannot be rolled back: {error}", ""
    return _pending_reason(candidate, states)


def _pending_reason(candidate: Candidate, states: Sequence[State]) -> Clash | None:
    """The change is already done, and waits for a reboot, reset or restart."""
    actions = [
        action
        for action in unit.drop_units(candidate.change.actions, candidate.holders)
        if action != unit.RELOAD
    ]
    if candidate.change.effective == "now" or candidate.change.keep:
        return None  # what is to be kept has no proof yet
    if not all(holds(action, states) for action in actions):
        return None
    why = f"it is set, and effective after a {candidate.change.effective}"
    if candidate.change.effective != "restart":
        return why, f"drain and reboot it; if it was: nodevet explain {candidate.fix}"
    advice = "restart it when it may be interrupted, or plan with --restart"
    return f"{why}: {' '.join(candidate.change.services)}", advice


def _shared_resources(
    candidates: Iterable[Candidate],
) -> Mapping[tuple[str, Resource], Sequence[str]]:
    """(host, resource) -> fixes, for each resource that several changes of one host share, except
    services that all of them only stop and start again.
    """
    fixes_by_resource: dict[tuple[str, Resource], list[str]] = {}
    exclusive: set[tuple[str, Resource]] = set()
    for candidate in candidates:
        around = set(unit.resources(candidate.holders))
        for resource in set(candidate.change.resources):
            fixes_by_resource.setdefault((candidate.host, resource), []).append(candidate.fix)
            exclusive |= {(candidate.host, resource)} - {
                (candidate.host, around_resource) for around_resource in around
            }
    return {
        key: fixes
        for key, fixes in fixes_by_resource.items()
        if len(fixes) > 1 and key in exclusive
    }


def _includes(candidate: Candidate, other: Candidate) -> bool:
    """Whether a change of a host does all that the change of another fix does."""
    return (
        candidate.host == other.host
        and candidate.fix != other.fix
        and set(candidate.change.resources) >= set(other.change.resources)
        and all(
            any(own_action.covers(action) for own_action in candidate.change.actions)
            for action in other.change.actions
        )
    )


def _blocked_reason(
    candidate: Candidate, neighbours: Sequence[Candidate], evidence: Evidence | None
) -> Clash | None:
    """The change needs GPUs free that a service uses, and another change needs that service."""
    change = candidate.change
    services = {name for neighbour in neighbours for name in neighbour.change.services}
    if change.risk is Risk.LIVE or change.services or not services or evidence is None:
        return None
    nvml = change.risk is Risk.IDLE
    acceptable = set(users(evidence, change.gpus, nvml=nvml, services=services))
    blockers = [user for user in users(evidence, change.gpus, nvml=nvml) if user not in acceptable]
    if not blockers:
        return None
    fixes = sorted({neighbour.fix for neighbour in neighbours if neighbour.change.services})
    names = " ".join(sorted(services))
    return (
        f"its risk is {change.risk.value}, and {blockers[0]}, which {' and '.join(fixes)} is "
        "about: one plan cannot have both",
        f"apply this plan, stop {names}, then plan --fix {candidate.fix}",
    )


def _shared_reason(
    candidate: Candidate, shared: Mapping[tuple[str, Resource], Sequence[str]]
) -> Clash | None:
    for resource in candidate.change.resources:
        fixes = Counter(shared.get((candidate.host, resource), ()))
        if not fixes:
            continue
        other_fixes = sorted(set(fixes) - {candidate.fix})
        if not other_fixes:
            return f"two changes of {candidate.fix} change {resource.label}", "report it"
        sequence = " then ".join(f"--fix {fix}" for fix in sorted(fixes))
        return (
            f"{resource.label} is also changed by {', '.join(other_fixes)}",
            f"one after another: {sequence}",
        )
    return None
