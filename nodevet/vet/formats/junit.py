"""JUnit XML for CI systems: one testsuite per host, one testcase per finding, or per fix.

A finding that fails is a failure, whatever its severity; unknown, and a host that could not be
judged, is an error; not applicable and waived are skipped. So is what follows from a failure of the
same host, so that one fault is one failure; it says from which.

A run of fixes has a testcase for the host and one per step. A host is a failure if it is not right
afterwards, and an error if its state is unknown, or if nothing was begun; only then is a step that
was not begun called skipped. A run that is itself unknown has a testsuite `(run)` with one error.
"""

# mypy: allow-untyped-calls

from collections import Counter
from collections.abc import Iterable, Iterator

from junitparser import Error, Failure, JUnitXml, Skipped, TestCase, TestSuite
from junitparser.junitparser import FinalResult

from nodevet.base.printable import plain
from nodevet.fix import result_text as fixes
from nodevet.fixing.result import HostResult, Outcome, Result, StepResult
from nodevet.model import Finding, HostReport, Run, StandingTrouble, Verdict
from nodevet.resource import Contents
from nodevet.sheet.text import name
from nodevet.vet.findings.ages import read_at
from nodevet.vet.findings.causes import follows_from
from nodevet.vet.findings.fold import came_back
from nodevet.vet.findings.words import difference
from nodevet.vet.news import ByHost, by_host, since_words
from nodevet.vet.packed import PackedText

ENDING = ".junit.xml"
COUNTED = ("tests", "failures", "errors", "skipped")
ERRORS = frozenset({Outcome.UNKNOWN, Outcome.NOT_ATTEMPTED})


def render_checks(run: Run) -> str:
    return "".join(pieces_of_checks(run))


def pieces_of_checks(run: Run) -> Iterator[str]:
    """The same, suite by suite."""
    standing = by_host(run)
    return _page("nodevet", (_suite(report, run, standing) for report in run.hosts), run.seconds)


def _page(title: str, suites: Iterable[tuple[TestSuite, float]], seconds: float) -> Iterator[str]:
    """The document, of suites and how long each took."""
    counts: Counter[str] = Counter()
    body = PackedText()
    for suite, taken in suites:
        suite.update_statistics()  # which sets its time, from the cases
        suite.time = taken
        counts.update({kind: getattr(suite, kind) for kind in COUNTED})
        body.add(suite.tostring().decode())
    xml = JUnitXml(title)
    for kind in COUNTED:
        setattr(xml, kind, counts[kind])
    xml.time = seconds
    text = xml.tostring().decode()
    head = text.removesuffix(" />")
    yield f"{head}>" if counts else text
    yield from body
    yield "</testsuites>\n" if counts else "\n"


def _suite_of(
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


def _suite(report: HostReport, run: Run, known: ByHost) -> tuple[TestSuite, float]:
    properties = (
        ("run", run.id),
        ("baseline", report.baseline),
        ("boot_id", report.boot_id or ""),
        ("read", read_at(report)),
        ("first_try", report.first_try or ""),
    )
    return _suite_of(
        report.host, run.started, properties, _cases(report, run, known)
    ), report.seconds


def _cases(report: HostReport, run: Run, known: ByHost) -> Iterator[TestCase]:
    host = name(report.host)
    standing = known.get(report.host, {})
    if why := report.told:
        case = TestCase("visit", classname=host)
        error = Error(plain(why), report.status.value)
        if stands := _stands(standing.get(-1), run):
            error.text = f"seen: {stands}"
        case.result = [error]
        yield case
    causes = follows_from(report, run.fail_on)
    for place, finding in enumerate(report.findings):
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
    told = "new" if standing.new else since_words([standing.since], run.started)
    flapping = "flapping" if standing.began else ""
    return ", ".join(filter(None, (told, came_back([standing]), flapping)))


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
        "advice": finding.advice,
        "expected by": finding.origin,
        "severity": finding.severity.value,
        "last": finding.last or "",
        **(finding.details or {}),
    }
    told = (f"{plain(key)}: {plain(value)}" for key, value in details.items() if value)
    result.text = "\n".join(told)
    return result


def render_fixes(result: Result, *, contents: Contents = lambda name: None) -> str:
    """`contents`: what files held before and after; one that is not there is a size and a hash."""
    suites = [_fix_suite(host, result, contents) for host in result.hosts]
    if result.unknown:
        whole = TestCase("run", classname="run")
        whole.result = [Error(plain(result.unknown), Outcome.UNKNOWN.value)]
        suites.insert(0, _run_suite(result, whole))
    return "".join(_page(f"nodevet {plain(result.kind)}", suites, result.seconds))


def _run_suite(result: Result, whole: TestCase) -> tuple[TestSuite, float]:
    return _suite_of("(run)", result.started, fixes.facts(result), [whole]), result.seconds


def _fix_suite(host: HostResult, result: Result, contents: Contents) -> tuple[TestSuite, float]:
    properties = (*fixes.facts(result), ("outcome", host.outcome.words))
    return _suite_of(
        host.host, result.started, properties, _fix_cases(host, result, contents)
    ), host.seconds


def _fix_cases(host: HostResult, result: Result, contents: Contents) -> Iterator[TestCase]:
    label = name(host.host)
    whole = TestCase("node", classname=label)
    whole.result = _fix_results(result, host.outcome, host.why)
    yield whole
    for step in host.steps:
        case = TestCase(
            f"{plain(step.fix)} {fixes.change(step)}", classname=f"{label}.{plain(step.fix)}"
        )
        untouched = step.outcome is Outcome.NOT_ATTEMPTED
        skipped: list[FinalResult] = [Skipped(plain(step.why), "not attempted")]
        case.result = skipped if untouched else _fix_results(result, step.outcome, step.why)
        if done := "\n".join(_done(step, result, contents)):
            case.system_out = done
        yield case


def _fix_results(result: Result, outcome: Outcome, why: str) -> list[FinalResult]:
    if result.good(outcome):
        return []
    kind = Error if outcome in ERRORS else Failure
    return [kind(plain(why) or outcome.words, outcome.words)]


def _done(step: StepResult, result: Result, contents: Contents) -> Iterator[str]:
    """What is yet to come, the commands, what the check said, then what became what."""
    if step.why and result.good(step.outcome):
        yield f"{step.outcome.words}: {plain(step.why)}"
    yield from (f"ran {fixes.ran(one)}" for one in step.ran)
    if step.verdicts:
        yield f"the check says {fixes.verdicts(step)}"
    yield from (f"{resource}: {before} → {after}" for resource, before, after in fixes.moved(step))
    for lines in fixes.diffs(step, contents).values():
        yield from lines
