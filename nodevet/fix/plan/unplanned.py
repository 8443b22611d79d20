"""The blocks below a plan: failures that it leaves out, with reasons and suggestions. Pure."""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec.structs import replace

from nodevet import __version__
from nodevet.base.printable import LONGEST, cells, plain
from nodevet.fix.plan.candidates import UnfixedFinding, Withheld
from nodevet.fix.plan.planner import Proposal
from nodevet.model import Finding, HostReport, Status
from nodevet.model.run import Run
from nodevet.sheet.model import AnyBlock, HostRow, HostRowBlock, TextBlock
from nodevet.sheet.text import count, nodeset
from nodevet.vet.findings.fold import Line, lines


def unplanned_blocks(proposal: Proposal) -> Iterator[AnyBlock]:
    """The failures that are not in the plan, a block for each reason."""
    effects, left = _split_effects(proposal)
    parts = {
        "No fix available:": _unfixed_rows(left),
        "Follows from a step of the plan:": _unfixed_rows(effects),
        "Fix available, not allowed by the baseline:": _not_allowed(
            entry
            for entry in proposal.withheld
            if not (entry.risk or entry.runs or entry.suspected)
        ),
        "Fix available, above the allowed risk:": _above_risk(proposal.withheld),
        "Fix available, failed before:": _failed(proposal.withheld),
        "Fix available, many hosts at once:": _suspected(proposal.withheld),
        "Not checked, so not planned:": _unvetted(proposal.unvetted),
    }
    for head, rows in parts.items():
        if rows:
            yield HostRowBlock(title=head, rows=tuple(rows))
    if proposal.unknown:
        findings = count(proposal.unknown, "finding")
        yield TextBlock(text=f"{findings} could not be judged; `nodevet check` names them")


def conclusion(proposal: Proposal) -> str:
    """One line for a plan without steps."""
    if proposal.exit_code == 3:
        return "Nothing to do, but not everything could be judged or planned"
    if proposal.left or proposal.withheld:
        return "Nothing to do: no fix for the failures is allowed"
    return "Nothing to do"


def suggestions(proposal: Proposal, baselines: Mapping[str, str]) -> Iterator[str]:
    """What to do about failures that are not planned. `baselines`: name -> file; the file is empty
    for a shipped baseline, which people extend instead."""
    allowed: dict[str, set[str]] = {}
    for entry in proposal.withheld:
        if entry.baseline:
            allowed.setdefault(entry.baseline, set()).add(entry.fix)
    for name, fixes in allowed.items():
        listed = ", ".join(map(plain, sorted(fixes)))
        file = baselines.get(name, "")
        target = (
            plain(file) if file else f"a baseline of your own that has `extends: {plain(name)}`"
        )
        options = " ".join(f"--fix {plain(fix)}" for fix in sorted(fixes))
        yield f"to plan {listed}: add to `fix` in {target}, or plan once with {options}"
    checks = sorted({plain(entry.finding.check) for entry in proposal.left})
    if checks and not proposal.plan.steps:
        yield f"what to do by hand: nodevet explain {checks[0]}"
    if proposal.unvetted:
        hosts = shlex.quote(nodeset(report.host for report in proposal.unvetted))
        short = cells(hosts) <= LONGEST
        yield f"plan again once they can be checked{f': --limit {hosts}' if short else ''}"


def _split_effects(
    proposal: Proposal,
) -> tuple[list[UnfixedFinding], list[UnfixedFinding]]:
    """The failures without a fix that follow from a failure that a step of the plan repairs, which
    name that one, and the others."""
    planned = {(step.host, step.fix) for step in proposal.plan.steps}
    effects, left = [], []
    for entry in proposal.left:
        cause = str(entry.finding.cause or "")
        if (entry.host, cause.partition(" ")[0]) in planned:
            finding = replace(entry.finding, why=f"follows from {cause}", advice="")
            effects.append(replace(entry, finding=finding))
        else:
            left.append(entry)
    return effects, left


def _unfixed_rows(unfixed: Iterable[UnfixedFinding]) -> list[HostRow]:
    findings: dict[str, list[Finding]] = {}
    for entry in unfixed:
        findings.setdefault(entry.host, []).append(entry.finding)
    reports = [
        HostReport(host=host, status=Status.VETTED, findings=tuple(host_findings))
        for host, host_findings in findings.items()
    ]
    return [
        HostRow((line.check, line.what), line.hosts, line.subjects, line.note)
        for line in _fold_lines(reports)
    ]


def _unvetted(reports: Iterable[HostReport]) -> list[HostRow]:
    return [
        HostRow((line.label.lower(),), line.hosts, note=line.what)
        for line in _fold_lines(reports)
        if not line.check
    ]


def _fold_lines(reports: Iterable[HostReport]) -> tuple[Line, ...]:
    return lines(Run(id="", nodevet=__version__, started="", seconds=0, hosts=tuple(reports)))


def _not_allowed(withheld: Iterable[Withheld]) -> list[HostRow]:
    return _grouped(withheld, lambda entry: f"--fix {plain(entry.fix)}")


def _above_risk(withheld: Iterable[Withheld]) -> list[HostRow]:
    def way(entry: Withheld) -> str:
        risk = entry.risk.value if entry.risk else ""
        return f"its risk is {risk}: --max-risk {risk}"

    return _grouped((entry for entry in withheld if entry.risk), way)


def _failed(withheld: Iterable[Withheld]) -> list[HostRow]:
    def way(entry: Withheld) -> str:
        runs = ", ".join(map(plain, entry.runs))
        return f"it failed in {runs}: look at why (nodevet report), then --again"

    return _grouped((entry for entry in withheld if entry.runs), way)


def _suspected(withheld: Iterable[Withheld]) -> list[HostRow]:
    def way(entry: Withheld) -> str:
        if (suspicion := entry.suspected) is None:
            return ""
        return (
            f"not planned: {suspicion.hosts} of {suspicion.judged} hosts began to fail "
            f"{plain(suspicion.check)} in one night, on {suspicion.on}: suspect the rule, the "
            "controller or the site first; --force plans it anyway"
        )

    return _grouped((entry for entry in withheld if entry.suspected), way)


def _grouped(withheld: Iterable[Withheld], way: Callable[[Withheld], str]) -> list[HostRow]:
    """A row for each fix and note: findings, hosts, and how to plan it all the same."""
    groups: dict[tuple[str, str], list[Withheld]] = {}
    for entry in sorted(withheld, key=lambda entry: (entry.fix, way(entry))):
        groups.setdefault((entry.fix, way(entry)), []).append(entry)
    return [
        HostRow(
            (plain(fix), count(sum(entry.findings for entry in members), "finding")),
            tuple(dict.fromkeys(entry.host for entry in members)),
            note=note,
        )
        for (fix, note), members in groups.items()
    ]
