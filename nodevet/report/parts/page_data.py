"""What the script of the HTML page draws from: data whose texts are printable and bounded. Pure.

`checks` are columns, a finding is what one of them says of one host or of parts of it; of a run of
fixes `nodevet.report.parts.fix_data` makes the same. What hosts share is there once, by its place.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief
from nodevet.checking.changes import Marks
from nodevet.model import Finding, HostReport, Run, Status, Verdict
from nodevet.sheet.hunks import hunks
from nodevet.sheet.text import count, name, nodeset
from nodevet.vet.findings import facts
from nodevet.vet.findings.ages import read_at
from nodevet.vet.findings.causes import with_causes
from nodevet.vet.findings.fold import Line, came_back, lines, totals
from nodevet.vet.findings.words import difference, in_ranges, values
from nodevet.vet.formats.diff import value_lines
from nodevet.vet.news import marks_of, since_words

MOST_LINES = 200  # of one finding's differences
LONGEST = 2000  # columns of one text
_FINE = (Verdict.OK, Verdict.NOT_APPLICABLE)
_WORST = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WAIVED, Verdict.OK, Verdict.NOT_APPLICABLE)
_TROUBLE = _WORST[:3]
_BLANK: tuple[object, ...] = ("", [], None)  # left out


class Shared:
    """Values that many hosts have, each once; a host has their places."""

    def __init__(self) -> None:
        self.places: dict[Any, int] = {}

    def place(self, value: Any) -> int:
        return self.places.setdefault(value, len(self.places))

    @property
    def values(self) -> list[Any]:
        return list(self.places)


class _Group(NamedTuple):
    """Findings of one host that differ in their subject alone, and their places in its report."""

    findings: tuple[Finding, ...]
    places: tuple[int, ...]


def data(run: Run) -> dict[str, Any]:
    """What the script draws from of a run of checks."""
    marks = marks_of(run)
    fresh: dict[str, set[int]] = {}
    for host, place in marks.findings:
        fresh.setdefault(host, set()).add(place)
    checks, sets, about = Shared(), Shared(), Shared()
    findings: list[dict[str, Any]] = []
    known: dict[tuple[Any, ...], int] = {}
    hosts = []
    for report in run.hosts:
        members: list[int] = []
        new: list[int] = []
        groups = _alike(with_causes(report, run.fail_on))
        for group in groups:
            key = (_key(group.findings[0]), tuple(map(_subject, group.findings)))
            if key not in known:
                known[key] = len(findings)
                findings.append(_finding(group.findings, checks))
            if fresh.get(report.host, set()).intersection(group.places):
                new.append(len(members))
            members.append(known[key])
        told = {
            "set": sets.place(tuple(members)),
            "about": [about.place(row) for row in _about(report)],
            "gpus": _gpus(report),
            "parts": _parts(groups),
            "new": new,
            "since": _since(groups, report, marks, run.started) if marks.standing else [],
            "lost": report.host in marks.hosts,
        }
        hosts.append(given({**_host(report), **told}))
    places = {host.host: place for place, host in enumerate(run.summaries)}
    return {
        "kind": "checks",
        "checks": [text(check) for check in checks.values],
        "findings": findings,
        "sets": sets.values,
        "about": about.values,
        "hosts": hosts,
        "lines": [_line(line, places) for line in lines(run)],
        "outcomes": dict(totals(run).told),
        "verdicts": {verdict.value: verdict.value for verdict in _WORST},
        "compared": bool(run.news and run.news.since),
        "fails": [
            severity.value for severity in type(run.fail_on) if severity.rank >= run.fail_on.rank
        ],
    }


def _since(
    groups: Sequence[_Group], report: HostReport, marks: Marks, now: str
) -> list[tuple[int, str]]:
    """Of what is not new: its place among the host's rows, and since when it stands."""
    told = []
    for number, group in enumerate(groups):
        known = [marks.standing.get((report.host, place)) for place in group.places]
        old = [each for each in known if each is not None and not each.new]
        if words := since_words([each.since for each in old], now):
            flapping = "flapping" if max(each.began for each in old) else ""
            told.append((number, ", ".join(filter(None, (words, came_back(old), flapping)))))
    return told


def text(of: str) -> str:
    return brief(of, LONGEST)


def given(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that say something."""
    return {
        key: value for key, value in fields.items() if value is not False and value not in _BLANK
    }


def _alike(findings: Iterable[Finding]) -> list[_Group]:
    """A row for `GPU 0-7` and for 32 policies, in the order of the first of each."""
    groups: dict[tuple[Any, ...], list[tuple[Finding, int]]] = {}
    for place, finding in enumerate(findings):
        groups.setdefault(_key(finding), []).append((finding, place))
    return [
        _Group(tuple(one for one, _ in some), tuple(place for _, place in some))
        for some in groups.values()
    ]


def _key(finding: Finding) -> tuple[Any, ...]:
    """Findings with the same key look the same in the page, whatever their host and subject."""
    expected, actual = finding.expected, finding.actual
    return (
        finding.check,
        finding.verdict,
        finding.severity,
        finding.subject.kind,
        type(expected),
        str(expected),
        type(actual),
        str(actual),
        finding.unit,
        finding.why,
        finding.waiver,
        finding.advice,
        finding.origin,
        finding.cause or "",
    )


def _subject(finding: Finding) -> str:
    return finding.subject.id


def _finding(group: Sequence[Finding], checks: Shared) -> dict[str, Any]:
    finding = group[0]
    trouble = finding.verdict in _TROUBLE
    return given(
        {
            "check": checks.place(finding.check),
            "verdict": finding.verdict.value,
            "severity": finding.severity.value,
            "label": text(in_ranges(each.subject.label for each in group)),
            "count": len(group) if len(group) > 1 else None,
            "what": difference(finding)[0] if trouble else "",
            "text": "" if finding.actual is None else text(values(finding)[1]),
            "why": text(finding.why),
            "cause": text(finding.cause or ""),
            "waiver": text(finding.waiver),
            "advice": text(finding.advice),
            "origin": text(finding.origin),
            "diff": list(_diff(finding)),
            "values": _values(finding) if trouble else None,
        }
    )


def _values(finding: Finding) -> dict[str, Any] | None:
    """Expected and actual as JSON, for whoever copies the finding; as text if they are long."""
    raw = {"expected": finding.expected, "actual": finding.actual}
    told = {key: value for key, value in raw.items() if value is not None}
    shown = dict(zip(raw, values(finding), strict=True))
    kept = {key: _bounded(value, shown[key]) for key, value in told.items()}
    return {**kept, **({"unit": text(finding.unit)} if finding.unit else {})} or None


def _bounded(value: Any, shown: str) -> Any:
    return _printable(value) if len(shown) <= LONGEST else text(shown)


def _printable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {text(str(key)): _printable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_printable(item) for item in value]
    return value if isinstance(value, (bool, int, float)) or value is None else text(str(value))


def _diff(finding: Finding) -> Iterable[str]:
    """Lines that begin with `-` (expected), `+` (actual) or a space (both)."""
    if finding.verdict in _FINE:
        return []
    bare = finding.actual is None and finding.expected is None
    unsaid = bare or finding.verdict is Verdict.UNKNOWN
    expected = [] if finding.expected is None else value_lines(finding, finding.expected, 0)
    actual = [] if unsaid else value_lines(finding, finding.actual, 1)
    changed = list(hunks([(expected, actual)], 1))
    return shortened(changed or [*(f"-{line}" for line in expected), *(f"+{a}" for a in actual)])


def shortened(marked: Sequence[str]) -> list[str]:
    """The lines of a diff, bounded; `@` is a gap."""
    if len(marked) > MOST_LINES:
        more = f" and {count(len(marked) - MOST_LINES, 'line')} more"
        marked = [*marked[:MOST_LINES], more]
    return [line[0] + text(line[1:]) if line[0] in "+- " else "@" for line in marked]


def _host(report: HostReport) -> dict[str, Any]:
    return {
        "name": name(report.host),
        "outcome": report.outcome.words,
        "why": text(report.told),
        "vetted": report.status is Status.VETTED,
        "groups": [text(group) for group in sorted(report.groups)],
        "baseline": text(report.baseline),
        "own": given(
            {
                "machine id": text(report.machine_id or ""),
                "boot id": text(report.boot_id or ""),
                "read": text(read_at(report)),
                "took": elapsed(report.seconds),
                "first try": text(report.first_try or ""),
            }
        ),
    }


def _about(report: HostReport) -> list[tuple[str, str]]:
    """What the host is, label and text: GPUs, driver, kernel, uptime, as far as it was read."""
    return facts.rows(report.facts) if report.facts else []


def _gpus(report: HostReport) -> list[list[str]]:
    """Every part that has an address or an id of its own: label, `0000:19:00.0`, `GPU-5f1c…`."""
    subjects = (finding.subject for finding in report.findings)
    found = {
        (each.label, each.bus_id or "", each.uuid or "")
        for each in subjects
        if each.uuid or each.bus_id
    }
    return sorted([text(part) for part in each] for each in found)


def _parts(groups: Sequence[_Group]) -> list[list[Any]]:
    """Of what is not as expected: place of the finding, part, details of that part alone."""
    return [
        [place, text(finding.subject.label), text(_details(finding))]
        for place, group in enumerate(groups)
        if group.findings[0].verdict in _TROUBLE
        for finding in group.findings
        if finding.subject.uuid or finding.subject.bus_id or finding.details or finding.last
    ]


def _details(finding: Finding) -> str:
    ids = (finding.subject.bus_id, finding.subject.uuid)
    details = (finding.details or {}).items()
    said = [f"{key} {value}" for key, value in details if value not in ids]
    return ", ".join([*said, *([f"last at {finding.last}"] if finding.last else [])])


def _line(line: Line, places: dict[str, int]) -> dict[str, Any]:
    return {
        "label": line.label,
        "check": line.check,
        "checks": list(line.checks),
        "severity": line.severity.value,
        "fails": line.fails,
        "what": line.what,
        "note": line.remark,
        "advice": list(line.advice),
        "where": nodeset(line.hosts),
        "hosts": [places[host] for host in line.hosts],
        "subjects": line.subjects,
        "new": line.new,
        "count": line.count,
    }
