"""JUnit XML for CI systems: one testsuite per host, one testcase per finding.

Wrong is a failure, whatever its severity; unknown, and a host that could not be
judged, is an error; exempt and waived are skipped.
"""

# mypy: allow-untyped-calls

from collections.abc import Iterable, Iterator, Sequence

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite
from junitparser.junitparser import FinalResult

from nodevet.model import Finding, HostReport, Run, Verdict
from nodevet.printable import plain
from nodevet.report.ages import read_at
from nodevet.report.text import name
from nodevet.report.words import difference


def render(run: Run) -> str:
    return page("nodevet", [_suite(report, run.started) for report in run.hosts], run.seconds)


def page(title: str, suites: Sequence[tuple[TestSuite, float]], seconds: float) -> str:
    """The document, of suites and how long each took."""
    xml = JUnitXml(title)
    for suite, _ in suites:
        xml.append(suite)
    xml.update_statistics()  # which sets every time, from the cases
    for suite, (_, taken) in zip(xml, suites, strict=True):
        suite.time = taken
    xml.time = seconds
    return str(xml.tostring().decode()) + "\n"


def suite_of(
    host: str, started: str, properties: Iterable[tuple[str, str]], cases: Iterable[TestCase]
) -> TestSuite:
    """One host's suite; properties without a value are left out."""
    suite = TestSuite(name(host))
    suite.timestamp = plain(started)
    suite.hostname = name(host)
    for key, value in properties:
        if value:
            suite.add_property(key, plain(value))
    suite.extend(cases)
    return suite


def _suite(report: HostReport, started: str) -> tuple[TestSuite, float]:
    properties = (
        ("baseline", report.baseline),
        ("boot_id", report.boot_id or ""),
        ("read", read_at(report)),
    )
    return suite_of(report.host, started, properties, _cases(report)), report.seconds


def _cases(report: HostReport) -> Iterator[TestCase]:
    host = name(report.host)
    if why := report.unjudged:
        case = TestCase("visit", classname=host)
        case.result = [Error(plain(why), report.status.value)]
        yield case
    for finding in report.findings:
        label = f"{finding.check} {finding.subject.label}".rstrip()
        case = TestCase(plain(label), classname=f"{host}.{plain(finding.check)}")
        result = _result(finding)
        case.result = [result] if result else []
        yield case


def _result(finding: Finding) -> FinalResult | None:
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
        "why": why,
        "waiver": finding.waiver,
        "advice": finding.advice,
        "wanted by": finding.origin,
        "severity": finding.severity.value,
    }
    result.text = "\n".join(f"{key}: {plain(value)}" for key, value in details.items() if value)
    return result
