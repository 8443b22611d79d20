"""What the fixes would change on each node, before anybody looked at who else sets it. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec
from msgspec.structs import replace

from nodevet.base.problems import quoted
from nodevet.checking.catalog import Catalog
from nodevet.evidence.document import Evidence
from nodevet.fix.journal.attempts import Failure, runs_of
from nodevet.fix.model import Conflict
from nodevet.fix.plan import holders
from nodevet.fix.plan.contradictions import EFFECTIVE
from nodevet.fix.settings import Rollout
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk
from nodevet.model import MORE, Baseline, Expectation, Finding, HostReport, Status, Verdict
from nodevet.resource import Resource, kind_of, unnamed, untouched


class Suspected(msgspec.Struct, frozen=True, kw_only=True):
    """A check that too many hosts began to fail at once, for their own fault to be likely."""

    check: str
    still: frozenset[str]  # the hosts that fail it since then
    hosts: int  # that began to
    judged: int
    on: str  # the day


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan may contain, and what is written into it. `now` knows its time zone."""

    id: str
    author: str
    now: datetime
    valid: timedelta = timedelta(hours=24)
    fixes: frozenset[str] | None = None  # these only; None: those that the baseline allows
    max_risk: Risk = Risk.REBOOT
    options: frozenset[str] = frozenset()  # now, restart
    nodevet: str = ""  # the version
    failed: tuple[Failure, ...] = ()  # lately, on the same nodes: not planned again by itself
    suspected: tuple[Suspected, ...] = ()  # not planned by itself either
    rollout: Callable[[int], Rollout] = lambda nodes: Rollout()  # by the number of nodes

    def allow(self, wish: Expectation) -> bool:
        return wish.fix if self.fixes is None else wish.check in self.fixes

    def suspects(self, host: str, check: str) -> Suspected | None:
        found = (each for each in self.suspected if each.check == check and host in each.still)
        return next(found, None)


class VettedNode(msgspec.Struct, frozen=True, kw_only=True):
    """One host as the check left it. `evidence` and `baseline` are there where it was judged."""

    report: HostReport
    evidence: Evidence | None = None
    baseline: Baseline | None = None


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A change that may enter the plan."""

    host: str
    fix: str
    change: PlannedChange
    findings: tuple[Finding, ...]  # that it answers
    options: tuple[str, ...] = ()  # of its fix, that it was planned with
    holders: tuple[str, ...] = ()  # services that the change stops first and starts last


class Withheld(msgspec.Struct, frozen=True, kw_only=True):
    """Wrong findings that have a fix which may not enter. The last three: set if that is why."""

    host: str
    fix: str
    findings: int
    baseline: str = ""  # the name of the one that would have to allow it, where that is why
    risk: Risk | None = None
    runs: tuple[str, ...] = ()  # in which it failed
    suspected: Suspected | None = None


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """A wrong finding that no fix answers."""

    host: str
    finding: Finding


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that follows from the findings."""

    nodes: Mapping[str, VettedNode]
    candidates: tuple[Candidate, ...]
    conflicts: tuple[Conflict, ...]
    withheld: tuple[Withheld, ...]
    left: tuple[Left, ...]
    order: tuple[str, ...] = ()  # in which a node takes the fixes of the candidates

    @property
    def resources(self) -> Mapping[str, tuple[Resource, ...]]:
        """What is to be looked at before it can be planned, by host."""
        found: dict[str, set[Resource]] = {}
        for each in self.candidates:
            found.setdefault(each.host, set()).update(each.change.resources)
        return {host: tuple(sorted(resources)) for host, resources in found.items()}


Drafted = Candidate | Conflict | Withheld | Left


def draft(nodes: Sequence[VettedNode], catalog: Catalog, rules: Rules) -> Draft:
    """Every wrong finding in one of four places. Raises CatalogError as the catalog does."""
    entries = [entry for node in nodes for entry in _of_node(node, catalog, rules)]
    return Draft(
        nodes={node.report.host: node for node in nodes},
        candidates=tuple(entry for entry in entries if isinstance(entry, Candidate)),
        conflicts=tuple(entry for entry in entries if isinstance(entry, Conflict)),
        withheld=tuple(entry for entry in entries if isinstance(entry, Withheld)),
        left=tuple(entry for entry in entries if isinstance(entry, Left)),
        order=catalog.order(entry.fix for entry in entries if isinstance(entry, Candidate)),
    )


def _of_node(node: VettedNode, catalog: Catalog, rules: Rules) -> Iterator[Drafted]:
    if node.report.status is not Status.VETTED or not node.evidence or not node.baseline:
        return
    host = node.report.host
    for wish in node.baseline.expectations:
        wrong = tuple(
            finding
            for finding in node.report.findings
            if finding.check == wish.check and finding.verdict is Verdict.FAIL
        )
        fix = catalog.fix(wish.check) if wrong else None
        if fix is None:
            yield from (Left(host=host, finding=finding) for finding in wrong)
        elif not rules.allow(wish):
            name = node.baseline.label
            yield Withheld(host=host, fix=wish.check, findings=len(wrong), baseline=name)
        elif runs := runs_of(rules.failed, host, wish.check, node.report.machine_id or ""):
            yield Withheld(host=host, fix=wish.check, findings=len(wrong), runs=runs)
        elif suspected := rules.suspects(host, wish.check):
            yield Withheld(host=host, fix=wish.check, findings=len(wrong), suspected=suspected)
        else:
            listed = tuple(finding for finding in wrong if finding.subject != MORE)
            yield from _of_fix(host, node.evidence, wish, fix, listed, rules)
            more = (finding for finding in wrong if finding.subject == MORE)
            yield from (Left(host=host, finding=finding) for finding in more)


def _of_fix(
    host: str,
    evidence: Evidence,
    wish: Expectation,
    fix: Fix,
    wrong: tuple[Finding, ...],
    rules: Rules,
) -> Iterator[Drafted]:
    options = tuple(option for option in fix.options if option in rules.options)
    try:
        changes = list(fix.changes(evidence, wrong, wish.params, options))
    except FixError as error:
        advice = "; ".join(dict.fromkeys(finding.advice for finding in wrong if finding.advice))
        yield Conflict(host=host, fix=wish.check, why=str(error), advice=advice)
        return
    except (Exception, SystemExit) as error:  # one fix's fault costs no other
        why = f"the fix itself failed: {type(error).__name__}: {error}"
        yield Conflict(host=host, fix=wish.check, why=why, advice="report it")
        return
    answered: set[str] = set()
    for change in changes:
        found = tuple(
            finding
            for finding in wrong
            if not change.subjects or finding.subject.label in change.subjects
        )
        answered.update(finding.subject.label for finding in found)
        if fault := _fault(change, fix):
            yield Conflict(host=host, fix=wish.check, why=fault, advice="report it")
        elif not found:
            why = "the fix answers no finding: " + ", ".join(change.subjects)
            yield Conflict(host=host, fix=wish.check, why=why, advice="report it")
        elif change.risk.rank > rules.max_risk.rank:
            yield Withheld(host=host, fix=wish.check, findings=len(found), risk=change.risk)
        else:
            harmless = holders.names(rules.rollout(1).holders)
            services = holders.to_stop(change, evidence, harmless)
            told = "; ".join(filter(None, (change.note, holders.note(change, evidence, harmless))))
            yield Candidate(
                host=host,
                fix=wish.check,
                change=replace(holders.around(change, services), note=told),
                findings=found,
                options=options,
                holders=services,
            )
    for finding in wrong:
        if finding.subject.label not in answered:
            yield Left(host=host, finding=finding)


def _fault(change: PlannedChange, fix: Fix) -> str:
    """Why such a change must not be made, or an empty text: a fix that is not what it says."""
    if change.risk.rank > fix.risk.rank:
        return f"the fix says risk {fix.risk.value} and asks for {change.risk.value}"
    if not change.actions:
        return "the fix would do nothing"
    if change.effective not in EFFECTIVE:
        return f"the fix is in force {change.effective!r}; it must be one of {EFFECTIVE}"
    if not change.resources:
        return "the fix names nothing that it changes, so it cannot be rolled back"
    for each in change.resources:
        if problem := kind_of(each).name_problem(each.name):
            return f"the fix would change {quoted(each.label)}, which {problem}"
    stray = ", ".join(each.label for each in unnamed(change.actions, change.resources))
    if stray:
        return f"the fix would change {stray} and does not name it"
    idle = ", ".join(each.label for each in untouched(change.actions, change.resources))
    return f"the fix names {idle}, which none of its actions does" if idle else ""
