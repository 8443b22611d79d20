"""A run for a GitHub comment, issue or job summary: totals, what differs or changed, host by host.

Text from a node stands in code spans and fenced blocks alone, where neither
markup nor HTML nor an @mention is live. GitHub takes 65,536 characters: what is beyond that is
left out, the last hosts first, and named.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from nodevet.base.printable import brief, plain
from nodevet.fix import result_text as fixes
from nodevet.model import Run, Severity
from nodevet.sheet.spans import cell, code, longest, table
from nodevet.sheet.text import count, name, nodeset
from nodevet.vet.findings.fold import Line, lines, summary, totals
from nodevet.vet.findings.shadow import shadowed
from nodevet.vet.findings.suspected import suspicions
from nodevet.vet.formats import diff
from nodevet.vet.news import again, fixed, flapping, resolved, words

if TYPE_CHECKING:
    from nodevet.fixing.result import Result, StepResult
    from nodevet.resource import Contents

ENDING = ".md"
MOST = 65_000  # characters of a report
MOST_ROWS = 40_000  # characters of the differences and the advice
MOST_HOSTS = 2_000  # columns of the hosts of one difference


def render_checks(run: Run, *, shadow: bool = False) -> str:
    """`shadow`: with what is tried out."""
    rows = lines(run)
    parts = [*_head(run), *_totals(run), *_differences(rows), *_advice(rows), *_since(run)]
    parts += _differences(shadowed(run), "In shadow") if shadow else ()
    return "\n".join([*parts, *_diffs(run, MOST - sum(len(part) + 1 for part in parts))])


def _head(run: Run) -> Iterator[str]:
    yield "# nodevet report"
    yield ""
    for text in suspicions(run):
        yield f"> **{cell(text)}**"
        yield ""
    yield f"**{summary(run)}**"
    yield ""
    yield f"Run {code(run.id)}, started {code(run.started)} by nodevet {code(run.nodevet)}."
    if run.baselines:
        named = (f"{code(name)} ({code(sha256[:12])})" for name, sha256 in run.baselines.items())
        yield f"Baselines: {', '.join(named)}."
    yield ""


def _totals(run: Run) -> Iterator[str]:
    found = totals(run)
    if found.told:
        yield from table(("outcome", "hosts"), ([w, f"{n:,}"] for w, n in found.told))


def _differences(rows: tuple[Line, ...], title: str = "Differences") -> Iterator[str]:
    if not rows:
        return
    yield f"## {title}"
    yield ""
    told = [
        [
            row.label,
            cell(row.check),
            cell(row.what),
            cell(_hosts(row.hosts)),
            cell(row.subjects),
            " ".join(part for part in (_new(row), _lesser(row), cell(row.remark)) if part),
        ]
        for row in rows
    ]
    kept = _fitting([sum(map(len, row)) for row in told], MOST_ROWS)
    heads = ("verdict", "check", "difference", "hosts", "of them", "note")
    yield from table(heads, told[:kept])
    if left := rows[kept:]:
        hosts = dict.fromkeys(host for row in left for host in row.hosts)
        yield f"Left out: {count(len(left), 'difference')} on {cell(_hosts(tuple(hosts)))}."
        yield ""


def _hosts(hosts: Sequence[str]) -> str:
    """Their nodeset; of one that is cut how many they are, too."""
    folded = nodeset(hosts)
    shown = brief(folded, MOST_HOSTS)
    return shown if shown == folded else f"{count(len(hosts), 'host')}: {shown}"


def _fitting(sizes: Iterable[int], room: int) -> int:
    """How many of these, from the first on, have room together."""
    return sum(total <= room for total in accumulate(sizes))


def _advice(rows: Sequence[Line]) -> Iterator[str]:
    """Once for each kind of fault."""
    told = [f"- {code(row.check)}: {code(text)}" for row in rows for text in row.advice]
    told = list(dict.fromkeys(told))
    kept = told[: _fitting(map(len, told), MOST_ROWS // 4)]
    if kept:
        yield from ("## What to do", "", *kept, "")


def _lesser(row: Line) -> str:
    return row.severity.value if row.fails and row.severity is not Severity.CRITICAL else ""


def _new(row: Line) -> str:
    if not row.new:
        return ""
    return "**NEW**" if row.new == row.count else f"**NEW: {row.new:,} of {row.count:,}**"


def _since(run: Run) -> Iterator[str]:
    news = run.news
    if not news or not news.since:
        return
    hosts = {
        "fixed": [each.host for each in fixed(news)],
        "resolved": [each.host for each in resolved(news)],
        "judged again": [each.host for each in again(news)],
        "no longer judged": [each.host for each in news.standing if each.new and each.place < 0],
        "flapping": flapping(news),
        "appeared": news.appeared,
        "replaced": news.replaced,
        "vanished": news.vanished,
    }
    yield f"## Since {code(news.since)}"
    yield ""
    yield f"{words(run).capitalize()}."
    yield ""
    rows = [[word, cell(_hosts(list(dict.fromkeys(some))))] for word, some in hosts.items() if some]
    if rows:
        yield from table(("what", "hosts"), rows)


def _diffs(run: Run, room: int) -> Iterator[str]:
    """The diffs that have room, in so many characters; the hosts of the others are named."""
    groups = diff.groups(run)
    if groups:
        yield "## Per host"
        yield ""
    sizes = [len(group.text) + 2 * len(nodeset(group.hosts)) + 40 for group in groups]
    kept = _fitting(sizes, room - 2 * MOST_HOSTS)
    for group in groups[:kept]:
        yield f"### {code(nodeset(group.hosts))}"
        yield ""
        yield from _fenced(group.text)
        yield ""
    if left := [host for group in groups[kept:] for host in group.hosts]:
        hosts = cell(brief(nodeset(left), MOST_HOSTS))
        yield f"Left out, for want of room: {count(len(left), 'host')}, {hosts}."
        yield "The formats `html` and `diff` have them all."
        yield ""


def _fenced(text: str) -> list[str]:
    """A block of a diff, which nothing in it can end."""
    fence = "`" * max(3, longest(text) + 1)
    return [f"{fence}diff", *text.split("\n"), fence]


def render_fixes(result: "Result", *, contents: "Contents" = lambda name: None) -> str:
    """`contents`: what files held before and after; one that is not there is a size and a hash."""
    return "\n".join(_of_fixes(result, contents)) + "\n"


def _of_fixes(result: "Result", contents: "Contents") -> Iterator[str]:
    yield f"# nodevet {plain(result.kind)}"
    yield ""
    yield f"**{fixes.summary(result)}**"
    yield ""
    yield from (f"- {key}: {code(value)}" for key, value in fixes.facts(result))
    yield ""
    yield "| outcome | hosts | why |"
    yield "|---|---|---|"
    for outcome, hosts, why in fixes.folded(result):
        yield f"| {outcome.words} | {cell(hosts)} | {cell(why)} |"
    for host in result.hosts:
        if fixes.acted_on(host):
            yield ""
            yield f"## {code(name(host.host))}: {host.outcome.words}"
            yield ""
            yield from _steps(host.steps, contents)


def _steps(steps: "Sequence[StepResult]", contents: "Contents") -> Iterator[str]:
    for step in steps:
        why = f": {code(brief(step.why, fixes.LONGEST))}" if step.why else ""
        yield f"- {code(step.fix)} {code(fixes.change(step))} **{step.outcome.words}**{why}"
        yield from (f"  - ran {code(fixes.ran(one))}" for one in step.ran)
        if step.verdicts:
            yield f"  - the check says {code(fixes.verdicts(step))}"
        for resource, before, after in fixes.moved(step):
            yield f"  - {code(resource)}: {code(before)} → {code(after)}"
        for diffed in fixes.diffs(step, contents).values():
            yield from (f"    {line}" for line in _fenced("\n".join(diffed)))
