"""The run as Markdown, for a ticket or a pull request."""

from collections.abc import Iterator, Sequence

from nodevet.printable import brief, plain
from nodevet.remedy.report.words import (
    LONGEST,
    acted_on,
    change,
    facts,
    folded,
    moved,
    ran,
    summary,
    verdicts,
)
from nodevet.remedy.result import Result, StepResult
from nodevet.report.spans import cell, code
from nodevet.report.text import name


def render(result: Result) -> str:
    return "\n".join(_lines(result)) + "\n"


def _lines(result: Result) -> Iterator[str]:
    yield f"# nodevet {plain(result.kind)}"
    yield ""
    yield f"**{summary(result)}**"
    yield ""
    yield from (f"- {key}: {code(value)}" for key, value in facts(result))
    yield ""
    yield "| outcome | nodes | why |"
    yield "|---|---|---|"
    for outcome, hosts, why in folded(result):
        yield f"| {outcome.words} | {cell(hosts)} | {cell(why)} |"
    for host in result.hosts:
        if acted_on(host):
            yield ""
            yield f"## {code(name(host.host))}: {host.outcome.words}"
            yield ""
            yield from _steps(host.steps)


def _steps(steps: Sequence[StepResult]) -> Iterator[str]:
    for step in steps:
        why = f": {code(brief(step.why, LONGEST))}" if step.why else ""
        yield f"- {code(step.fix)} {code(change(step))} **{step.outcome.words}**{why}"
        yield from (f"  - ran {code(ran(one))}" for one in step.ran)
        if step.verdicts:
            yield f"  - the check says {code(verdicts(step))}"
        for resource, before, after in moved(step):
            yield f"  - {code(resource)}: {code(before)} → {code(after)}"
