"""What several nodes agree on, and what they do not."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from nodevet.baseline import params_of
from nodevet.checking.catalog import Catalog
from nodevet.evidence.document import Evidence
from nodevet.learn.learn import Lessons, findings_by
from nodevet.model import Check, Finding, Value, Verdict


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """What hosts say differently: the hosts of each value, those of the most frequent one first."""

    check: str
    field: str
    values: tuple[tuple[Value, tuple[str, ...]], ...]  # None: it says nothing


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """What a check is to expect of all of them."""

    check: str
    fields: Mapping[str, Value]
    params: Any  # the check's own Params
    bare: str | None = None  # the field that a plain value fills
    findings: Mapping[str, tuple[Finding, ...]]  # by host

    @property
    def want(self) -> Value:
        """As a baseline says it."""
        if self.bare is not None and set(self.fields) == {self.bare}:
            value = self.fields[self.bare]
            return self.fields if isinstance(value, Mapping) else value
        return dict(self.fields)


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """What is expected of every one of these hosts, and what could not be."""

    hosts: tuple[str, ...]
    expected: tuple[Expected, ...]
    differences: tuple[Difference, ...]
    left_out: Mapping[str, str]  # why, by check


Choose = Callable[[Difference, int], bool]
"""Whether the most frequent of these values is what is expected of so many hosts."""


def unanimous(
    nodes: Mapping[str, Evidence], lessons: Mapping[str, Lessons], catalog: Catalog
) -> Agreement:
    """What all of them say, as far as each of them passes by it."""
    found = _agree(nodes, lessons, catalog, lambda said, count: len(said.values) == 1)
    kept, left_out = [], dict(found.left_out)
    for expected in found.expected:
        why = _not_passed(expected)
        if why:
            left_out[expected.check] = why
        else:
            kept.append(expected)
    return msgspec.structs.replace(found, expected=tuple(kept), left_out=left_out)


def majority(
    nodes: Mapping[str, Evidence], lessons: Mapping[str, Lessons], catalog: Catalog
) -> Agreement:
    """What more than half of them say."""
    return _agree(nodes, lessons, catalog, lambda said, count: 2 * len(said.values[0][1]) > count)


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
        learnt = {host: lessons[host][name] for host in hosts}
        if all(lesson.fields is None for lesson in learnt.values()):
            left_out[name] = learnt[hosts[0]].why
            continue
        said = _said(name, {host: lesson.fields for host, lesson in learnt.items()})
        differences += [each for each in said if len(each.values) > 1]
        fields = {
            each.field: each.values[0][0]
            for each in said
            if choose(each, len(hosts)) and each.values[0][0] is not None
        }
        params = params_of(check, fields)
        if params is None or (said and not fields):
            left_out[name] = "the hosts do not agree"
            continue
        found = {host: findings_by(name, params, nodes[host], catalog, host=host) for host in hosts}
        expected.append(_expected(name, check, fields, params, found))
    return Agreement(
        hosts=hosts,
        expected=tuple(expected),
        differences=tuple(differences),
        left_out=left_out,
    )


def _expected(
    name: str,
    check: Check,
    fields: Mapping[str, Value],
    params: Any,
    findings: Mapping[str, tuple[Finding, ...]],
) -> Expected:
    return Expected(
        check=name, fields=fields, params=params, bare=check.params.bare, findings=findings
    )


def _said(check: str, fields: Mapping[str, Mapping[str, Value] | None]) -> list[Difference]:
    """Of every field that any host has, which hosts say what."""
    names = dict.fromkeys(name for each in fields.values() for name in each or ())
    return [
        Difference(check=check, field=name, values=tuple(_values(name, fields))) for name in names
    ]


def _values(
    field: str, fields: Mapping[str, Mapping[str, Value] | None]
) -> Iterator[tuple[Value, tuple[str, ...]]]:
    by_text: dict[bytes, tuple[Value, list[str]]] = {}
    for host, said in fields.items():
        value = (said or {}).get(field)
        key = msgspec.json.encode(value, order="sorted")
        by_text.setdefault(key, (value, []))[1].append(host)
    order = sorted(by_text.values(), key=lambda one: (one[0] is None, -len(one[1])))
    for value, hosts in order:
        yield value, tuple(hosts)


def _not_passed(expected: Expected) -> str:
    """Why not every host passes by it; empty if each of them does."""
    every = [finding for found in expected.findings.values() for finding in found]
    for verdict in (Verdict.FAIL, Verdict.UNKNOWN):
        for host, found in expected.findings.items():
            for finding in found:
                if finding.verdict is verdict:
                    return f"{_told(finding)} on {host}"
    return "" if any(finding.verdict is Verdict.OK for finding in every) else _not_asked(every)


def _not_asked(findings: Iterable[Finding]) -> str:
    why = next((finding.why for finding in findings if finding.why), "")
    return f"not applicable: {why}" if why else "not applicable"


def _told(finding: Finding) -> str:
    label = f"{finding.subject.label}: " if finding.subject.label else ""
    if finding.verdict is Verdict.UNKNOWN:
        return f"{label}unknown, {finding.why}"
    if finding.actual is None and finding.expected is None:
        return f"{label}{finding.why}"
    return f"{label}{finding.text(finding.actual)}, expected {finding.text(finding.expected)}"
