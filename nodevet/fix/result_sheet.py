"""A run of fixes as a sheet: outcomes, changes with hosts folded, next steps. Pure.

Hosts with the same steps and outcomes are one group. It shows once what all of them share, and
names the hosts of anything else.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief, plain
from nodevet.base.uuids import UUID
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

ALIKE = 3  # the most similar changes that are listed; more are counted
VARIANTS = 6  # the most rows of one step that differ by host; if there are more, half are shown
DIFF = 16  # lines of one file's diff in a terminal
EVERYBODY = 0o004  # may read a file of this mode
ID = re.compile(rf"(?:GPU|MIG)-{UUID.pattern}")
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
    """Hosts with the same end."""

    outcome: str
    hosts: str  # a nodeset
    why: str
    tone: str


class Diff(NamedTuple):
    """How the content of one file changed."""

    file: str
    lines: tuple[str, ...]
    whole: bool  # the file was created or removed; its plan has shown all of it
    closed: bool  # not every user of its node may read it


def result_sheet(
    result: Result,
    contents: Contents,
    folder: str,
    inventories: Sequence[str],
    *,
    page: bool = False,
) -> Sheet:
    """Outcomes worst first, a group for hosts with the same steps, facts, next steps.

    `contents`: of files, by SHA-256. `folder` of the run, and `inventories` of its hosts, are words
    of a command line. `page`: add the blocks that only an HTML page shows.
    """

    def step_group(host: HostResult, host_step: StepResult) -> GroupBlock:
        return _step([(host, host_step)], contents, folder)

    return Sheet(
        title=_headline(result),
        kind=plain(result.kind),
        facts=(f"{plain(result.kind)} of plan {plain(result.plan)}", result_text.summary(result)),
        media=Medium.DOCUMENT,
        blocks=(
            *ended_tables(ended_hosts(result)),
            *([matrix(result, step_group, _tone)] if page else []),
            *(_hosts(hosts, contents, folder) for hosts in _groups(result)),
            *_facts(result),
            *_next_blocks(result, folder, inventories),
            *_undo_block(result, folder),
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
    failures = [host.outcome for host in result.hosts if not result.good(host.outcome)]
    if failures:
        worst = min(failures, key=lambda outcome: outcome.rank)
        return f"{failures.count(worst):,} of {hosts}: {worst.words}"
    words = [f"{number:,} {outcome.words}" for outcome, number in result_text.tally(result).items()]
    words = [word for word in words if not word.startswith("0 ")]
    alike = len(words) == 1
    return f"{hosts} {result.hosts[0].outcome.words}" if alike else f"Done: {', '.join(words)}"


def ended_hosts(result: Result) -> list[EndedHosts]:
    """How hosts ended, worst first; hosts with the same outcome and reason share a row."""
    return [
        EndedHosts(outcome.words, hosts, why, _tone(outcome))
        for outcome, hosts, why in result_text.fold_hosts(result)
    ]


def ended_tables(rows: Sequence[EndedHosts]) -> Iterator[TableBlock]:
    """The rows as a table; in a terminal hosts and reasons share a column, since both are long."""
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
    """What the run was; in a terminal the totals come last, so that they stay in view."""
    rows = tuple(result_text.facts(result))
    yield FactBlock(title="This run", rows=rows, media=Medium.DOCUMENT)
    yield FactBlock(rows=rows, media=Medium.TERMINAL)
    yield TextBlock(text=result_text.summary(result), tone="strong", media=Medium.TERMINAL)


def _next_blocks(result: Result, folder: str, inventories: Sequence[str]) -> Iterator[ListBlock]:
    """The next steps, an item for each group of hosts."""
    if steps := next_steps(result, folder, inventories):
        lines = tuple(ListItem(step.text) for step in steps)
        yield ListBlock(label="next", items=lines, media=Medium.TERMINAL)
        items = tuple(
            ListItem(f"{nodeset(step.hosts)}: {step.why}", command=step.command) for step in steps
        )
        yield ListBlock(title="Next", items=items, media=Medium.DOCUMENT)


def _undo_block(result: Result, folder: str) -> Iterator[TextBlock]:
    if result.kind == "apply" and any(map(result_text.has_changes, result.hosts)):
        undo = f"`nodevet rollback {folder}`"
        yield TextBlock(title="Undo", text=undo, media=Medium.PAGE)


# --- what was done --------------------------------------------------------------------------------


def _groups(result: Result) -> list[list[HostResult]]:
    """Hosts on which something was done, grouped by steps and outcomes, in the order of the run."""
    groups: dict[tuple[tuple[str, Outcome], ...], list[HostResult]] = {}
    for host in result.hosts:
        if result_text.has_changes(host):
            key = tuple((step.fix, step.outcome) for step in host.steps)
            groups.setdefault(key, []).append(host)
    return [*groups.values()]


def _hosts(hosts: Sequence[HostResult], contents: Contents, folder: str) -> GroupBlock:
    steps = zip(*(host.steps for host in hosts), strict=True)
    seconds = [host.seconds for host in hosts]
    ends = dict.fromkeys((elapsed(min(seconds)), elapsed(max(seconds))))
    return GroupBlock(
        title=_head(hosts),
        blocks=(
            TextBlock(text=f"took {' to '.join(ends)}", tone="quiet", media=Medium.PAGE),
            *(_step([*zip(hosts, group, strict=True)], contents, folder) for group in steps),
        ),
    )


def _head(hosts: Sequence[HostResult]) -> str:
    """`gpu[1-9] (canary: gpu1, rebooted: gpu1)`."""
    hosts_text = nodeset(host.host for host in hosts) if len(hosts) > 1 else name(hosts[0].host)
    marks = []
    for word, marked in (
        ("canary", [host.host for host in hosts if host.canary]),
        ("rebooted", [host.host for host in hosts if host.rebooted]),
    ):
        if marked:
            marks.append(word if len(marked) == len(hosts) else f"{word}: {nodeset(marked)}")
    return f"{hosts_text} ({', '.join(marks)})" if marks else hosts_text


def _step(
    steps: Sequence[tuple[HostResult, StepResult]], contents: Contents, folder: str
) -> GroupBlock:
    """One step of all hosts of a group."""
    example = steps[0][1]
    changes = {result_text.change(step) for _, step in steps}
    common_change = changes if len(changes) == 1 else ()
    rows: dict[tuple[str, str], list[str]] = {}
    diffs: dict[Diff, list[str]] = {}
    for host, step in steps:
        change_row = [] if common_change else [("change", result_text.change(step))]
        listed = list(_changed_resources(step, contents))
        step_rows = [*change_row, *_rows(host.host, step), *(("now", text) for text, _ in listed)]
        for row in dict.fromkeys(step_rows):
            rows.setdefault(row, []).append(host.host)
        for diff in dict.fromkeys(diff for _, diff in listed if diff):
            diffs.setdefault(diff, []).append(host.host)
    return GroupBlock(
        title=GAP.join((plain(example.fix), *common_change)),
        tag=Cell(example.outcome.words, _tone(example.outcome)),
        blocks=(
            FactBlock(rows=(("risk", example.risk.value),), media=Medium.PAGE),
            FactBlock(rows=tuple(_fact_rows(rows, len(steps), folder))),
            *_file_diffs(diffs, len(steps), folder),
        ),
    )


def _fact_rows(
    rows: dict[tuple[str, str], list[str]], total: int, folder: str
) -> Iterator[tuple[str, str]]:
    """Rows, those of one label together; a row of only some hosts names them."""
    for label in dict.fromkeys(label for label, _ in rows):
        by_text = {text: hosts for (key, text), hosts in rows.items() if key == label}
        partial = [text for text, hosts in by_text.items() if len(hosts) < total]
        listed = partial if len(partial) <= VARIANTS else partial[: VARIANTS // 2]
        for text, hosts in by_text.items():
            if len(hosts) == total:
                yield label, text
            elif text in listed:
                yield label, f"{text}{GAP}on {nodeset(hosts)}"
        if hidden := len(partial) - len(listed):
            yield (
                "",
                f"and {hidden:,} more that differ by host: nodevet report {folder} --format diff",
            )


def _file_diffs(diffs: dict[Diff, list[str]], total: int, folder: str) -> Iterator[AnyBlock]:
    """Diffs of files, for at most VARIANTS of them."""
    for diff, hosts in [*diffs.items()][:VARIANTS]:
        suffix = "" if len(hosts) == total else f" on {nodeset(hosts)}"
        yield from _diff(diff, f"{diff.file}{suffix}", folder)


def _diff(diff: Diff, title: str, folder: str) -> Iterator[AnyBlock]:
    """One diff. People pass a page on more freely than a run's folder, so it has only the content
    of files that every user of the node may read."""
    media = Medium.MARKDOWN if diff.closed else Medium.DOCUMENT
    if not diff.whole and len(diff.lines) <= DIFF:
        media |= Medium.TERMINAL
    elif not diff.whole:
        yield _code(title, diff.lines[: DIFF - 1], Medium.TERMINAL)
        hidden = count(len(diff.lines) - DIFF + 1, "more line")
        text = f"{hidden}: nodevet report {folder} --format diff"
        yield TextBlock(text=text, tone="quiet", media=Medium.TERMINAL)
    yield _code(title, diff.lines, media)
    if diff.closed:
        yield TextBlock(title=title, text=CLOSED.format(folder), media=Medium.PAGE)


def _code(title: str, lines: Iterable[str], media: Medium) -> CodeBlock:
    return CodeBlock(title=title, text="\n".join(lines), language="diff", media=media)


def _rows(host: str, step: StepResult) -> Iterator[tuple[str, str]]:
    """Reason, actions and verdicts of a step, without names of this host or its GPUs."""
    if step.why:
        yield "why", result_text.without_host(host, brief(step.why, result_text.LONGEST))
    for text, repeats in groupby(_general(result_text.action_text(ran)) for ran in step.ran):
        yield "ran", text + _times(len(list(repeats)))
    if step.verdicts:
        yield "check", result_text.verdicts(step)


def _changed_resources(step: StepResult, contents: Contents) -> Iterator[tuple[str, Diff | None]]:
    """(text, diff) of each change; of many similar changes, the first and the number of others."""
    diffs = result_text.diffs(step, contents)
    closed = {
        plain(before_state.resource.label)
        for before_state, after_state in result_text.changed_states(step)
        if not (_is_open(before_state) and _is_open(after_state))
    }
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for resource, before, after in result_text.changes_text(step):
        kind, _, path = resource.partition(" ")
        file_name = _general(path).rpartition("/")[2]
        groups.setdefault((kind, file_name, before, after), []).append(resource)
    for (_, _, before, after_text), resources in groups.items():
        general = list(dict.fromkeys(map(_general, resources)))
        listed = general if len(general) <= ALIKE else general[:1]
        for resource in listed:
            hidden = len(general) - len(listed)
            times = _times(len(resources)) if len(general) == 1 else ""
            lines = tuple(map(_general, diffs.get(resources[0], ())))
            is_new_or_removed = "absent" in (before, after_text)
            length = f", {count(len(lines) - 1, 'line')}" if lines and is_new_or_removed else ""
            is_removed = after_text == "absent"
            change = f"{before}{length if is_removed else ''} → {after_text}"
            if length and not is_removed:
                change += length
            elif lines and after_text == f"{before}, other content":
                change = "changed"
            more_text = f" and {hidden} more" if hidden else ""
            diff = (
                Diff(resource, lines, is_new_or_removed, resources[0] in closed) if lines else None
            )
            yield f"{resource}{more_text}: {change}{times}", diff


def _times(number: int) -> str:
    return f" ×{number}" if number > 1 else ""


def _is_open(state: State) -> bool:
    mode = state.mapping.get("mode")
    return not state.exists or (isinstance(mode, int) and bool(mode & EVERYBODY))


def _general(text: str) -> str:
    """The text without UUIDs of GPUs, which differ by host; JSON and the diff have them."""
    return ID.sub("GPU-…", text)
