"""JUnit XML for CI systems: one testsuite per node; a testcase for the node and one per step.

A node is a failure if it is not right afterwards, and an error if its state is unknown, or if
nothing was begun; only then is a step that was not begun called skipped. A run that is itself
unknown has a testsuite `(run)` with one error.
"""

# mypy: allow-untyped-calls

from collections.abc import Iterator

from junitparser import Error, Failure, Skipped, TestCase, TestSuite
from junitparser.junitparser import FinalResult

from nodevet.printable import plain
from nodevet.remedy.report.words import change, facts, moved, ran, verdicts
from nodevet.remedy.result import HostResult, Outcome, Result, StepResult
from nodevet.report.junit import page, suite_of
from nodevet.report.text import name

ERRORS = frozenset({Outcome.UNKNOWN, Outcome.NOT_ATTEMPTED})


def render(result: Result) -> str:
    suites = [_suite(host, result) for host in result.hosts]
    if result.unknown:
        whole = TestCase("run", classname="run")
        whole.result = [Error(plain(result.unknown), Outcome.UNKNOWN.value)]
        suites.insert(0, _suite_of_run(result, whole))
    return page(f"nodevet {plain(result.kind)}", suites, result.seconds)


def _suite_of_run(result: Result, whole: TestCase) -> tuple[TestSuite, float]:
    return suite_of("(run)", result.started, facts(result), [whole]), result.seconds


def _suite(host: HostResult, result: Result) -> tuple[TestSuite, float]:
    properties = (*facts(result), ("outcome", host.outcome.words))
    return suite_of(host.host, result.started, properties, _cases(host, result)), host.seconds


def _cases(host: HostResult, result: Result) -> Iterator[TestCase]:
    label = name(host.host)
    whole = TestCase("node", classname=label)
    whole.result = _results(result, host.outcome, host.why)
    yield whole
    for step in host.steps:
        case = TestCase(f"{plain(step.fix)} {change(step)}", classname=f"{label}.{plain(step.fix)}")
        untouched = step.outcome is Outcome.NOT_ATTEMPTED
        skipped: list[FinalResult] = [Skipped(plain(step.why), "not attempted")]
        case.result = skipped if untouched else _results(result, step.outcome, step.why)
        if done := "\n".join(_done(step, result)):
            case.system_out = done
        yield case


def _results(result: Result, outcome: Outcome, why: str) -> list[FinalResult]:
    if result.good(outcome):
        return []
    kind = Error if outcome in ERRORS else Failure
    return [kind(plain(why) or outcome.words, outcome.words)]


def _done(step: StepResult, result: Result) -> Iterator[str]:
    """What is yet to come, the commands, what the check said, then what became what."""
    if step.why and result.good(step.outcome):
        yield f"{step.outcome.words}: {plain(step.why)}"
    yield from (f"ran {ran(one)}" for one in step.ran)
    if step.verdicts:
        yield f"the check says {verdicts(step)}"
    yield from (f"{resource}: {before} -> {after}" for resource, before, after in moved(step))
