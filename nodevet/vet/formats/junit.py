"""JUnit XML for CI systems: one testsuite per host, one testcase per finding.

A finding that fails is a failure, whatever its severity; unknown, and a host that could not be
judged, is an error; not applicable and waived are skipped. So is what follows from a failure of the
same host, so that one fault is one failure; it says from which. If no host shows that the run was
interrupted, or if there is no host, a suite of its own says so.
"""

# mypy: allow-untyped-calls

from collections.abc import Iterator
from itertools import chain

from junitparser import Error, Failure, Skipped, TestCase, TestSuite
from junitparser.junitparser import FinalResult

from nodevet.base.printable import plain
from nodevet.model import Finding, HostReport, Status, Verdict
from nodevet.model.run import Run, StandingTrouble
from nodevet.sheet import junit
from nodevet.sheet.text import name
from nodevet.vet.findings.ages import read_at
from nodevet.vet.findings.causes import follows_from
from nodevet.vet.findings.counted import with_stand_ins
from nodevet.vet.findings.fold import came_back
from nodevet.vet.findings.words import difference
from nodevet.vet.news import ByHost, by_host, since_words


def pieces(run: Run) -> Iterator[str]:
    """The run, suite by suite."""
    standing = by_host(run)
    suites = (_suite(report, run, standing) for report in run.hosts)
    return junit.page("nodevet", chain(suites, _about_run(run)), run.seconds)


def _about_run(run: Run) -> Iterator[tuple[TestSuite, float]]:
    """A suite with an error if hosts are missing and no other suite says so."""
    is_told = any(host.status is Status.INTERRUPTED for host in run.summaries)
    if not is_told and (run.interrupted or not run.hosts):
        case = TestCase("run", classname="nodevet")
        why = "the run was interrupted" if run.interrupted else "no hosts"
        case.result = [Error(f"{why}: not everything was vetted", Status.INTERRUPTED.value)]
        yield junit.suite_of("nodevet", run.started, (("run", run.id),), [case]), 0.0


def _suite(report: HostReport, run: Run, known: ByHost) -> tuple[TestSuite, float]:
    properties = (
        ("run", run.id),
        ("baseline", report.baseline),
        ("boot_id", report.boot_id or ""),
        ("read", read_at(report)),
        ("first_try", report.first_try or ""),
        ("passed", "saved without details" if report.counted else ""),
    )
    return junit.suite_of(
        report.host, run.started, properties, _cases(report, run, known)
    ), report.seconds


def _cases(report: HostReport, run: Run, known: ByHost) -> Iterator[TestCase]:
    host = name(report.host)
    standing = known.get(report.host, {})
    if why := report.why_unjudged:
        case = TestCase("visit", classname=host)
        error = Error(plain(why), report.status.value)
        if stands := _stands(standing.get(-1), run):
            error.text = f"seen: {stands}"
        case.result = [error]
        yield case
    causes = follows_from(report, run.fail_on)
    for place, finding in enumerate(with_stand_ins(report).findings):
        label = f"{finding.check} {finding.subject.label}".rstrip()
        case = TestCase(plain(label), classname=f"{host}.{plain(finding.check)}")
        result = _follows(finding, causes[place]) if place in causes else None
        result = result or _result(finding, _stands(standing.get(place), run))
        case.result = [result] if result else []
        yield case


def _follows(finding: Finding, cause: str) -> FinalResult:
    what, why = difference(finding)
    result = Skipped(f"follows from {plain(cause)}: {finding.verdict.value}: {what}", "follows")
    result.text = plain(why)
    return result


def _stands(standing: StandingTrouble | None, run: Run) -> str:
    """`new`, `since Nov 3, 19 nights`, `since Nov 3, 19 nights, flapping`."""
    if standing is None or not run.news or not run.news.since:
        return ""
    text = "new" if standing.new else since_words([standing.since], run.started)
    flapping = "flapping" if standing.began else ""
    return ", ".join(filter(None, (text, came_back([standing]), flapping)))


def _result(finding: Finding, stands: str) -> FinalResult | None:
    if finding.verdict is Verdict.OK:
        return None
    if finding.verdict is Verdict.NOT_APPLICABLE:
        return Skipped(plain(finding.why), "not_applicable")
    what, why = difference(finding)
    if finding.verdict is Verdict.WAIVED:
        return Skipped(f"{what}; {plain(finding.waiver)}", "waived")
    unknown = finding.verdict is Verdict.UNKNOWN
    result = Error(what, "unknown") if unknown else Failure(what, finding.severity.value)
    details = {
        "seen": stands,
        "why": why,
        "waiver": finding.waiver,
        "action": finding.action.value if finding.action.words else "",
        "advice": finding.own_advice,
        "expected by": finding.origin,
        "severity": finding.severity.value,
        "last": finding.last or "",
        **(finding.details or {}),
    }
    lines = (f"{plain(key)}: {plain(value)}" for key, value in details.items() if value)
    result.text = "\n".join(lines)
    return result
