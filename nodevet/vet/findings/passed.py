"""What passed and what does not apply, as lines: for whoever asks for every check. Pure."""

from nodevet.base.printable import brief, cells
from nodevet.model import Finding, Run, Verdict, show
from nodevet.vet.findings.fold import Line
from nodevet.vet.findings.words import LIMIT, SENTENCE, subjects_of, values

LABELS = {Verdict.OK: "OK", Verdict.NOT_APPLICABLE: "N/A"}


def passed(run: Run) -> tuple[Line, ...]:
    """Equal values of one check once, with their hosts; in the order of the findings."""
    groups: dict[Verdict, dict[tuple[str, str], list[tuple[str, Finding]]]] = {}
    for report in run.hosts:
        for finding in report.findings:
            if finding.verdict in LABELS:
                some = groups.setdefault(finding.verdict, {})
                some.setdefault((finding.check, _value(finding)), []).append((report.host, finding))
    return tuple(
        _line(verdict, *key, members)
        for verdict in LABELS
        for key, members in groups.get(verdict, {}).items()
    )


def _line(verdict: Verdict, check: str, value: str, members: list[tuple[str, Finding]]) -> Line:
    subjects, named = subjects_of(members)
    return Line(
        label=LABELS[verdict],
        check=brief(check, LIMIT),
        severity=members[0][1].severity,
        fails=False,
        what=value,
        hosts=tuple(dict.fromkeys(host for host, _ in members)),
        subjects=subjects,
        named=named,
        count=len(members),
    )


def _value(finding: Finding) -> str:
    """`700 W`; of a short range `550.120, expected >=550.90`; if there is no value the reason."""
    if finding.verdict is not Verdict.OK or finding.expected is finding.actual is None:
        return brief(finding.why, SENTENCE) or show(None)
    expected, actual = values(finding)
    both = f"{actual}, expected {expected}"
    return brief(both if actual != expected and cells(both) <= LIMIT else actual, LIMIT)
