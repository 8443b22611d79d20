"""The run as people read it in a terminal: how nodes ended, then what was done on each."""

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
from nodevet.remedy.result import HostResult, Result
from nodevet.report.text import name

ALIKE = 3  # more changes of one kind than that are counted, not listed


def render(result: Result) -> str:
    return "\n".join(_lines(result)) + "\n"


def _lines(result: Result) -> Iterator[str]:
    width = max((len(outcome.words) for outcome, _, _ in folded(result)), default=0)
    for outcome, hosts, why in folded(result):
        yield f"{outcome.words.upper():{width}}  {hosts}{f'  {why}' if why else ''}"
    yield ""
    for host in result.hosts:
        if acted_on(host):
            yield from _host(host)
            yield ""
    for key, value in facts(result):
        yield f"{key}: {value}"
    yield summary(result)


def _host(host: HostResult) -> Iterator[str]:
    marks = [word for word, on in (("canary", host.canary), ("rebooted", host.rebooted)) if on]
    marked = f" ({', '.join(marks)})" if marks else ""
    yield name(host.host) + marked
    for step in host.steps:
        yield f"  {plain(step.fix)}  {change(step)}  {step.outcome.words}"
        if step.why:
            yield f"      {brief(step.why, LONGEST)}"
        for one in step.ran:
            yield f"      ran  {ran(one)}"
        if step.verdicts:
            yield f"      check  {verdicts(step)}"
        yield from (f"      now  {row}" for row in _now(moved(step)))


def _now(changes: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    """What became what; of many files of one kind that changed alike, the first and how many."""
    alike: dict[tuple[str, str, str, str], list[str]] = {}
    for resource, before, after in changes:
        kind, _, path = resource.partition(" ")
        alike.setdefault((kind, path.rpartition("/")[2], before, after), []).append(resource)
    for (_, _, before, after), resources in alike.items():
        shown = resources if len(resources) <= ALIKE else resources[:1]
        for resource in shown:
            more = len(resources) - len(shown)
            yield f"{resource}{f' and {more} more' if more else ''}: {before} -> {after}"
