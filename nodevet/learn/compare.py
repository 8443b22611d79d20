"""Compare nodes with similar hardware: the majority's values, and the outliers."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from nodevet.checking.catalog import Catalog
from nodevet.evidence.document import Evidence
from nodevet.learn.agree import Agreement, Difference, HardwareGroup, group_by_hardware, majority
from nodevet.learn.learn import learn
from nodevet.model import Finding, HostReport, Severity, Status, Value, Verdict
from nodevet.model.changes import Marks
from nodevet.sheet.text import nodeset
from nodevet.vet.findings.causes import causes_of


class Odd(msgspec.Struct, frozen=True, kw_only=True):
    """A value that differs between the hosts of a group.

    `values`: each value with its hosts, the most frequent first; None: not known. `expected`: the
    value of the majority, None if no majority. For a part of a node (`subject`), or for a
    reason instead of a value, the hosts are listed by what was read.
    """

    check: str
    field: str = ""  # of the check's params; empty: the only one
    expected: Value = None
    agreeing: int = 0  # hosts with the expected value
    values: tuple[tuple[Value, tuple[str, ...]], ...] = ()
    subject: str = ""
    effects: int = 0  # findings that follow from this one

    @property
    def outliers(self) -> tuple[str, ...]:
        """The hosts that differ from the majority; none without a majority."""
        if self.agreeing == 0:
            return ()
        others = self.values if self.subject else self.values[1:]
        return tuple(dict.fromkeys(host for _, hosts in others for host in hosts))


class ComparedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts with similar hardware."""

    what: str
    hosts: tuple[str, ...]
    odd: tuple[Odd, ...]
    alike: tuple[str, ...]  # the checks whose values all of them share

    @property
    def outliers(self) -> tuple[str, ...]:
        """The outliers, in the order of the hosts."""
        outliers = {host for odd in self.odd for host in odd.outliers}
        return tuple(host for host in self.hosts if host in outliers)

    @property
    def split(self) -> bool:
        """Whether a value differs without a majority."""
        return any(odd.agreeing == 0 for odd in self.odd)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """All groups, the largest first, and the hosts that could not be read, with reasons."""

    groups: tuple[ComparedGroup, ...]
    lost: Mapping[str, str] = {}

    @property
    def outliers(self) -> tuple[str, ...]:
        return tuple(host for group in self.groups for host in group.outliers)

    @property
    def exit_code(self) -> int:
        """0: all hosts are alike; 1: some differ; 3: a host could not be compared. 1 wins."""
        if any(group.odd for group in self.groups):
            return 1
        comparable = any(len(group.hosts) > 1 for group in self.groups)
        return 3 if self.lost or not comparable else 0


class ComparisonAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A comparison in JSON."""

    groups: tuple[ComparedGroup, ...]  # the largest first
    lost: Mapping[str, str]  # hosts that could not be read, and why
    outliers: tuple[str, ...]  # the hosts that differ


def compare(
    nodes: Mapping[str, Evidence], catalog: Catalog, lost: Mapping[str, str] | None = None
) -> Comparison:
    """Compare the hosts of each group. Raises CatalogError for a broken check."""
    groups = tuple(_compare_group(group, nodes, catalog) for group in group_by_hardware(nodes))
    return Comparison(groups=groups, lost=lost or {})


def _compare_group(
    group: HardwareGroup, nodes: Mapping[str, Evidence], catalog: Catalog
) -> ComparedGroup:
    if len(group.hosts) == 1:
        return ComparedGroup(what=group.what, hosts=group.hosts, odd=(), alike=())
    members = {host: nodes[host] for host in group.hosts}
    lessons = {host: learn(evidence, catalog, catalog.ids) for host, evidence in members.items()}
    agreement = majority(members, lessons, catalog)
    odd = (*_values(agreement, catalog), *_parts(agreement))
    odd_checks = {item.check for item in odd}
    same = tuple(
        expected.check for expected in agreement.expected if expected.check not in odd_checks
    )
    return ComparedGroup(what=group.what, hosts=group.hosts, odd=odd, alike=same)


def _values(agreement: Agreement, catalog: Catalog) -> Iterator[Odd]:
    """The values of whole hosts that differ."""
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
    """The findings that fail or are unknown on some hosts with the majority's values, without those
    that `_values` reports already. Effects of a fault are counted with it."""
    reported = {
        (difference.check, host)
        for difference in agreement.differences
        for host in _minority(difference)
    }
    kinds: dict[tuple[str, Verdict], dict[_OddPart, list[str]]] = {}
    for host in agreement.hosts:
        for finding, effects in _roots(agreement, host):
            if (finding.check, host) not in reported:
                part = _odd_part(finding, effects)
                of_kind = kinds.setdefault((finding.check, finding.verdict), {})
                of_kind.setdefault(part, []).append(host)
    for (check, _), hosts_of in sorted(kinds.items(), key=lambda kind: kind[0][0]):
        if all(len(hosts) == len(agreement.hosts) for hosts in hosts_of.values()):
            continue
        failing = {host for hosts in hosts_of.values() for host in hosts}
        passing = len(agreement.hosts) - len(failing)
        for part, hosts in hosts_of.items():
            yield Odd(
                check=check,
                subject=part.subject,
                expected=part.expected,
                agreeing=passing if passing > len(failing) else 0,
                values=((part.found, tuple(dict.fromkeys(hosts))),),
                effects=part.effects,
            )


class _OddPart(NamedTuple):
    """What was read of a part of a node, as text."""

    subject: str
    found: str
    expected: str | None
    effects: int


def _odd_part(finding: Finding, effects: int) -> _OddPart:
    expected = None if finding.expected is None else finding.text(finding.expected)
    return _OddPart(finding.subject.label or "node", _actual_text(finding), expected, effects)


def _roots(agreement: Agreement, host: str) -> list[tuple[Finding, int]]:
    """The findings of a host that are not effects, each with the number of its effects."""
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


def _actual_text(finding: Finding) -> str:
    if finding.verdict is Verdict.UNKNOWN:
        return f"unknown: {finding.why}"
    return finding.why if finding.actual is None else finding.text(finding.actual)


def as_document(comparison: Comparison) -> dict[str, Any]:
    """The JSON form, a ComparisonAnswer."""
    answer = ComparisonAnswer(
        groups=comparison.groups, lost=comparison.lost, outliers=comparison.outliers
    )
    document: dict[str, Any] = msgspec.to_builtins(answer)
    return document


def as_nodeset(comparison: Comparison) -> str:
    """The outliers for `srun --exclude`; an empty line if there are none."""
    return nodeset(comparison.outliers)
