"""Checks that passed or do not apply, as lines, for `--all`. Pure."""

from collections.abc import Iterator, Mapping

from nodevet.base.printable import brief, cells
from nodevet.model import Finding, Run, Verdict, show
from nodevet.vet.findings.counted import with_stand_ins
from nodevet.vet.findings.fold import ALIKE, Line
from nodevet.vet.findings.ranges import shape, spanned
from nodevet.vet.findings.words import LIMIT, WHOLE, subjects_of, values

_Members = list[tuple[str, Finding]]  # with their hosts
LABELS = {Verdict.OK: "OK", Verdict.NOT_APPLICABLE: "N/A"}


def passed(run: Run, *, ranges: bool = False) -> tuple[Line, ...]:
    """Equal values of one check once, with their hosts; in the order of the findings. `ranges`:
    merge many values of a check that differ only in their numbers."""
    groups: dict[Verdict, dict[tuple[str, str], _Members]] = {}
    for report in run.hosts:
        for finding in with_stand_ins(report).findings:
            if finding.verdict in LABELS:
                some = groups.setdefault(finding.verdict, {})
                some.setdefault((finding.check, _value(finding)), []).append((report.host, finding))
    return tuple(
        _line(verdict, *line)
        for verdict in LABELS
        for line in _folded(groups.get(verdict, {}), least=ALIKE if ranges else None)
    )


def _folded(
    groups: Mapping[tuple[str, str], _Members], least: int | None
) -> Iterator[tuple[str, str, _Members]]:
    """Check, value and members; more than `least` values of one shape as a range."""
    alike: dict[object, list[tuple[str, _Members]]] = {}
    for (check, value), members in groups.items():
        names = isinstance(members[0][1].actual, (list, tuple))  # Xids, not counts
        kind = check, value if names or least is None else shape(value)
        alike.setdefault(kind, []).append((value, members))
    for some in alike.values():
        check = some[0][1][0][1].check
        if least is None or len(some) <= least:
            yield from ((check, value, members) for value, members in some)
            continue
        values = spanned([value for value, _ in some])
        yield check, values, [member for _, members in some for member in members]


def _line(verdict: Verdict, check: str, value: str, members: _Members) -> Line:
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
        return brief(finding.why, WHOLE) or show(None)
    expected, actual = values(finding)
    both = f"{actual}, expected {expected}"
    return brief(both if actual != expected and cells(both) <= LIMIT else actual, WHOLE)
