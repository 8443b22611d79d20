"""JUnit XML for CI systems: one testsuite per host, one testcase for it and one per step.

A host that did not end as requested is a failure; it is an error if its state is unknown or if it
was not attempted. A step that was not attempted is skipped. A run with an unknown outcome has a
testsuite `(run)` with one error.
"""

# mypy: allow-untyped-calls

from collections.abc import Iterator

from junitparser import Error, Failure, Skipped, TestCase, TestSuite
from junitparser.junitparser import FinalResult

from nodevet.base.printable import plain
from nodevet.fix import result_text
from nodevet.fixing.result import HostResult, Outcome, Result, StepResult
from nodevet.resource import Contents
from nodevet.sheet import junit
from nodevet.sheet.text import name

ENDING = ".junit.xml"
ERRORS = frozenset({Outcome.UNKNOWN, Outcome.NOT_ATTEMPTED})


def render(result: Result, contents: Contents) -> str:
    suites = [_fix_suite(host, result, contents) for host in result.hosts]
    if result.unknown:
        case = TestCase("run", classname="run")
        case.result = [Error(plain(result.unknown), Outcome.UNKNOWN.value)]
        suites.insert(0, _run_suite(result, case))
    return "".join(junit.page(f"nodevet {plain(result.kind)}", suites, result.seconds))


def _run_suite(result: Result, case: TestCase) -> tuple[TestSuite, float]:
    return junit.suite_of(
        "(run)", result.started, result_text.facts(result), [case]
    ), result.seconds


def _fix_suite(host: HostResult, result: Result, contents: Contents) -> tuple[TestSuite, float]:
    properties = (*result_text.facts(result), ("outcome", host.outcome.words))
    return junit.suite_of(
        host.host, result.started, properties, _fix_cases(host, result, contents)
    ), host.seconds


def _fix_cases(host: HostResult, result: Result, contents: Contents) -> Iterator[TestCase]:
    label = name(host.host)
    node_case = TestCase("node", classname=label)
    node_case.result = _fix_results(result, host.outcome, host.why)
    yield node_case
    for step in host.steps:
        case = TestCase(
            f"{plain(step.fix)} {result_text.change(step)}", classname=f"{label}.{plain(step.fix)}"
        )
        untouched = step.outcome is Outcome.NOT_ATTEMPTED
        skipped: list[FinalResult] = [Skipped(plain(step.why), "not attempted")]
        case.result = skipped if untouched else _fix_results(result, step.outcome, step.why)
        if output := "\n".join(_output_lines(step, result, contents)):
            case.system_out = output
        yield case


def _fix_results(result: Result, outcome: Outcome, why: str) -> list[FinalResult]:
    if result.good(outcome):
        return []
    kind = Error if outcome in ERRORS else Failure
    return [kind(plain(why) or outcome.words, outcome.words)]


def _output_lines(step: StepResult, result: Result, contents: Contents) -> Iterator[str]:
    """What is pending, the commands, the verdicts, then the changes."""
    if step.why and result.good(step.outcome):
        yield f"{step.outcome.words}: {plain(step.why)}"
    yield from (f"ran {result_text.action_text(action)}" for action in step.ran)
    if step.verdicts:
        yield f"the check says {result_text.verdicts(step)}"
    yield from (
        f"{resource}: {before} → {after}"
        for resource, before, after in result_text.changes_text(step)
    )
    for lines in result_text.diffs(step, contents).values():
        yield from lines
