"""A run's report: every node, what was done there, before and after, and who approved. Pure.

Text from nodes goes through `plain`, and in HTML through Jinja's autoescape.
"""

from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import groupby

import jinja2
import msgspec

from nodevet.model import Finding, Verdict
from nodevet.remedy.compare import ended, same
from nodevet.remedy.result import HostResult, Outcome, Ran, Result, StepResult
from nodevet.remedy.site import said, state, words
from nodevet.report.spans import cell, code
from nodevet.report.text import brief, count, duration, name, nodeset, plain

LONGEST = 240  # columns of one reason
ALIKE = 3  # more changes of one kind than that are counted, not listed
FORMATS = ("text", "markdown", "json", "html")


def render(result: Result, format: str = "text") -> str:
    """The report in one of `FORMATS`."""
    if format == "json":
        return msgspec.json.format(msgspec.json.encode(result), indent=1).decode() + "\n"
    if format == "html":
        return _html(result)
    return "\n".join(_markdown(result) if format == "markdown" else _text(result)) + "\n"


def summary(result: Result) -> str:
    """`3 nodes: 2 done, 1 refused`."""
    tally = [
        f"{number:,} {outcome.value}"
        for outcome in reversed(Outcome)
        if (number := sum(host.outcome is outcome for host in result.hosts))
    ]
    return f"{count(len(result.hosts), 'node')}: {', '.join(tally) or 'nothing to do'}"


def line(host: HostResult) -> str:
    """One node that ended, as it is told while the run goes on."""
    return "  ".join(filter(None, (name(host.host), host.outcome.value, brief(host.why, LONGEST))))


def facts(result: Result) -> list[tuple[str, str]]:
    """What the run was: plan, author, who approved, when."""
    approved = [f"{plain(one.who)} ({plain(one.key)})" for one in result.approvals]
    return [
        ("plan", f"{plain(result.plan)}, sha256 {plain(result.digest)}"),
        ("author", plain(result.author)),
        ("approved by", ", ".join(approved) or "nobody: not needed"),
        ("started", f"{plain(result.started)}, took {duration(result.seconds)}"),
        *([("stopped", plain(result.stopped))] if result.stopped else []),
    ]


def folded(result: Result) -> list[tuple[Outcome, str, str]]:
    """(outcome, nodes, why), worst first; nodes with the same words on one line."""
    ordered = sorted(result.hosts, key=lambda host: (host.outcome.rank, host.why))
    return [
        (outcome, nodeset(host.host for host in members), brief(why, LONGEST))
        for (outcome, why), members in groupby(ordered, key=lambda host: (host.outcome, host.why))
    ]


def change(step: StepResult) -> str:
    """`500 W -> 700 W on GPU 0, GPU 1`."""
    as_finding = Finding(verdict=Verdict.WRONG, unit=step.unit)
    observed, wanted = as_finding.text(step.observed), as_finding.text(step.wanted)
    where = f" on {', '.join(step.subjects)}" if any(step.subjects) else ""
    return brief(f"{observed} -> {wanted}{where}", LONGEST)


def ran(one: Ran) -> str:
    """An action and how it ended."""
    if one.ok is None:
        return f"{plain(words(one.action))}: nobody heard how it ended"
    if one.ok:
        return plain(words(one.action))
    return brief(f"{words(one.action)}: {said(one.code, one.output)}", LONGEST)


def moved(step: StepResult) -> list[tuple[str, str, str]]:
    """(touch, before, after) of what is not as it was."""
    after = {seen.touch: seen for seen in step.after}
    return [
        (plain(then.touch.label), plain(state(then)), plain(state(after[then.touch])))
        for then in step.before
        if then.touch in after
        and not same(then, after[then.touch])
        and not ended(then, after[then.touch])
    ]


# --- text -----------------------------------------------------------------------------------


def _text(result: Result) -> Iterator[str]:
    width = max((len(outcome.value) for outcome, _, _ in folded(result)), default=0)
    for outcome, hosts, why in folded(result):
        yield f"{outcome.value.upper():{width}}  {hosts}{f'  {why}' if why else ''}"
    yield ""
    for host in result.hosts:
        if any(step.ran for step in host.steps):
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
        yield f"  {plain(step.fix)}  {change(step)}  {step.outcome.value}"
        if step.why:
            yield f"      {brief(step.why, LONGEST)}"
        for one in step.ran:
            yield f"      ran  {ran(one)}"
        yield from (f"      now  {row}" for row in _now(moved(step)))


def _now(changes: Sequence[tuple[str, str, str]]) -> Iterator[str]:
    """What became what; of many files of one kind that changed alike, the first and how many."""
    alike: dict[tuple[str, str, str, str], list[str]] = {}
    for touch, before, after in changes:
        kind, _, path = touch.partition(" ")
        alike.setdefault((kind, path.rpartition("/")[2], before, after), []).append(touch)
    for (_, _, before, after), touches in alike.items():
        shown = touches if len(touches) <= ALIKE else touches[:1]
        for touch in shown:
            more = len(touches) - len(shown)
            yield f"{touch}{f' and {more} more' if more else ''}: {before} -> {after}"


# --- markdown -------------------------------------------------------------------------------


def _markdown(result: Result) -> Iterator[str]:
    yield f"# nodevet {plain(result.kind)}"
    yield ""
    yield f"**{summary(result)}**"
    yield ""
    yield from (f"- {key}: {code(value)}" for key, value in facts(result))
    yield ""
    yield "| outcome | nodes | why |"
    yield "|---|---|---|"
    for outcome, hosts, why in folded(result):
        yield f"| {outcome.value} | {cell(hosts)} | {cell(why)} |"
    for host in result.hosts:
        if any(step.ran for step in host.steps):
            yield ""
            yield f"## {code(name(host.host))}: {host.outcome.value}"
            yield ""
            yield from _steps(host.steps)


def _steps(steps: Sequence[StepResult]) -> Iterator[str]:
    for step in steps:
        why = f": {code(brief(step.why, LONGEST))}" if step.why else ""
        yield f"- {code(step.fix)} {code(change(step))} **{step.outcome.value}**{why}"
        yield from (f"  - ran {code(ran(one))}" for one in step.ran)
        for touch, before, after in moved(step):
            yield f"  - {code(touch)}: {code(before)} → {code(after)}"


# --- html -----------------------------------------------------------------------------------


def _html(result: Result) -> str:
    template = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    ).from_string(files("nodevet.remedy").joinpath("report.jinja").read_text(encoding="utf-8"))
    return template.render(
        title=f"nodevet {plain(result.kind)} {plain(result.plan)}",
        summary=summary(result),
        facts=facts(result),
        folded=[(outcome.value, hosts, why) for outcome, hosts, why in folded(result)],
        hosts=[
            {
                "name": name(host.host),
                "outcome": host.outcome.value,
                "why": brief(host.why, LONGEST),
                "canary": host.canary,
                "rebooted": host.rebooted,
                "steps": [
                    {
                        "fix": plain(step.fix),
                        "change": change(step),
                        "outcome": step.outcome.value,
                        "why": brief(step.why, LONGEST),
                        "ran": [ran(one) for one in step.ran],
                        "moved": moved(step),
                    }
                    for step in host.steps
                ],
            }
            for host in result.hosts
        ],
    )
