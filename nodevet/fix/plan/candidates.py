"""What the fixes would change on each node, before nodevet looks for other managers. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from nodevet.base.problems import quoted
from nodevet.checking.catalog import Catalog
from nodevet.checking.identity import own_gpus
from nodevet.evidence.document import Evidence
from nodevet.fix.journal.attempts import Failure, runs_with_failure
from nodevet.fix.model import GPU_LABEL, Conflict
from nodevet.fix.plan import holders
from nodevet.fix.plan.contradictions import EFFECTIVE
from nodevet.fix.settings import Rollout
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.model import MORE, Finding, HostReport, Status, Verdict
from nodevet.model.baseline import Baseline, Expectation
from nodevet.resource import Resource, kind_of, undeclared_resources, unused_resources


class Suspected(msgspec.Struct, frozen=True, kw_only=True):
    """A check that so many hosts began to fail at once that their own fault is unlikely."""

    check: str
    still: frozenset[str]  # the hosts that have failed it since then
    hosts: int  # that began to fail it
    judged: int
    on: str  # the date


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan may contain, and its author, id and times. `now` has a time zone."""

    id: str
    author: str
    now: datetime
    valid: timedelta = timedelta(hours=24)
    fixes: frozenset[str] | None = None  # only these; None: those that the baseline allows
    max_risk: Risk = Risk.REBOOT
    options: frozenset[str] = frozenset()  # now, restart, reboot
    nodevet: str = ""  # the version
    failed: tuple[Failure, ...] = ()  # recent failures: not planned again without --again
    suspected: tuple[Suspected, ...] = ()  # not planned without --force
    rollout: Callable[[int], Rollout] = lambda nodes: Rollout()  # by the number of nodes

    def allow(self, wish: Expectation) -> bool:
        return wish.fix if self.fixes is None else wish.check in self.fixes

    def suspects(self, host: str, check: str) -> Suspected | None:
        matches = (
            suspicion
            for suspicion in self.suspected
            if suspicion.check == check and host in suspicion.still
        )
        return next(matches, None)


class VettedNode(msgspec.Struct, frozen=True, kw_only=True):
    """One host after a check, with evidence and baseline if it was judged."""

    report: HostReport
    evidence: Evidence | None = None
    baseline: Baseline | None = None


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A change that may enter the plan."""

    host: str
    fix: str
    change: PlannedChange
    findings: tuple[Finding, ...]  # that it repairs
    subject_uuids: tuple[str, ...] = ()
    options: tuple[str, ...] = ()  # of its fix
    holders: tuple[str, ...] = ()  # services that the change stops first and starts last


class Withheld(msgspec.Struct, frozen=True, kw_only=True):
    """Failed findings whose fix may not enter the plan. The last four fields say why."""

    host: str
    fix: str
    findings: int
    baseline: str = ""  # the baseline does not allow it
    risk: Risk | None = None  # too high
    runs: tuple[str, ...] = ()  # in which the fix failed
    suspected: Suspected | None = None


class UnfixedFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A failed finding without a fix."""

    host: str
    finding: Finding


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that follows from the findings."""

    nodes: Mapping[str, VettedNode]
    candidates: tuple[Candidate, ...]
    conflicts: tuple[Conflict, ...]
    withheld: tuple[Withheld, ...]
    left: tuple[UnfixedFinding, ...]
    order: tuple[str, ...] = ()  # in which a node takes the fixes of the candidates

    @property
    def resources(self) -> Mapping[str, tuple[Resource, ...]]:
        """The resources to read before they can be planned, by host."""
        by_host: dict[str, set[Resource]] = {}
        for candidate in self.candidates:
            by_host.setdefault(candidate.host, set()).update(candidate.change.resources)
        return {host: tuple(sorted(resources)) for host, resources in by_host.items()}


DraftEntry = Candidate | Conflict | Withheld | UnfixedFinding


def draft(nodes: Sequence[VettedNode], catalog: Catalog, rules: Rules) -> Draft:
    """Every failed finding in one of four lists. Raises CatalogError as the catalog does."""
    entries = [entry for node in nodes for entry in _draft_node(node, catalog, rules)]
    return Draft(
        nodes={node.report.host: node for node in nodes},
        candidates=tuple(entry for entry in entries if isinstance(entry, Candidate)),
        conflicts=tuple(entry for entry in entries if isinstance(entry, Conflict)),
        withheld=tuple(entry for entry in entries if isinstance(entry, Withheld)),
        left=tuple(entry for entry in entries if isinstance(entry, UnfixedFinding)),
        order=catalog.order(entry.fix for entry in entries if isinstance(entry, Candidate)),
    )


def _draft_node(node: VettedNode, catalog: Catalog, rules: Rules) -> Iterator[DraftEntry]:
    if node.report.status is not Status.VETTED or not node.evidence or not node.baseline:
        return
    host = node.report.host
    for wish in node.baseline.expectations:
        failures = tuple(
            finding
            for finding in node.report.findings
            if finding.check == wish.check and finding.verdict is Verdict.FAIL
        )
        fix = catalog.fix(wish.check) if failures else None
        if fix is None:
            yield from (UnfixedFinding(host=host, finding=finding) for finding in failures)
        elif not rules.allow(wish):
            name = node.baseline.label
            yield Withheld(host=host, fix=wish.check, findings=len(failures), baseline=name)
        elif runs := runs_with_failure(
            rules.failed, host, wish.check, node.report.machine_id or ""
        ):
            yield Withheld(host=host, fix=wish.check, findings=len(failures), runs=runs)
        elif suspected := rules.suspects(host, wish.check):
            yield Withheld(host=host, fix=wish.check, findings=len(failures), suspected=suspected)
        else:
            listed = tuple(finding for finding in failures if finding.subject != MORE)
            yield from _draft_fix(host, node.evidence, wish, fix, listed, rules)
            hidden = (finding for finding in failures if finding.subject == MORE)
            yield from (UnfixedFinding(host=host, finding=finding) for finding in hidden)


def _draft_fix(
    host: str,
    evidence: Evidence,
    wish: Expectation,
    fix: Fix,
    failures: tuple[Finding, ...],
    rules: Rules,
) -> Iterator[DraftEntry]:
    options = tuple(option for option in fix.options if option in rules.options)
    try:
        changes = list(fix.changes(evidence, failures, wish.params, options))
    except FixError as error:
        advice = "; ".join(dict.fromkeys(finding.advice for finding in failures if finding.advice))
        yield Conflict(host=host, fix=wish.check, why=str(error), advice=advice)
        return
    except (Exception, SystemExit) as error:  # one fix's fault costs no other
        why = f"the fix itself failed: {type(error).__name__}: {error}"
        yield Conflict(host=host, fix=wish.check, why=why, advice="report it")
        return
    repaired: set[str] = set()
    for change in changes:
        findings = tuple(
            finding
            for finding in failures
            if not change.subjects or finding.subject.label in change.subjects
        )
        repaired.update(finding.subject.label for finding in findings)
        if fault := _change_problem(change, fix):
            yield Conflict(host=host, fix=wish.check, why=fault, advice="report it")
        elif not findings:
            why = "the fix changes something that no finding names: " + ", ".join(change.subjects)
            yield Conflict(host=host, fix=wish.check, why=why, advice="report it")
        elif change.risk.rank > rules.max_risk.rank:
            yield Withheld(host=host, fix=wish.check, findings=len(findings), risk=change.risk)
        else:
            harmless = holders.holder_names(rules.rollout(1).holders)
            services = holders.services_to_stop(change, evidence, harmless)
            note = "; ".join(
                filter(None, (change.note, holders.holders_note(change, evidence, harmless)))
            )
            yield Candidate(
                host=host,
                fix=wish.check,
                change=replace(holders.with_stopped(change, services), note=note),
                findings=findings,
                subject_uuids=subject_uuids(change, findings, evidence),
                options=options,
                holders=services,
            )
    for finding in failures:
        if finding.subject.label not in repaired:
            yield UnfixedFinding(host=host, finding=finding)


def subject_uuids(
    change: PlannedChange, findings: Sequence[Finding], evidence: Evidence
) -> tuple[str, ...]:
    """The UUIDs of the GPUs among the subjects of a change, in their order: the number of a GPU may
    be another GPU's at the time of the change. Empty if a UUID is unknown or may change."""
    stable = own_gpus(evidence)
    by_label = {finding.subject.label: finding.subject.uuid or "" for finding in findings}
    labels = filter(GPU_LABEL.fullmatch, change.subjects)
    uuids = tuple(by_label.get(label, "") for label in labels)
    return uuids if set(uuids) <= set(stable) else ()


def _change_problem(change: PlannedChange, fix: Fix) -> str:
    """Why the plan must not have this change, which contradicts its fix; empty if it may."""
    if change.risk.rank > fix.risk.rank:
        return f"the fix says risk {fix.risk.value} and asks for {change.risk.value}"
    if not change.actions:
        return "the fix would do nothing"
    if change.effective not in EFFECTIVE:
        return f"the fix is effective {change.effective!r}; it must be one of {EFFECTIVE}"
    if not change.resources:
        return "the fix names nothing that it changes, so it cannot be rolled back"
    for resource in change.resources:
        if problem := kind_of(resource).name_problem(resource.name):
            return f"the fix would change {quoted(resource.label)}, which {problem}"
    undeclared_labels = ", ".join(
        resource.label for resource in undeclared_resources(change.all_actions, change.resources)
    )
    if undeclared_labels:
        return f"the fix would change {undeclared_labels} and does not name it"
    unused_labels = ", ".join(
        resource.label for resource in unused_resources(change.all_actions, change.resources)
    )
    return f"the fix names {unused_labels}, which no action names" if unused_labels else ""
