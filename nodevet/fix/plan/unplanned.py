"""What fails and is not in a plan, with the reason for each: the blocks below it. Pure."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping

from nodevet import __version__
from nodevet.base.printable import LONGEST, cells, plain
from nodevet.fix.plan.candidates import Left, Withheld
from nodevet.fix.plan.planner import Proposal
from nodevet.model import Finding, HostReport, Run, Status
from nodevet.sheet.model import AnyBlock, HostRow, HostRowBlock, TextBlock
from nodevet.sheet.text import count, nodeset
from nodevet.vet.findings.fold import Line, lines


def rest(proposal: Proposal) -> Iterator[AnyBlock]:
    """Every part under its heading; none if all that fails is planned."""
    parts = {
        "No fix available:": _left(proposal.left),
        "Fix available, not allowed by the baseline:": _not_allowed(
            each for each in proposal.withheld if not (each.risk or each.runs or each.suspected)
        ),
        "Fix available, above the allowed risk:": _above(proposal.withheld),
        "Fix available, failed before:": _failed(proposal.withheld),
        "Fix available, many hosts at once:": _suspected(proposal.withheld),
        "Not checked, so not planned:": _unvetted(proposal.unvetted),
    }
    for head, rows in parts.items():
        if rows:
            yield HostRowBlock(title=head, rows=tuple(rows))
    if proposal.unknown:
        told = count(proposal.unknown, "finding")
        yield TextBlock(text=f"{told} could not be judged; `nodevet check` names them")


def conclusion(proposal: Proposal) -> str:
    """One line, if there is no step."""
    if proposal.exit_code == 3:
        return "Nothing to do, but not everything could be judged or planned"
    if proposal.left or proposal.withheld:
        return "Nothing to do: what fails has no fix that is allowed"
    return "Nothing to do"


def ways(proposal: Proposal, baselines: Mapping[str, str]) -> Iterator[str]:
    """What to do about what is not planned. `baselines`: by the name of each its file, empty of a
    shipped one, which is extended instead."""
    allowed: dict[str, set[str]] = {}
    for each in proposal.withheld:
        if each.baseline:
            allowed.setdefault(each.baseline, set()).add(each.fix)
    for name, fixes in allowed.items():
        listed = ", ".join(map(plain, sorted(fixes)))
        file = baselines.get(name, "")
        where = plain(file) if file else f"a baseline of your own that has `extends: {plain(name)}`"
        once = " ".join(f"--fix {plain(fix)}" for fix in sorted(fixes))
        yield f"to plan {listed}: add to `fix` in {where}, or plan once with {once}"
    checks = sorted({plain(each.finding.check) for each in proposal.left})
    if checks and not proposal.plan.steps:
        yield f"what to do by hand: nodevet explain {checks[0]}"
    if proposal.unvetted:
        hosts = shlex.quote(nodeset(report.host for report in proposal.unvetted))
        short = cells(hosts) <= LONGEST
        yield f"plan again once they can be checked{f': --limit {hosts}' if short else ''}"


def _left(left: Iterable[Left]) -> list[HostRow]:
    findings: dict[str, list[Finding]] = {}
    for each in left:
        findings.setdefault(each.host, []).append(each.finding)
    reports = [
        HostReport(host=host, status=Status.VETTED, findings=tuple(some))
        for host, some in findings.items()
    ]
    return [
        HostRow((line.check, line.what), line.hosts, line.subjects, line.note)
        for line in _folded(reports)
    ]


def _unvetted(reports: Iterable[HostReport]) -> list[HostRow]:
    return [
        HostRow((line.label.lower(),), line.hosts, note=line.what)
        for line in _folded(reports)
        if not line.check
    ]


def _folded(reports: Iterable[HostReport]) -> tuple[Line, ...]:
    return lines(Run(id="", nodevet=__version__, started="", seconds=0, hosts=tuple(reports)))


def _not_allowed(withheld: Iterable[Withheld]) -> list[HostRow]:
    return _grouped(withheld, lambda each: f"--fix {plain(each.fix)}")


def _above(withheld: Iterable[Withheld]) -> list[HostRow]:
    def way(each: Withheld) -> str:
        risk = each.risk.value if each.risk else ""
        return f"its risk is {risk}: --max-risk {risk}"

    return _grouped((each for each in withheld if each.risk), way)


def _failed(withheld: Iterable[Withheld]) -> list[HostRow]:
    def way(each: Withheld) -> str:
        runs = ", ".join(map(plain, each.runs))
        return f"it failed in {runs}: look at why (nodevet report), then --again"

    return _grouped((each for each in withheld if each.runs), way)


def _suspected(withheld: Iterable[Withheld]) -> list[HostRow]:
    def way(each: Withheld) -> str:
        if (found := each.suspected) is None:
            return ""
        return (
            f"not planned: {found.hosts} of {found.judged} hosts began to fail "
            f"{plain(found.check)} in one night, on {found.on}: the rule, the controller or the "
            "site is suspected first; --force plans it all the same"
        )

    return _grouped((each for each in withheld if each.suspected), way)


def _grouped(withheld: Iterable[Withheld], way: Callable[[Withheld], str]) -> list[HostRow]:
    """Fix, findings, hosts, and how it can be planned all the same; equal ones once."""
    groups: dict[tuple[str, str], list[Withheld]] = {}
    for each in sorted(withheld, key=lambda each: (each.fix, way(each))):
        groups.setdefault((each.fix, way(each)), []).append(each)
    return [
        HostRow(
            (plain(fix), count(sum(each.findings for each in members), "finding")),
            tuple(dict.fromkeys(each.host for each in members)),
            note=told,
        )
        for (fix, told), members in groups.items()
    ]
