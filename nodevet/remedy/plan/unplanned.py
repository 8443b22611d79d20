"""What is wrong and not in a plan, with the reason for each: the lines below it. Pure."""

from collections.abc import Iterable
from itertools import groupby

from nodevet import __version__
from nodevet.model import Finding, HostReport, Run, Status
from nodevet.printable import plain
from nodevet.remedy.plan.candidates import Left, Withheld
from nodevet.remedy.plan.planner import Proposal
from nodevet.remedy.plan.render import table
from nodevet.report.parts.fold import Line, lines
from nodevet.report.parts.text import count, nodeset


def rest(proposal: Proposal) -> str:
    """Every part under its heading; empty where all that is wrong is planned."""
    parts = {
        "no fix answers:": _left(proposal.left),
        "a fix is there and may not enter:": _withheld(proposal.withheld),
        "not vetted, so not planned:": _unvetted(proposal.unvetted),
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
    """One line where there is no step."""
    if proposal.exit_code == 3:
        return "Nothing is planned, and not all could be judged or planned"
    if proposal.left or proposal.withheld:
        return "Nothing to do: what is wrong has no fix that may enter"
    return "Nothing to do"


def _left(left: Iterable[Left]) -> list[str]:
    findings: dict[str, list[Finding]] = {}
    for each in left:
        findings.setdefault(each.host, []).append(each.finding)
    reports = [
        HostReport(host=host, status=Status.VETTED, findings=tuple(some))
        for host, some in findings.items()
    ]
    return table([_row(line, line.check) for line in _folded(reports)])


def _unvetted(reports: Iterable[HostReport]) -> list[str]:
    return table([_row(line, line.label.lower()) for line in _folded(reports) if not line.check])


def _folded(reports: Iterable[HostReport]) -> tuple[Line, ...]:
    return lines(Run(id="", nodevet=__version__, started="", seconds=0, hosts=tuple(reports)))


def _row(line: Line, head: str) -> list[str]:
    where = nodeset(line.hosts)
    subjects = f"{where} {line.subjects}" if line.named and line.subjects else where
    return [head, line.what, subjects, "" if line.named else line.subjects, line.note]


def _withheld(withheld: Iterable[Withheld]) -> list[str]:
    def key(each: Withheld) -> tuple[str, str, tuple[str, ...]]:
        return each.fix, each.risk.value if each.risk else "", each.runs

    rows = []
    for (fix, risk, runs), some in groupby(sorted(withheld, key=key), key=key):
        members = list(some)
        number = count(sum(each.findings for each in members), "finding")
        way = f"its risk is {risk}: --max-risk {risk}" if risk else f"--fix {plain(fix)}"
        if runs:
            told = ", ".join(map(plain, runs))
            way = f"it failed in {told}: look at why (nodevet report), then --again"
        rows.append([plain(fix), number, nodeset(each.host for each in members), way])
    return table(rows)
