"""Group nodes by hardware, and find what the nodes of a group agree on."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from nodevet.baseline import params_of
from nodevet.baseline.choose import CannotTell, detected_gpus
from nodevet.checking.catalog import Catalog
from nodevet.checking.facts import facts_of
from nodevet.evidence.document import Evidence
from nodevet.learn.learn import Lessons, findings_by
from nodevet.model import Finding, Value, Verdict


class HardwareGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts of one machine model with the same kinds of GPUs, in any number."""

    what: str  # Supermicro SYS-821GE, NVIDIA H100 80GB HBM3
    hosts: tuple[str, ...]


def group_by_hardware(nodes: Mapping[str, Evidence]) -> tuple[HardwareGroup, ...]:
    """The groups, the largest first. Every host is in one group."""
    groups: dict[tuple[str, ...], list[str]] = {}
    words: dict[tuple[str, ...], str] = {}
    for host, evidence in nodes.items():
        key, what = _hardware(evidence)
        groups.setdefault(key, []).append(host)
        words.setdefault(key, what)
    grouped = [HardwareGroup(what=words[key], hosts=tuple(hosts)) for key, hosts in groups.items()]
    return tuple(sorted(grouped, key=lambda group: (-len(group.hosts), group.what)))


def _hardware(evidence: Evidence) -> tuple[tuple[str, ...], str]:
    facts = facts_of(evidence)
    gpus = detected_gpus(evidence)
    known_gpus = () if isinstance(gpus, CannotTell) else gpus
    ids = sorted({f"{gpu.device} {gpu.subsystem or ''}" for gpu in known_gpus})
    machine = facts.machine or ""
    names = sorted({gpu.name or gpu.device or "GPU" for gpu in known_gpus})
    what = ", ".join(filter(None, (machine, *names))) or "unidentified hardware"
    return (machine, facts.architecture or "", *ids), what


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A field that differs between hosts: its values with their hosts, the most frequent first."""

    check: str
    field: str
    values: tuple[tuple[Value, tuple[str, ...]], ...]  # None: not known


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """What a check expects of all of the hosts."""

    check: str
    fields: Mapping[str, Value]
    params: Any  # the check's own Params
    bare: str | None = None  # the field that a value without a name is for
    findings: Mapping[str, tuple[Finding, ...]]  # by host

    @property
    def want(self) -> Value:
        """The value as a baseline writes it."""
        if self.bare is not None and set(self.fields) == {self.bare}:
            value = self.fields[self.bare]
            return self.fields if isinstance(value, Mapping) else value
        return dict(self.fields)


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """What is expected of all of these hosts, and what was left out."""

    hosts: tuple[str, ...]
    expected: tuple[Expected, ...]
    differences: tuple[Difference, ...]
    left_out: Mapping[str, str]  # the reason, by check


Choose = Callable[[Difference, int], bool]
"""Whether the most frequent value is expected of all hosts: by the values, and the number of
hosts."""


def unanimous(
    nodes: Mapping[str, Evidence], lessons: Mapping[str, Lessons], catalog: Catalog
) -> Agreement:
    """The values that all nodes have, as far as each node passes with them."""
    agreement = _agree(
        nodes, lessons, catalog, lambda difference, count: len(difference.values) == 1
    )
    passing, left_out = [], dict(agreement.left_out)
    for expected in agreement.expected:
        why = _reason_not_passed(expected)
        if why:
            left_out[expected.check] = why
        else:
            passing.append(expected)
    return msgspec.structs.replace(agreement, expected=tuple(passing), left_out=left_out)


def majority(
    nodes: Mapping[str, Evidence], lessons: Mapping[str, Lessons], catalog: Catalog
) -> Agreement:
    """The values that more than half of the nodes have."""
    return _agree(
        nodes, lessons, catalog, lambda difference, count: 2 * len(difference.values[0][1]) > count
    )


def _agree(
    nodes: Mapping[str, Evidence],
    lessons: Mapping[str, Lessons],
    catalog: Catalog,
    choose: Choose,
) -> Agreement:
    hosts = tuple(nodes)
    expected: list[Expected] = []
    differences: list[Difference] = []
    left_out: dict[str, str] = {}
    for name in lessons[hosts[0]]:
        check = catalog.check(name)
        learned = {host: lessons[host][name] for host in hosts}
        if all(lesson.fields is None for lesson in learned.values()):
            left_out[name] = learned[hosts[0]].why
            continue
        differences_of = _compare_fields(
            name, {host: lesson.fields for host, lesson in learned.items()}
        )
        differences += [difference for difference in differences_of if len(difference.values) > 1]
        fields = {
            difference.field: difference.values[0][0]
            for difference in differences_of
            if choose(difference, len(hosts)) and difference.values[0][0] is not None
        }
        params = params_of(check, fields)
        if params is None or (differences_of and not fields):
            left_out[name] = "the hosts do not agree"
            continue
        findings = {
            host: findings_by(name, params, nodes[host], catalog, host=host) for host in hosts
        }
        expected.append(
            Expected(
                check=name,
                fields=fields,
                params=params,
                bare=check.params.bare,
                findings=findings,
            )
        )
    return Agreement(
        hosts=hosts,
        expected=tuple(expected),
        differences=tuple(differences),
        left_out=left_out,
    )


def _compare_fields(
    check: str, fields: Mapping[str, Mapping[str, Value] | None]
) -> list[Difference]:
    """The values of every field that any host has, with their hosts."""
    names = dict.fromkeys(name for host_fields in fields.values() for name in host_fields or ())
    return [
        Difference(check=check, field=name, values=tuple(_values(name, fields))) for name in names
    ]


def _values(
    field: str, fields: Mapping[str, Mapping[str, Value] | None]
) -> Iterator[tuple[Value, tuple[str, ...]]]:
    by_text: dict[bytes, tuple[Value, list[str]]] = {}
    for host, host_fields in fields.items():
        value = (host_fields or {}).get(field)
        key = msgspec.json.encode(value, order="sorted")
        by_text.setdefault(key, (value, []))[1].append(host)
    order = sorted(by_text.values(), key=lambda item: (item[0] is None, -len(item[1])))
    for value, hosts in order:
        yield value, tuple(hosts)


def _reason_not_passed(expected: Expected) -> str:
    """Why not every host passes; empty if all do."""
    all_findings = [
        finding for host_findings in expected.findings.values() for finding in host_findings
    ]
    for verdict in (Verdict.FAIL, Verdict.UNKNOWN):
        for host, host_findings in expected.findings.items():
            for finding in host_findings:
                if finding.verdict is verdict:
                    return f"{_finding_text(finding)} on {host}"
    return (
        ""
        if any(finding.verdict is Verdict.OK for finding in all_findings)
        else _reason_not_applicable(all_findings)
    )


def _reason_not_applicable(findings: Iterable[Finding]) -> str:
    why = next((finding.why for finding in findings if finding.why), "")
    return f"not applicable: {why}" if why else "not applicable"


def _finding_text(finding: Finding) -> str:
    label = f"{finding.subject.label}: " if finding.subject.label else ""
    if finding.verdict is Verdict.UNKNOWN:
        return f"{label}unknown, {finding.why}"
    if finding.actual is None and finding.expected is None:
        return f"{label}{finding.why}"
    return f"{label}{finding.text(finding.actual)}, expected {finding.text(finding.expected)}"
