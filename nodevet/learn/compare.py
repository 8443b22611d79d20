"""Nodes of like hardware held against one another: what most of them are, and who is not."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from nodevet.checking.catalog import Catalog
from nodevet.checking.changes import Marks
from nodevet.evidence.document import Evidence
from nodevet.learn.agree import Agreement, Difference, majority
from nodevet.learn.alike import Alike, alike
from nodevet.learn.learn import learn
from nodevet.model import Finding, HostReport, Severity, Status, Value, Verdict
from nodevet.vet.findings.causes import causes_of


class Odd(msgspec.Struct, frozen=True, kw_only=True):
    """Something that hosts of a group do not have in common.

    `values`: who says what, the most frequent first; None: it says nothing. `expected` is what
    most say, None if there is no majority. Of a part of a node (`subject`), or of what is not a
    value (`why`), the hosts stand under what was found.
    """

    check: str
    field: str = ""  # of the check's params; empty: the only one
    expected: Value = None
    agreeing: int = 0  # hosts that are as expected
    values: tuple[tuple[Value, tuple[str, ...]], ...] = ()
    subject: str = ""
    effects: int = 0  # findings that follow from this one

    @property
    def outliers(self) -> tuple[str, ...]:
        """The hosts that are not as most are; none without a majority."""
        if self.agreeing == 0:
            return ()
        others = self.values if self.subject else self.values[1:]
        return tuple(dict.fromkeys(host for _, hosts in others for host in hosts))


class ComparedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts of like hardware."""

    what: str
    hosts: tuple[str, ...]
    odd: tuple[Odd, ...]
    alike: tuple[str, ...]  # the checks by which all of them are the same

    @property
    def outliers(self) -> tuple[str, ...]:
        """In the order of the hosts."""
        found = {host for odd in self.odd for host in odd.outliers}
        return tuple(host for host in self.hosts if host in found)

    @property
    def split(self) -> bool:
        """Whether something is told of which there is no majority."""
        return any(odd.agreeing == 0 for odd in self.odd)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All groups, the largest first, and the hosts that could not be read, with why."""

    groups: tuple[ComparedGroup, ...]
    lost: Mapping[str, str] = {}

    @property
    def outliers(self) -> tuple[str, ...]:
        return tuple(host for group in self.groups for host in group.outliers)

    @property
    def exit_code(self) -> int:
        """0: all alike; 1: some host is not; 3: something could not be compared. 1 wins."""
        if any(group.odd for group in self.groups):
            return 1
        comparable = any(len(group.hosts) > 1 for group in self.groups)
        return 3 if self.lost or not comparable else 0


def compare(
    nodes: Mapping[str, Evidence], catalog: Catalog, lost: Mapping[str, str] | None = None
) -> Comparison:
    """Each group of like hosts. Raises CatalogError for a check that is broken."""
    groups = tuple(_compared(group, nodes, catalog) for group in alike(nodes))
    return Comparison(groups=groups, lost=lost or {})


def _compared(group: Alike, nodes: Mapping[str, Evidence], catalog: Catalog) -> ComparedGroup:
    if len(group.hosts) == 1:
        return ComparedGroup(what=group.what, hosts=group.hosts, odd=(), alike=())
    members = {host: nodes[host] for host in group.hosts}
    lessons = {host: learn(evidence, catalog, catalog.ids) for host, evidence in members.items()}
    agreement = majority(members, lessons, catalog)
    odd = (*_values(agreement, catalog), *_parts(agreement))
    told = {one.check for one in odd}
    same = tuple(each.check for each in agreement.expected if each.check not in told)
    return ComparedGroup(what=group.what, hosts=group.hosts, odd=odd, alike=same)


def _values(agreement: Agreement, catalog: Catalog) -> Iterator[Odd]:
    """What hosts as a whole say differently."""
    for difference in agreement.differences:
        (value, hosts), *_ = difference.values
        most = 2 * len(hosts) > len(agreement.hosts)
        bare = catalog.check(difference.check).params.bare
        yield Odd(
            check=difference.check,
            field="" if difference.field == bare else difference.field,
            expected=value if most else None,
            agreeing=len(hosts) if most else 0,
            values=difference.values,
        )


def _parts(agreement: Agreement) -> Iterator[Odd]:
    """What fails, or is unknown, on some hosts by what most of them are: what they as a whole say
    differently is told already, and what follows from a fault is counted with it."""
    told = {(each.check, host) for each in agreement.differences for host in _minority(each)}
    kinds: dict[tuple[str, Verdict], dict[_OddPart, list[str]]] = {}
    for host in agreement.hosts:
        for finding, effects in _roots(agreement, host):
            if (finding.check, host) not in told:
                seen = _seen(finding, effects)
                of_kind = kinds.setdefault((finding.check, finding.verdict), {})
                of_kind.setdefault(seen, []).append(host)
    for (check, _), wrong in sorted(kinds.items(), key=lambda kind: kind[0][0]):
        if all(len(hosts) == len(agreement.hosts) for hosts in wrong.values()):
            continue
        bad = {host for hosts in wrong.values() for host in hosts}
        good = len(agreement.hosts) - len(bad)
        for seen, hosts in wrong.items():
            yield Odd(
                check=check,
                subject=seen.subject,
                expected=seen.expected,
                agreeing=good if good > len(bad) else 0,
                values=((seen.found, tuple(dict.fromkeys(hosts))),),
                effects=seen.effects,
            )


class _OddPart(NamedTuple):
    """What was found of a part of a node, as text."""

    subject: str
    found: str
    expected: str | None
    effects: int


def _seen(finding: Finding, effects: int) -> _OddPart:
    expected = None if finding.expected is None else finding.text(finding.expected)
    return _OddPart(finding.subject.label or "node", _found(finding), expected, effects)


def _roots(agreement: Agreement, host: str) -> list[tuple[Finding, int]]:
    """What is wrong on a host, each with how many others follow from it."""
    findings = tuple(
        finding
        for expected in agreement.expected
        for finding in expected.findings[host]
        if finding.verdict in (Verdict.FAIL, Verdict.UNKNOWN)
    )
    report = HostReport(host=host, status=Status.VETTED, findings=findings)
    causes = causes_of(report, Severity.INFO, Marks())
    effects = Counter(causes.values())
    return [
        (finding, effects[place]) for place, finding in enumerate(findings) if place not in causes
    ]


def _minority(difference: Difference) -> Iterator[str]:
    for _, hosts in difference.values[1:]:
        yield from hosts


def _found(finding: Finding) -> str:
    if finding.verdict is Verdict.UNKNOWN:
        return f"unknown: {finding.why}"
    return finding.why if finding.actual is None else finding.text(finding.actual)
