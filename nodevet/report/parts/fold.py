"""Folds a run into the lines that people read: equal differences once, with their hosts. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from nodevet.changes import Marks, changes
from nodevet.model import Finding, HostOutcome, Run, Severity, Verdict
from nodevet.printable import brief
from nodevet.report.parts.ages import evidence_age
from nodevet.report.parts.text import after_label, count, duration
from nodevet.report.parts.words import ADVICE, LIMIT, SENTENCE, difference, subjects_of, values

ORDER = tuple(each.words.upper() for each in HostOutcome if each is not HostOutcome.OK)
"""The labels of the lines, worst first."""

_SHOWN = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WAIVED)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One difference and everything that shares it. Texts are printable; `hosts` are raw."""

    label: str  # one of ORDER
    check: str = ""  # empty if the line is about hosts, not about a check
    severity: Severity = Severity.CRITICAL
    fails: bool = True  # whether it counts for the exit code
    what: str = ""
    remark: str = ""  # reason, waiver, severity
    advice: str = ""
    hosts: tuple[str, ...] = ()
    subjects: str = ""  # `40 GPUs`, `GPU 4`, or empty for the nodes themselves
    named: bool = False  # whether `subjects` names them instead of counting
    new: int = 0  # of `count`
    count: int = 0  # findings, or hosts

    @property
    def note(self) -> str:
        """All that is said besides the difference."""
        return "; ".join(filter(None, (self.remark, self.advice and f"advice: {self.advice}")))


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """A run in numbers. The values of `hosts` add up to the hosts of the run."""

    hosts: Mapping[HostOutcome, int]
    findings: Mapping[Verdict, int]

    @property
    def judged(self) -> int:
        """Findings that say something about the node: neither unknown nor not applicable."""
        unsaid = self.findings.get(Verdict.UNKNOWN, 0) + self.findings.get(
            Verdict.NOT_APPLICABLE, 0
        )
        return sum(self.findings.values()) - unsaid

    @property
    def all_ok(self) -> bool:
        """Every host, and at least one."""
        return 0 < self.hosts[HostOutcome.OK] == sum(self.hosts.values())

    @property
    def told(self) -> list[tuple[str, int]]:
        """The outcomes that hosts had, in words, with how many had them."""
        return [(outcome.words, number) for outcome, number in self.hosts.items() if number]


def totals(run: Run) -> Totals:
    outcomes = Counter(report.outcome for report in run.hosts)
    verdicts = Counter(finding.verdict for report in run.hosts for finding in report.findings)
    return Totals(
        hosts={outcome: outcomes[outcome] for outcome in HostOutcome},
        findings={verdict: verdicts[verdict] for verdict in Verdict},
    )


def summary(run: Run, since: str = "") -> str:
    """The totals line: `128 hosts: 84 ok, 40 fail, 2 unreachable · 4.1 s`.

    `since` is what changed since an earlier run, in words.
    """
    found = totals(run)
    parts = [findings_in_words(found)]
    if not run.hosts:
        head = "No hosts: nothing was vetted"
        parts = []
    elif found.all_ok:
        head = f"All ok: {count(len(run.hosts), 'host')}"
    else:
        told = [f"{number:,} {word}" for word, number in found.told]
        head = f"{count(len(run.hosts), 'host')}: {', '.join(told)}"
        parts = []
    parts += [since, evidence_age(run), duration(run.seconds)]
    parts.append("the run was interrupted" if run.interrupted else "")
    return " · ".join(part for part in (head, *parts) if part)


def closing(run: Run, previous: Run | None) -> str:
    """The totals line, with what changed since `previous`."""
    return summary(run, changes(previous, run).words if previous else "")


def findings_in_words(found: Totals) -> str:
    """`1,920 findings judged, 3 unknown, 40 not applicable`."""
    not_applicable = found.findings.get(Verdict.NOT_APPLICABLE, 0)
    unknown = found.findings.get(Verdict.UNKNOWN, 0)
    words = f"{count(found.judged, 'finding')} judged"
    words += f", {unknown:,} unknown" if unknown else ""
    return words + (f", {not_applicable:,} not applicable" if not_applicable else "")


def lines(run: Run, marks: Marks | None = None) -> tuple[Line, ...]:
    """Every difference and every host that could not be judged, worst first."""
    marks = marks or Marks()
    folded = [*_about_hosts(run, marks), *_about_findings(run, marks)]
    return tuple(sorted(folded, key=_worst_first))


def over_checks(rows: Iterable[Line]) -> tuple[Line, ...]:
    """The lines, with those of several checks that cannot tell for one reason as one line:
    a GPU that is lost is one piece of news, not one for each check."""
    groups: dict[object, list[Line]] = {}
    for row in rows:
        shared = (row.what, row.note, row.hosts, row.subjects, row.fails)
        groups.setdefault(shared if row.label == "UNKNOWN" else row, []).append(row)
    return tuple(_joined(group) for group in groups.values())


def _joined(group: list[Line]) -> Line:
    first = group[0]
    if len(group) == 1:
        return first
    names = ", ".join(sorted(row.check for row in group))
    return msgspec.structs.replace(
        first,
        check=count(len(group), "check"),
        severity=max((row.severity for row in group), key=lambda severity: severity.rank),
        remark="; ".join(filter(None, (first.remark, names))),
        new=sum(row.new for row in group),
        count=sum(row.count for row in group),
    )


def _worst_first(line: Line) -> tuple[Any, ...]:
    return (
        ORDER.index(line.label),
        -line.severity.rank,
        -len(line.hosts),
        line.check,
        line.what,
        line.hosts,
    )


def _about_hosts(run: Run, marks: Marks) -> Iterator[Line]:
    groups: dict[tuple[str, str], list[str]] = {}
    for report in run.hosts:
        if why := report.unjudged:
            groups.setdefault((report.outcome.words.upper(), why), []).append(report.host)
    for (label, why), hosts in groups.items():
        yield Line(
            label=label,
            what=brief(after_label(label, why), SENTENCE),
            hosts=tuple(hosts),
            new=len(marks.hosts.intersection(hosts)),
            count=len(hosts),
        )


class _Key(msgspec.Struct, frozen=True, kw_only=True):
    """What findings must share to be one line."""

    verdict: Verdict
    check: str
    severity: Severity
    expected: str
    actual: str
    why: str
    advice: str
    waiver: str


def _about_findings(run: Run, marks: Marks) -> Iterator[Line]:
    groups: dict[_Key, list[tuple[str, int, Finding]]] = {}
    for report in run.hosts:
        for place, finding in enumerate(report.findings):
            if finding.verdict in _SHOWN:
                groups.setdefault(_key(finding), []).append((report.host, place, finding))
    for key, members in groups.items():
        fails = key.severity.rank >= run.fail_on.rank
        what, why = difference(members[0][2])
        subjects, named = subjects_of([(host, finding) for host, _, finding in members])
        yield Line(
            label=key.verdict.value.upper(),
            check=brief(key.check, LIMIT),
            severity=key.severity,
            fails=fails and key.verdict is not Verdict.WAIVED,
            what=what,
            remark=_remark(key, why, run.fail_on),
            advice=brief(key.advice, ADVICE),
            hosts=tuple(dict.fromkeys(host for host, _, _ in members)),
            subjects=subjects,
            named=named,
            new=sum((host, place) in marks.findings for host, place, _ in members),
            count=len(members),
        )


def _key(finding: Finding) -> _Key:
    expected, actual = values(finding)
    return _Key(
        verdict=finding.verdict,
        check=finding.check,
        severity=finding.severity,
        expected=expected,
        actual=actual,
        why=finding.why,
        advice=finding.advice,
        waiver=finding.waiver,
    )


def _remark(key: _Key, why: str, fail_on: Severity) -> str:
    below = key.severity.rank < fail_on.rank and key.verdict is not Verdict.WAIVED
    waiver = f"waiver {key.waiver}" if key.waiver.startswith("expired") else key.waiver
    notes = [
        f"{key.severity.value}: below fail-on {fail_on.value}" if below else "",
        brief(why, SENTENCE),
        brief(waiver, SENTENCE),
    ]
    return "; ".join(note for note in notes if note)
