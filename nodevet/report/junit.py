"""JUnit XML for CI systems: one testsuite per host, one testcase per finding.

Wrong is a failure, whatever its severity; unknown, and a host that could not be
judged, is an error; exempt and waived are skipped.
"""

# mypy: allow-untyped-calls

from collections.abc import Iterator

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite
from junitparser.junitparser import FinalResult

from nodevet.model import Finding, HostReport, Run, Verdict
from nodevet.report.fold import plight
from nodevet.report.text import name, plain
from nodevet.report.words import difference


def render(run: Run) -> str:
    xml = JUnitXml("nodevet")
    for report in run.hosts:
        xml.append(_suite(report, run.started))
    xml.update_statistics()
    for suite, report in zip(xml, run.hosts, strict=True):
        suite.time = report.seconds
    xml.time = run.seconds
    return str(xml.tostring().decode()) + "\n"


def _suite(report: HostReport, started: str) -> TestSuite:
    suite = TestSuite(name(report.host))
    suite.timestamp = plain(started)
    suite.hostname = name(report.host)
    for key, value in (("baseline", report.baseline), ("boot_id", report.boot_id)):
        if value:
            suite.add_property(key, plain(value))
    suite.extend(_cases(report))
    return suite


def _cases(report: HostReport) -> Iterator[TestCase]:
    host = name(report.host)
    if why := plight(report):
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
    if finding.verdict is Verdict.EXEMPT:
        return Skipped(plain(finding.why), "exempt")
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
