"""A run of fixes as a sheet: outcomes, what was done with hosts folded, what is next. Pure.

Hosts with the same steps and outcomes are one group: what all of them have in common stands there
once, what only some have names these.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief, plain
from nodevet.fix import result_text
from nodevet.fix.next_steps import next_steps
from nodevet.fix.result_matrix import matrix
from nodevet.fixing.result import HostResult, Outcome, Result, StepResult
from nodevet.resource import Contents, State
from nodevet.sheet.model import (
    AnyBlock,
    Cell,
    CodeBlock,
    FactBlock,
    GroupBlock,
    ListBlock,
    ListItem,
    Medium,
    Sheet,
    TableBlock,
    TextBlock,
)
from nodevet.sheet.text import GAP, count, name, nodeset

ALIKE = 3  # more changes of one kind than that are counted, not listed
VARIANTS = 6  # rows of one step that differ from host to host; of more, half are shown
DIFF = 16  # lines of one file's diff in a terminal
EVERYBODY = 0o004  # may read a file of this mode
ID = re.compile(r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
CLOSED = "Not everybody may read this file: `nodevet report {} --format diff` shows its content."
TONES = {
    Outcome.ROLLBACK_FAILED: "fail",
    Outcome.UNKNOWN: "unknown",
    Outcome.FAILED: "warning",
    Outcome.PARTIAL: "warning",
    Outcome.REFUSED: "warning",
    Outcome.NOT_ATTEMPTED: "warning",
    Outcome.UNCHANGED: "quiet",
}


class EndedHosts(NamedTuple):
    """Hosts that ended alike."""

    outcome: str
    hosts: str  # a nodeset
    why: str
    tone: str


class Diff(NamedTuple):
    """How the content of one file changed."""

    file: str
    lines: tuple[str, ...]
    whole: bool  # it was made or removed; its plan has shown all of it
    closed: bool  # not everybody on its node may read it


def result_sheet(
    result: Result,
    contents: Contents,
    folder: str,
    inventories: Sequence[str],
    *,
    page: bool = False,
) -> Sheet:
    """Outcomes worst first, a group for hosts with the same steps, facts, what to do next.

    `contents`: what files held, by SHA-256. `folder` of the run, and `inventories` of its hosts, as
    words of a command line. `page`: with what only a page shows.
    """

    def shown(host: HostResult, step: StepResult) -> GroupBlock:
        return _step([(host, step)], contents, folder)

    return Sheet(
        title=_headline(result),
        kind=plain(result.kind),
        facts=(f"{plain(result.kind)} of plan {plain(result.plan)}", result_text.summary(result)),
        media=Medium.DOCUMENT,
        blocks=(
            *ended_tables(ended_hosts(result)),
            *([matrix(result, shown, _tone)] if page else []),
            *(_hosts(hosts, contents, folder) for hosts in _alike(result)),
            *_facts(result),
            *_next(result, folder, inventories),
            *_undo(result, folder),
        ),
        more="more groups of hosts",
    )


def _headline(result: Result) -> str:
    """`8 hosts changed`, `Done: 7 changed, 1 unchanged`, `1 of 8 hosts: refused`."""
    hosts = count(len(result.hosts), "host")
    if not result.hosts:
        return "No hosts: nothing to do"
    if result.unknown:
        return "How this run ended is not known"
    bad = [host.outcome for host in result.hosts if not result.good(host.outcome)]
    if bad:
        worst = min(bad, key=lambda outcome: outcome.rank)
        return f"{bad.count(worst):,} of {hosts}: {worst.words}"
    words = [f"{number:,} {outcome.words}" for outcome, number in result_text.tally(result).items()]
    words = [word for word in words if not word.startswith("0 ")]
    same = len(words) == 1
    return f"{hosts} {result.hosts[0].outcome.words}" if same else f"Done: {', '.join(words)}"


def ended_hosts(result: Result) -> list[EndedHosts]:
    """How hosts ended, worst first, those with the same words in one row."""
    return [
        EndedHosts(outcome.words, hosts, why, _tone(outcome))
        for outcome, hosts, why in result_text.folded(result)
    ]


def ended_tables(rows: Sequence[EndedHosts]) -> Iterator[TableBlock]:
    """In a terminal hosts and reasons share a column, which may be long."""
    yield TableBlock(
        media=Medium.TERMINAL,
        rows=tuple(
            (
                Cell(row.outcome.upper(), row.tone),
                Cell(GAP.join(filter(None, (row.hosts, row.why)))),
            )
            for row in rows
        ),
    )
    yield TableBlock(
        media=Medium.DOCUMENT,
        heads=("outcome", "hosts", "why"),
        rows=tuple((Cell(row.outcome, row.tone), Cell(row.hosts), Cell(row.why)) for row in rows),
    )


def _tone(outcome: Outcome) -> str:
    return TONES.get(outcome, "ok")


def _facts(result: Result) -> Iterator[AnyBlock]:
    """The totals stand last in a terminal, where they are still in view."""
    rows = tuple(result_text.facts(result))
    yield FactBlock(title="This run", rows=rows, media=Medium.DOCUMENT)
    yield FactBlock(rows=rows, media=Medium.TERMINAL)
    yield TextBlock(text=result_text.summary(result), tone="strong", media=Medium.TERMINAL)


def _next(result: Result, folder: str, inventories: Sequence[str]) -> Iterator[ListBlock]:
    """What to do next, an item for each group of hosts."""
    if steps := next_steps(result, folder, inventories):
        lines = tuple(ListItem(step.text) for step in steps)
        yield ListBlock(label="next", items=lines, media=Medium.TERMINAL)
        items = tuple(
            ListItem(f"{nodeset(step.hosts)}: {step.why}", command=step.command) for step in steps
        )
        yield ListBlock(title="Next", items=items, media=Medium.DOCUMENT)


def _undo(result: Result, folder: str) -> Iterator[TextBlock]:
    if result.kind == "apply" and any(map(result_text.acted_on, result.hosts)):
        undo = f"`nodevet rollback {folder}`"
        yield TextBlock(title="Undo", text=undo, media=Medium.PAGE)


# --- what was done --------------------------------------------------------------------------------


def _alike(result: Result) -> list[list[HostResult]]:
    """Hosts on which something was done, those with the same steps and outcomes together, in the
    order of the run."""
    found: dict[tuple[tuple[str, Outcome], ...], list[HostResult]] = {}
    for host in result.hosts:
        if result_text.acted_on(host):
            key = tuple((step.fix, step.outcome) for step in host.steps)
            found.setdefault(key, []).append(host)
    return [*found.values()]


def _hosts(hosts: Sequence[HostResult], contents: Contents, folder: str) -> GroupBlock:
    steps = zip(*(host.steps for host in hosts), strict=True)
    seconds = [host.seconds for host in hosts]
    ends = dict.fromkeys((elapsed(min(seconds)), elapsed(max(seconds))))
    return GroupBlock(
        title=_head(hosts),
        blocks=(
            TextBlock(text=f"took {' to '.join(ends)}", tone="quiet", media=Medium.PAGE),
            *(_step([*zip(hosts, alike, strict=True)], contents, folder) for alike in steps),
        ),
    )


def _head(hosts: Sequence[HostResult]) -> str:
    """`gpu[1-9]`, with the canary and those that were rebooted."""
    whole = nodeset(host.host for host in hosts) if len(hosts) > 1 else name(hosts[0].host)
    marks = []
    for word, some in (
        ("canary", [host.host for host in hosts if host.canary]),
        ("rebooted", [host.host for host in hosts if host.rebooted]),
    ):
        if some:
            marks.append(word if len(some) == len(hosts) else f"{word}: {nodeset(some)}")
    return f"{whole} ({', '.join(marks)})" if marks else whole


def _step(
    steps: Sequence[tuple[HostResult, StepResult]], contents: Contents, folder: str
) -> GroupBlock:
    """One step of all hosts of a group."""
    first = steps[0][1]
    changes = {result_text.change(step) for _, step in steps}
    one = changes if len(changes) == 1 else ()
    rows: dict[tuple[str, str], list[str]] = {}
    diffs: dict[Diff, list[str]] = {}
    for host, step in steps:
        own = [] if one else [("change", result_text.change(step))]
        moved = list(_moved(step, contents))
        found = [*own, *_rows(host.host, step), *(("now", text) for text, _ in moved)]
        for row in dict.fromkeys(found):
            rows.setdefault(row, []).append(host.host)
        for diff in dict.fromkeys(diff for _, diff in moved if diff):
            diffs.setdefault(diff, []).append(host.host)
    return GroupBlock(
        title=GAP.join((plain(first.fix), *one)),
        tag=Cell(first.outcome.words, _tone(first.outcome)),
        blocks=(
            FactBlock(rows=(("risk", first.risk.value),), media=Medium.PAGE),
            FactBlock(rows=tuple(_told(rows, len(steps), folder))),
            *_compared(diffs, len(steps), folder),
        ),
    )


def _told(
    rows: dict[tuple[str, str], list[str]], total: int, folder: str
) -> Iterator[tuple[str, str]]:
    """Rows of one label together; those of some hosts name them."""
    for label in dict.fromkeys(label for label, _ in rows):
        own = {text: hosts for (key, text), hosts in rows.items() if key == label}
        others = [text for text, hosts in own.items() if len(hosts) < total]
        shown = others if len(others) <= VARIANTS else others[: VARIANTS // 2]
        for text, hosts in own.items():
            if len(hosts) == total:
                yield label, text
            elif text in shown:
                yield label, f"{text}{GAP}on {nodeset(hosts)}"
        if more := len(others) - len(shown):
            yield (
                "",
                f"and {more:,} more that differ by host: nodevet report {folder} --format diff",
            )


def _compared(diffs: dict[Diff, list[str]], total: int, folder: str) -> Iterator[AnyBlock]:
    """The content of files line by line, of some variants."""
    for diff, hosts in [*diffs.items()][:VARIANTS]:
        where = "" if len(hosts) == total else f" on {nodeset(hosts)}"
        yield from _diff(diff, f"{diff.file}{where}", folder)


def _diff(diff: Diff, title: str, folder: str) -> Iterator[AnyBlock]:
    """A page is passed on more freely than a run's folder: it has only the content of a file that
    everybody on its node may read."""
    media = Medium.MARKDOWN if diff.closed else Medium.DOCUMENT
    if not diff.whole and len(diff.lines) <= DIFF:
        media |= Medium.TERMINAL
    elif not diff.whole:
        yield _code(title, diff.lines[: DIFF - 1], Medium.TERMINAL)
        more = count(len(diff.lines) - DIFF + 1, "more line")
        told = f"{more}: nodevet report {folder} --format diff"
        yield TextBlock(text=told, tone="quiet", media=Medium.TERMINAL)
    yield _code(title, diff.lines, media)
    if diff.closed:
        yield TextBlock(title=title, text=CLOSED.format(folder), media=Medium.PAGE)


def _code(title: str, lines: Iterable[str], media: Medium) -> CodeBlock:
    return CodeBlock(title=title, text="\n".join(lines), language="diff", media=media)


def _rows(host: str, step: StepResult) -> Iterator[tuple[str, str]]:
    """What is said of a step, without what names this host or its parts."""
    if step.why:
        yield "why", result_text.without_host(host, brief(step.why, result_text.LONGEST))
    for text, same in groupby(_general(result_text.ran(one)) for one in step.ran):
        yield "ran", text + _times(len(list(same)))
    if step.verdicts:
        yield "check", result_text.verdicts(step)


def _moved(step: StepResult, contents: Contents) -> Iterator[tuple[str, Diff | None]]:
    """What became what; of many files of one kind that changed alike, the first and how many."""
    diffs = result_text.diffs(step, contents)
    closed = {
        plain(then.resource.label)
        for then, now in result_text.changed(step)
        if not (_is_open(then) and _is_open(now))
    }
    alike: dict[tuple[str, str, str, str], list[str]] = {}
    for resource, before, after in result_text.moved(step):
        kind, _, path = resource.partition(" ")
        what = _general(path).rpartition("/")[2]
        alike.setdefault((kind, what, before, after), []).append(resource)
    for (_, _, before, later), resources in alike.items():
        general = list(dict.fromkeys(map(_general, resources)))
        shown = general if len(general) <= ALIKE else general[:1]
        for resource in shown:
            more = len(general) - len(shown)
            times = _times(len(resources)) if len(general) == 1 else ""
            lines = tuple(map(_general, diffs.get(resources[0], ())))
            change = f"{before} → {later}"
            whole = "absent" in (before, later)
            if lines and whole:
                change += f", {count(len(lines) - 1, 'line')}"
            elif lines and later == f"{before}, other content":
                change = "changed"
            many = f" and {more} more" if more else ""
            diff = Diff(resource, lines, whole, resources[0] in closed) if lines else None
            yield f"{resource}{many}: {change}{times}", diff


def _times(number: int) -> str:
    return f" ×{number}" if number > 1 else ""


def _is_open(state: State) -> bool:
    mode = state.mapping.get("mode")
    return not state.exists or (isinstance(mode, int) and bool(mode & EVERYBODY))


def _general(text: str) -> str:
    """Without the ids of GPUs, which are others on each host; JSON and the diff have them."""
    return ID.sub("GPU-…", text)
