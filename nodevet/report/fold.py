"""Folds a run into the lines that people read: equal differences once, with their hosts. Pure."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from nodevet.model import Finding, HostReport, Run, Severity, Status, Verdict, show
from nodevet.report.text import brief, count, cut_pair, duration, plain

LIMIT = 56  # columns of one value in a folded line
SENTENCE = 160  # columns of one reason, waiver or piece of advice

NOT_VETTED = {
    Status.UNREACHABLE: "unreachable",
    Status.TIMEOUT: "timed out",
    Status.PROBE_FAILED: "probe failed",
    Status.INTERRUPTED: "interrupted",
}
"""Each status that is not a visit, in the words of the totals."""

ORDER = (
    "WRONG",
    "UNKNOWN",
    "UNREACHABLE",
    "TIMEOUT",
    "PROBE FAILED",
    "INTERRUPTED",
    "WAIVED",
)
"""The labels of the lines, worst first."""

_PLURALS = {
    "gpu": "GPUs",
    "cpufreq": "cpufreq policies",
    "process": "processes",
    "module": "modules",
    "pci": "PCI devices",
}
_SHOWN = (Verdict.WRONG, Verdict.UNKNOWN, Verdict.WAIVED)


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """What is new since an earlier run: findings by host and place, and hosts as a whole."""

    findings: frozenset[tuple[str, int]] = frozenset()
    hosts: frozenset[str] = frozenset()


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One difference and everything that shares it. Texts are printable; `hosts` are raw."""

    label: str  # one of ORDER
    check: str = ""  # empty where the line is about hosts, not about a check
    severity: Severity = Severity.CRITICAL
    fails: bool = True  # whether it counts for the exit code
    what: str = ""
    note: str = ""
    hosts: tuple[str, ...] = ()
    subjects: str = ""  # `40 GPUs`, `GPU 4`, or empty for the nodes themselves
    named: bool = False  # whether `subjects` names them instead of counting
    new: int = 0  # of `count`
    count: int = 0  # findings, or hosts


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """A run in numbers. The values of `hosts` add up to the hosts of the run."""

    hosts: Mapping[str, int]  # in the words of the totals line
    findings: Mapping[Verdict, int]

    @property
    def judged(self) -> int:
        """Findings that say something about the node: neither unknown nor exempt."""
        unsaid = self.findings.get(Verdict.UNKNOWN, 0) + self.findings.get(Verdict.EXEMPT, 0)
        return sum(self.findings.values()) - unsaid

    @property
    def all_ok(self) -> bool:
        """Every host, and at least one."""
        return 0 < self.hosts["ok"] == sum(self.hosts.values())


def plight(report: HostReport) -> str:
    """Why nothing can be said of a host as a whole, or an empty string."""
    if report.status is not Status.VETTED:
        return report.why or "no reason was recorded"
    verdicts = {finding.verdict for finding in report.findings}
    if not verdicts:
        return "nothing was judged: no expectations"
    if verdicts == {Verdict.EXEMPT}:
        return "nothing was judged: all is exempt"
    return ""


def tally(report: HostReport) -> str:
    """The word under which the totals count a host."""
    return NOT_VETTED.get(report.status) or report.verdict.value


def totals(run: Run) -> Totals:
    tallies = Counter(tally(report) for report in run.hosts)
    words = ("ok", "wrong", "unknown", *NOT_VETTED.values(), "waived")
    verdicts = Counter(finding.verdict for report in run.hosts for finding in report.findings)
    return Totals(
        hosts={word: tallies[word] for word in words},
        findings={verdict: verdicts[verdict] for verdict in Verdict},
    )


def summary(run: Run, since: str = "") -> str:
    """The totals line: `128 hosts: 84 ok, 40 wrong, 2 unreachable · 4.1 s`.

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
        told = [f"{number:,} {word}" for word, number in found.hosts.items() if number]
        head = f"{count(len(run.hosts), 'host')}: {', '.join(told)}"
        parts = []
    parts += [since, duration(run.seconds)]
    parts.append("the run was interrupted" if run.interrupted else "")
    return " · ".join(part for part in (head, *parts) if part)


def findings_in_words(found: Totals) -> str:
    """`1,920 findings judged, 3 unknown, 40 exempt`."""
    exempt = found.findings.get(Verdict.EXEMPT, 0)
    unknown = found.findings.get(Verdict.UNKNOWN, 0)
    words = f"{count(found.judged, 'finding')} judged"
    words += f", {unknown:,} unknown" if unknown else ""
    return words + (f", {exempt:,} exempt" if exempt else "")


def lines(run: Run, marks: Marks | None = None) -> tuple[Line, ...]:
    """Every difference and every host that could not be judged, worst first."""
    marks = marks or Marks()
    folded = [*_about_hosts(run, marks), *_about_findings(run, marks)]
    return tuple(sorted(folded, key=_worst_first))


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
        if why := plight(report):
            vetted = report.status is Status.VETTED
            label = "UNKNOWN" if vetted else report.status.value.replace("_", " ").upper()
            groups.setdefault((label, why), []).append(report.host)
    for (label, why), hosts in groups.items():
        yield Line(
            label=label,
            what=brief(why, SENTENCE),
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
        subjects, named = _subjects([(host, finding) for host, _, finding in members])
        yield Line(
            label=key.verdict.value.upper(),
            check=brief(key.check, LIMIT),
            severity=key.severity,
            fails=fails and key.verdict is not Verdict.WAIVED,
            what=what,
            note=_note(key, why, run.fail_on),
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


def _note(key: _Key, why: str, fail_on: Severity) -> str:
    below = key.severity.rank < fail_on.rank and key.verdict is not Verdict.WAIVED
    waiver = f"waiver {key.waiver}" if key.waiver.startswith("expired") else key.waiver
    notes = [
        f"{key.severity.value}: below fail-on {fail_on.value}" if below else "",
        brief(why, SENTENCE),
        brief(waiver, SENTENCE),
        f"advice: {brief(key.advice, SENTENCE)}" if key.advice else "",
    ]
    return "; ".join(note for note in notes if note)


def values(finding: Finding) -> tuple[str, str]:
    """What was expected and what is there, as printable text; alike only when equal."""
    expected, actual = finding.text(finding.expected), finding.text(finding.actual)
    if expected == actual and finding.expected != finding.actual:
        return plain(_exact(finding.expected)), plain(_exact(finding.actual))
    return plain(expected), plain(actual)


def _exact(value: Any) -> str:
    return json.dumps(value, default=repr)


def difference(finding: Finding) -> tuple[str, str]:
    """What differs, in a few words, and the reason where those words do not hold it."""
    why = finding.why
    if finding.verdict is Verdict.UNKNOWN or finding.expected is finding.actual is None:
        return brief(why, SENTENCE) or "no reason was recorded", ""
    if lists := _lists(finding):
        return lists, why
    expected, actual = cut_pair(*values(_narrowed(finding)), LIMIT)
    return f"{actual}, wanted {expected}", why


def _narrowed(finding: Finding) -> Finding:
    """Of two long mappings only the keys that differ."""
    expected, actual = finding.expected, finding.actual
    if not (isinstance(expected, Mapping) and isinstance(actual, Mapping)):
        return finding
    if max(map(len, values(finding))) <= LIMIT:
        return finding
    keys = [key for key in {**expected, **actual} if expected.get(key) != actual.get(key)]
    return msgspec.structs.replace(
        finding,
        expected={key: expected.get(key) for key in keys},
        actual={key: actual.get(key) for key in keys},
    )


def _lists(finding: Finding) -> str:
    """Of two long lists what is missing and what is too much; empty where that says nothing."""
    expected, actual = finding.expected, finding.actual
    if not (isinstance(expected, (list, tuple)) and isinstance(actual, (list, tuple))):
        return ""
    if max(map(len, values(finding))) <= LIMIT:
        return ""
    missing = [item for item in expected if item not in actual]
    extra = [item for item in actual if item not in expected]
    told = {"missing": missing, "not wanted": extra}
    return "; ".join(f"{word} {brief(show(some), LIMIT)}" for word, some in told.items() if some)


def _subjects(members: Iterable[tuple[str, Finding]]) -> tuple[str, bool]:
    """`GPU 4`, or `GPU 1,4-7` on one host, or `40 GPUs` over several; and whether they are named.

    Empty for the nodes themselves.
    """
    subjects = {(host, finding.subject.kind, finding.subject.id) for host, finding in members}
    kinds = sorted({kind for _, kind, _ in subjects} - {"node"})
    hosts = {host for host, _, _ in subjects}
    parts = []
    named = True
    for kind in kinds:
        ids = sorted({(len(key), key) for _, other, key in subjects if other == kind})
        number = sum(other == kind for _, other, _ in subjects)
        noun = "GPU" if kind == "gpu" else brief(kind, LIMIT)
        if len(ids) == 1:
            parts.append(f"{noun} {brief(ids[0][1], LIMIT)}".strip())
        elif len(hosts) == 1 and all(key.isdecimal() and key.isascii() for _, key in ids):
            parts.append(f"{noun} {_ranges([int(key) for _, key in ids])}")
        else:
            named = False
            parts.append(count(number, noun, _PLURALS.get(kind, f"{noun} subjects")))
    return ", ".join(parts), named


def _ranges(numbers: list[int]) -> str:
    """`0-3,7` of sorted numbers."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
