"""What fails and is not in a plan, with the reason for each: the lines below it. Pure."""

from collections.abc import Callable, Iterable

from nodevet import __version__
from nodevet.model import Finding, HostReport, Run, Status
from nodevet.printable import plain
from nodevet.remedy.plan.candidates import Left, Withheld
from nodevet.remedy.plan.planner import Proposal
from nodevet.report.parts.fold import Line, lines
from nodevet.report.parts.text import columns, count, nodeset


def rest(proposal: Proposal) -> str:
    """Every part under its heading; empty if all that fails is planned."""
    parts = {
        "No fix available:": _left(proposal.left),
        "Fix available, not allowed by the baseline:": _not_allowed(
            each for each in proposal.withheld if not (each.risk or each.runs)
        ),
        "Fix available, above the allowed risk:": _above(proposal.withheld),
        "Fix available, failed before:": _failed(proposal.withheld),
        "Not checked, so not planned:": _unvetted(proposal.unvetted),
    }
    out = [
        "\n".join([head, *(f"  {line}" for line in found)])
        for head, found in ((head, list(part)) for head, part in parts.items())
        if found
    ]
    if proposal.unknown:
        out.append(
            f"{count(proposal.unknown, 'finding')} could not be judged; `nodevet check` names them"
        )
    return "\n\n".join(out) + "\n" if out else ""


def conclusion(proposal: Proposal) -> str:
    """One line, if there is no step."""
    if proposal.exit_code == 3:
        return "Nothing to do, but not everything could be judged or planned"
    if proposal.left or proposal.withheld:
        return "Nothing to do: what fails has no fix that is allowed"
    return "Nothing to do"


def _left(left: Iterable[Left]) -> list[str]:
    findings: dict[str, list[Finding]] = {}
    for each in left:
        findings.setdefault(each.host, []).append(each.finding)
    reports = [
        HostReport(host=host, status=Status.VETTED, findings=tuple(some))
        for host, some in findings.items()
    ]
    return columns([_row(line, line.check) for line in _folded(reports)])


def _unvetted(reports: Iterable[HostReport]) -> list[str]:
    return columns([_row(line, line.label.lower()) for line in _folded(reports) if not line.check])


def _folded(reports: Iterable[HostReport]) -> tuple[Line, ...]:
    return lines(Run(id="", nodevet=__version__, started="", seconds=0, hosts=tuple(reports)))


def _row(line: Line, head: str) -> list[str]:
    where = nodeset(line.hosts)
    subjects = f"{where} {line.subjects}" if line.named and line.subjects else where
    return [head, line.what, subjects, "" if line.named else line.subjects, line.note]


def _not_allowed(withheld: Iterable[Withheld]) -> list[str]:
    return _grouped(withheld, lambda each: f"--fix {plain(each.fix)}")


def _above(withheld: Iterable[Withheld]) -> list[str]:
    def way(each: Withheld) -> str:
        risk = each.risk.value if each.risk else ""
        return f"its risk is {risk}: --max-risk {risk}"

    return _grouped((each for each in withheld if each.risk), way)


def _failed(withheld: Iterable[Withheld]) -> list[str]:
    def way(each: Withheld) -> str:
        runs = ", ".join(map(plain, each.runs))
        return f"it failed in {runs}: look at why (nodevet report), then --again"

    return _grouped((each for each in withheld if each.runs), way)


def _grouped(withheld: Iterable[Withheld], way: Callable[[Withheld], str]) -> list[str]:
    """Fix, findings, hosts, and how it can be planned all the same; equal ones once."""
    groups: dict[tuple[str, str], list[Withheld]] = {}
    for each in sorted(withheld, key=lambda each: (each.fix, way(each))):
        groups.setdefault((each.fix, way(each)), []).append(each)
    return columns(
        [
            [
                plain(fix),
                count(sum(each.findings for each in members), "finding"),
                nodeset(each.host for each in members),
                told,
            ]
            for (fix, told), members in groups.items()
        ]
    )
