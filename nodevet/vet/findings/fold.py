"""Folds a run into the lines that people read: equal differences once, with their hosts. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from nodevet.base.printable import brief
from nodevet.model import Finding, HostOutcome, HostReport, NeededAction, Severity, Verdict
from nodevet.model.changes import Marks
from nodevet.model.run import Run, StandingTrouble
from nodevet.sheet.text import after_label, count
from nodevet.vet.findings.ages import last_time
from nodevet.vet.findings.causes import causes_of
from nodevet.vet.findings.ranges import shape, spanned
from nodevet.vet.findings.words import (
    ADVICE,
    LIMIT,
    SENTENCE,
    difference,
    listed,
    subjects_of,
    values,
)
from nodevet.vet.news import marks_of, since_words

ORDER = tuple(outcome.words.upper() for outcome in HostOutcome if outcome is not HostOutcome.OK)
"""The labels of the lines, worst first."""

ALIKE = 3  # differences in the same words that are told apart; more of them are one, in ranges
_ONE_OF_MANY = re.compile(r"\d[\d,-]*|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
"""The id of one part of many that are alike: 4, 0000:19:00.0."""
_UNSAID = {Verdict.UNKNOWN, Verdict.NOT_APPLICABLE}
_SHOWN = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WAIVED)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One difference and everything that shares it. Texts are printable; `hosts` are raw."""

    label: str  # one of ORDER
    check: str = ""  # `12 checks` if several; empty if the line is about hosts, not about a check
    checks: tuple[str, ...] = ()  # every check that has a finding in this line, as it is named
    severity: Severity = Severity.CRITICAL
    fails: bool = True  # whether it counts for the exit code
    what: str = ""
    since: str = ""
    reason: str = ""  # and waiver, severity, what follows from it
    actions: Mapping[NeededAction, int] = {}  # what its failures need, with how many need it
    advice: tuple[str, ...] = ()  # mostly one; what to do may depend on the neighbours
    hosts: tuple[str, ...] = ()
    subjects: str = ""  # `40 GPUs`, `GPU 4`, or empty for the nodes themselves
    named: bool = False  # whether `subjects` names them instead of counting
    new: int = 0  # of `count`
    count: int = 0  # findings, or hosts

    @property
    def advised(self) -> str:
        """All advice as one text."""
        return " / ".join(self.advice)

    @property
    def remark(self) -> str:
        """Since when it stands, and why."""
        return "; ".join(filter(None, (self.since, self.reason)))

    @property
    def note(self) -> str:
        """The explanation besides the difference."""
        advice = f"advice: {self.advised}" if self.advice else ""
        return "; ".join(filter(None, (self.remark, advice)))


def lines(run: Run, limit: int = LIMIT) -> tuple[Line, ...]:
    """Every difference and every host that could not be judged, worst first. A value has at most
    `limit` columns.

    Alike differences of several hosts are one line, and so are the effects of one cause: see
    `nodevet.vet.findings.causes`.
    """
    marks = marks_of(run)
    folded = [*_about_hosts(run, marks), *over_checks(_about_findings(run, marks, limit))]
    return tuple(sorted(folded, key=_worst_first))


def over_checks(rows: Iterable[Line]) -> Iterator[Line]:
    """The lines. Checks that are unknown for the same reason are one line: a missing driver is one
    problem, not one for each check."""
    groups: dict[object, list[Line]] = {}
    for place, row in enumerate(rows):
        shared = (row.what, row.remark, row.hosts, row.subjects, row.fails)
        groups.setdefault(shared if row.label == "UNKNOWN" else place, []).append(row)
    yield from map(_joined, groups.values())


def _joined(group: list[Line]) -> Line:
    first = group[0]
    if len(group) == 1:
        return first
    names = sorted({name for row in group for name in row.checks})
    return msgspec.structs.replace(
        first,
        check=count(len(names), "check"),
        checks=tuple(names),
        severity=max((row.severity for row in group), key=lambda severity: severity.rank),
        reason="; ".join(filter(None, (first.reason, listed(names)))),
        advice=tuple(dict.fromkeys(text for row in group for text in row.advice)),
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
    for host in run.summaries:
        if why := host.why_unjudged:
            groups.setdefault((host.outcome.words.upper(), why), []).append(host.host)
    for (label, why), hosts in groups.items():
        since, again = _standing([marks.standing.get((host, -1)) for host in hosts], run)
        yield Line(
            label=label,
            what=brief(after_label(label, why), SENTENCE),
            since=since,
            reason=again,
            hosts=tuple(hosts),
            new=len(marks.hosts.intersection(hosts)),
            count=len(hosts),
        )


class _Key(msgspec.Struct, frozen=True, kw_only=True):
    """The key that findings share if they are one line."""

    verdict: Verdict
    check: str
    severity: Severity
    expected: str
    actual: str
    why: str
    waiver: str


class _Folded(msgspec.Struct, frozen=True, kw_only=True):
    """One finding of one host, with what follows from it there."""

    host: str
    finding: Finding
    new: bool
    counts: bool  # for the exit code, waived or not
    standing: StandingTrouble | None  # what is remembered of it
    effects: list[Finding]


class _Fold(msgspec.Struct, frozen=True, kw_only=True):
    """Findings that are one line, and its words."""

    key: _Key
    what: str
    why: str
    members: tuple[_Folded, ...]


def _about_findings(run: Run, marks: Marks, limit: int) -> Iterator[Line]:
    groups: dict[_Key, list[_Folded]] = {}
    for report in differing(run):
        causes = causes_of(report, run.fail_on, marks)
        members: dict[int, _Folded] = {}
        nothing_judged = report.summary.verdicts <= _UNSAID
        for place, finding in enumerate(report.findings):
            if finding.verdict in _SHOWN and place not in causes:
                new = (report.host, place) in marks.findings
                member = _Folded(
                    host=report.host,
                    finding=finding,
                    new=new,
                    counts=nothing_judged or finding.severity.rank >= run.fail_on.rank,
                    standing=marks.standing.get((report.host, place)),
                    effects=[],
                )
                members[place] = member
                groups.setdefault(_key(finding), []).append(member)
        for place, cause in causes.items():
            members[cause].effects.append(report.findings[place])
    lines = []
    for key, findings in groups.items():
        what, why = difference(findings[0].finding, limit)
        lines.append(_Fold(key=key, what=what, why=why, members=tuple(findings)))
    for group in _in_ranges(lines):
        yield _line(group, run)


def differing(run: Run) -> Iterator[HostReport]:
    """The hosts with a finding that is shown; no other is decoded."""
    for place, host in enumerate(run.summaries):
        if not host.verdicts.isdisjoint(_SHOWN):
            yield run.hosts[place]


def _key(finding: Finding) -> _Key:
    expected, actual = values(finding)
    return _Key(
        verdict=finding.verdict,
        check=finding.check,
        severity=finding.severity,
        expected=expected,
        actual=actual,
        why=finding.why,
        waiver=finding.waiver,
    )


def _in_ranges(groups: Iterable[_Fold]) -> Iterator[_Fold]:
    """Groups that differ in the numbers of what was measured, if they are many, as one."""
    alike: dict[object, list[_Fold]] = {}
    for group in groups:
        finding = group.members[0].finding
        part = "" if _ONE_OF_MANY.fullmatch(finding.subject.id) else finding.subject.id
        names = group.what if isinstance(finding.actual, (list, tuple)) else ""  # Xids, not counts
        key = msgspec.structs.replace(group.key, actual=names, why="")
        kind = key, finding.subject.kind, part
        alike.setdefault((kind, shape(group.what), shape(group.why)), []).append(group)
    for some in alike.values():
        if len(some) <= ALIKE:
            yield from some
            continue
        yield msgspec.structs.replace(
            some[0],
            what=spanned([group.what for group in some]),
            why=spanned([group.why for group in some]),
            members=tuple(member for group in some for member in group.members),
        )


def _line(group: _Fold, run: Run) -> Line:
    key, members = group.key, group.members
    findings = [member.finding for member in members]
    subjects, named = subjects_of([(member.host, member.finding) for member in members])
    effects = [finding for member in members for finding in member.effects]
    checks = dict.fromkeys((key.check, *(finding.check for finding in effects)))
    since, again = _standing([member.standing for member in members], run)
    return Line(
        label=key.verdict.value.upper(),
        check=brief(key.check, LIMIT),
        checks=tuple(brief(check, LIMIT) for check in checks),
        severity=key.severity,
        fails=_fails(group),
        what=group.what,
        since=since,
        reason=_reason(group, effects, run, again),
        actions=Counter(each.action for each in findings if each.action is not NeededAction.NONE),
        advice=tuple(brief(text, ADVICE) for text in dict.fromkeys(_advice(findings)) if text),
        hosts=tuple(dict.fromkeys(member.host for member in members)),
        subjects=subjects,
        named=named,
        new=sum(member.new for member in members),
        count=len(members),
    )


def _advice(findings: Sequence[Finding]) -> Iterator[str]:
    """The advice of each finding; of a single one with its own PCI bus id."""
    for finding in findings:
        yield finding.own_advice if len(findings) == 1 else finding.advice


def _fails(group: _Fold) -> bool:
    """Whether it counts for the exit code. On a host with nothing but unknown findings, each one
    counts."""
    waived = group.key.verdict is Verdict.WAIVED
    return not waived and any(member.counts for member in group.members)


def _reason(group: _Fold, effects: list[Finding], run: Run, again: str) -> str:
    key = group.key
    below = not _fails(group) and key.verdict is not Verdict.WAIVED
    waiver = f"waiver {key.waiver}" if key.waiver.startswith("expired") else key.waiver
    findings = [*(member.finding for member in group.members), *effects]
    notes = [
        f"{key.severity.value}: below fail-on {run.fail_on.value}" if below else "",
        brief(group.why, SENTENCE),
        again,
        last_time([finding.last for finding in findings if finding.last], run.started),
        with_it(effects),
        brief(waiver, SENTENCE),
    ]
    return "; ".join(note for note in notes if note)


def _standing(members: Iterable[StandingTrouble | None], run: Run) -> tuple[str, str]:
    """Since when it stands, `since Nov 3, 19 nights`, and whether it comes and goes."""
    known = [standing for standing in members if standing is not None]
    old = since_words([standing.since for standing in known if not standing.new], run.started)
    flaps = [standing.began for standing in known if standing.began]
    on = f" on {len(flaps):,} of {len(known):,}" if len(flaps) < len(known) else ""
    flapping = f"flapping{on}: began {max(flaps)} times in 10 visits" if flaps else ""
    return old, ", ".join(filter(None, (came_back(known), flapping)))


def came_back(known: Sequence[StandingTrouble]) -> str:
    """`came back after the fix by plan 5f1c00aa`; on how many of them."""
    back = [standing.after_plan for standing in known if standing.after_plan]
    if not back:
        return ""
    on = f" on {len(back):,} of {len(known):,}" if len(back) < len(known) else ""
    plans = listed(f"plan {brief(plan)}" for plan in dict.fromkeys(back))
    return f"came back{on} after the fix by {plans}"


def with_it(effects: Iterable[Finding]) -> str:
    """The effects of a finding: `with xid, 11 checks unknown`."""
    failed, unknown = (
        sorted({finding.check for finding in effects if finding.verdict is verdict})
        for verdict in (Verdict.FAIL, Verdict.UNKNOWN)
    )
    unsaid = f"{count(len(unknown), 'check')} unknown" if unknown else ""
    text = ", ".join(filter(None, (listed(failed), unsaid)))
    return f"with {text}" if text else ""
