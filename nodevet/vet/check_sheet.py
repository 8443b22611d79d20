"""A run of checks as a sheet: its totals, what differs, and in documents every host. Pure."""

import shlex
from collections.abc import Iterator

import msgspec

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief, plain
from nodevet.model import HostOutcome, Severity
from nodevet.model.run import Run
from nodevet.sheet.model import (
    AnyBlock,
    Cell,
    CodeBlock,
    DifferenceBlock,
    DifferenceRow,
    FactBlock,
    GroupBlock,
    Medium,
    Sheet,
    TableBlock,
    TextBlock,
)
from nodevet.sheet.text import count, name, nodeset
from nodevet.vet.check_matrix import matrix
from nodevet.vet.findings.ages import evidence_age
from nodevet.vet.findings.facts import judged_by, of_one_host
from nodevet.vet.findings.fold import Line, lines
from nodevet.vet.findings.needs import needs_of, to_do
from nodevet.vet.findings.passed import passed
from nodevet.vet.findings.shadow import shadowed
from nodevet.vet.findings.suspected import suspicions
from nodevet.vet.findings.totals import findings_in_words, narrowing, summary, totals
from nodevet.vet.findings.words import LIMIT, WHOLE
from nodevet.vet.formats.diff import groups
from nodevet.vet.news import (
    fixed_troubles,
    flapping_hosts,
    rejudged_hosts,
    resolved_troubles,
    words,
)

MEDIA = {"table": Medium.TERMINAL, "markdown": Medium.MARKDOWN, "html": Medium.PAGE}
"""The medium of each format of a sheet."""
MOST_HOSTS = 2000  # columns of the hosts of one group
TRIED_OUT = "Rules that are tried out: they fail no host."


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a run to show.

    `everything`: also findings that passed, with their values. `shadow`: also checks that are only
    tried out. `advice`: in full. `quiet`: only findings that count for the exit code.
    """

    everything: bool = False
    shadow: bool = False
    advice: bool = False
    quiet: bool = False


def check_sheet(run: Run, medium: Medium, view: RunView) -> Sheet:
    """The sheet with the blocks that `medium` shows, and no other: some take long to make."""
    if medium is Medium.TERMINAL:
        blocks = tuple(_table(run, view))
        return Sheet(title=headline(run), kind="check", media=Medium.DOCUMENT, blocks=blocks)
    made = _page(run) if medium is Medium.PAGE else _document(run, view)
    return Sheet(
        title=headline(run),
        kind="check",
        facts=tuple(_facts(run)),
        blocks=(*_suspicions(run), *made),
        more="groups of hosts",
    )


def _table(run: Run, view: RunView) -> Iterator[AnyBlock]:
    rows = lines(run, WHOLE if view.everything else LIMIT)
    hidden = 0
    if view.quiet:
        failing = tuple(row for row in rows if row.fails)
        rows, hidden = failing, len(rows) - len(failing)
    counted = rows
    if not view.quiet:
        rows += passed(run, ranges=True) if view.everything else ()
        rows += shadowed(run, everything=view.everything) if view.shadow else ()
    yield from _suspicions(run)
    if not view.quiet:
        yield from _head(run)
    yield DifferenceBlock(
        rows=tuple(_difference(row, advised=not view.quiet) for row in rows), whole=view.advice
    )
    yield from _to_do(counted)
    total = summary(run) + (f" · {count(hidden, 'row')} not shown" if hidden else "")
    yield TextBlock(text=total, tone="ok" if totals(run).all_ok else "strong")


def _to_do(rows: tuple[Line, ...]) -> Iterator[TextBlock]:
    if text := to_do(rows):
        yield TextBlock(text=text)


def _suspicions(run: Run) -> Iterator[TextBlock]:
    return (TextBlock(text=text, tone="alert") for text in suspicions(run))


def _head(run: Run) -> Iterator[AnyBlock]:
    """Facts of the one host; of several hosts, their baselines."""
    if rows := of_one_host(run):
        yield FactBlock(rows=tuple(rows))
    elif text := judged_by(run):
        yield TextBlock(text=text)


def _difference(line: Line, *, advised: bool = True) -> DifferenceRow:
    new = "NEW" if line.new == line.count else f"NEW: {line.new:,} of {line.count:,}"
    lesser = line.fails and line.severity is not Severity.CRITICAL
    return DifferenceRow(
        label=line.label,
        tone=_tone(line),
        name=line.check,
        names=line.checks,
        text=line.what,
        hosts=line.hosts,
        parts=line.subjects,
        named=line.named,
        new=new if line.new else "",
        level=line.severity.value if lesser else "",
        since=line.since,
        note=line.reason,
        advice=line.advice if advised else (),
        needs=needs_of(line.actions) if advised else "",
        command=f"nodevet explain {shlex.quote(line.checks[0])}" if line.checks else "",
    )


def _tone(line: Line) -> str:
    if line.label == "WAIVED" or not line.fails:
        return "waived" if line.label == "WAIVED" else "quiet"
    if line.label == "FAIL":
        return "fail" if line.severity is Severity.CRITICAL else line.severity.value
    return "unknown" if line.label == "UNKNOWN" else "unreached"


def headline(run: Run) -> str:
    """`39 of 128 hosts fail`, `All ok: 8 hosts`."""
    run_totals = totals(run)
    hosts = count(len(run.hosts), "host")
    if not run.hosts:
        return "No hosts: nothing was vetted"
    if run_totals.all_ok:
        return f"{'Ok as far as judged' if narrowing(run) else 'All ok'}: {hosts}"
    if len(run.hosts) == 1:
        return f"{brief(name(run.hosts[0].host), 80)}: {run.hosts[0].outcome.words}"
    if failed := run_totals.hosts[HostOutcome.FAIL]:
        return f"{failed:,} of {hosts} {'fails' if failed == 1 else 'fail'}"
    unsaid = (
        len(run.hosts) - run_totals.hosts[HostOutcome.OK] - run_totals.hosts[HostOutcome.WAIVED]
    )
    if unsaid:
        return f"{unsaid:,} of {hosts} could not be judged"
    return f"No failures: {run_totals.hosts[HostOutcome.WAIVED]:,} of {hosts} under a waiver"


def _facts(run: Run) -> Iterator[str]:
    yield plain(run.started).replace("T", " ")
    yield f"took {elapsed(run.seconds)}"
    yield from (f"run {plain(run.id)}", f"nodevet {plain(run.nodevet)}")
    yield f"fails on {run.fail_on.value}"
    more = (narrowing(run), evidence_age(run), "interrupted" if run.interrupted else "")
    yield from filter(None, more)
    yield findings_in_words(totals(run))
    for key, sha256 in run.baselines.items():
        yield f"baseline {brief(key)} {plain(sha256[:12])}"


def _document(run: Run, view: RunView) -> Iterator[AnyBlock]:
    """For an issue or a chat: the diffs of all hosts stand last."""
    yield TextBlock(text=summary(run), tone="strong")
    if counts := totals(run).outcomes:
        rows = tuple((Cell(word), Cell(f"{number:,}", right=True)) for word, number in counts)
        yield TableBlock(heads=("outcome", "hosts"), rows=rows)
    yield from _to_do(differing := lines(run))
    yield from _differences("Differences", differing)
    if view.shadow:
        yield from _differences("In shadow", shadowed(run))
    yield from _news_block(run)
    for group in groups(run):
        yield GroupBlock(
            title=brief(nodeset(group.hosts), MOST_HOSTS),
            hosts=group.hosts,
            blocks=(CodeBlock(text=group.text, language="diff"),),
        )


def _differences(
    title: str, rows: tuple[Line, ...], *, folded: bool = False, note: str = ""
) -> Iterator[DifferenceBlock]:
    if rows:
        differences = tuple(map(_difference, rows))
        yield DifferenceBlock(title=title, rows=differences, folded=folded, note=note)


def _page(run: Run) -> Iterator[AnyBlock]:
    yield from _to_do(differing := lines(run))
    yield from _differences("Differences", differing)
    yield matrix(run)
    yield from _differences("In shadow", shadowed(run), folded=True, note=TRIED_OUT)
    yield from _news_block(run)


def _news_block(run: Run) -> Iterator[GroupBlock]:
    news = run.news
    if not news or not news.since:
        return
    standing = news.standing
    hosts = {
        "new": [trouble.host for trouble in standing if trouble.new and trouble.place >= 0],
        "changed": [trouble.host for trouble in standing if trouble.changed],
        "fixed": [ended.host for ended in fixed_troubles(news)],
        "resolved": [ended.host for ended in resolved_troubles(news)],
        "flapping": list(flapping_hosts(news)),
        "no longer judged": [e.host for e in standing if e.new and e.place < 0],
        "judged again": [ended.host for ended in rejudged_hosts(news)],
        "appeared": list(news.appeared),
        "replaced": list(news.replaced),
        "vanished": list(news.vanished),
    }
    rows = [(word, names) for word, names in hosts.items() if names]
    yield GroupBlock(
        title=f"Since {plain(news.since).replace('T', ' ')}",
        blocks=(
            TextBlock(text=f"{words(run).capitalize()}."),
            TableBlock(heads=("what", "", "hosts"), rows=tuple(_change_row(*row) for row in rows)),
        ),
    )


def _change_row(word: str, hosts: list[str]) -> tuple[Cell, ...]:
    """Each kind of change, how often it occurs, and its hosts."""
    folded = brief(nodeset(dict.fromkeys(hosts)), MOST_HOSTS)
    return Cell(word), Cell(f"{len(hosts):,}", right=True), Cell(folded)
