"""A run of fixes as people read it in a terminal: outcomes, then what was done, hosts folded. Pure.

Hosts with the same steps and outcomes are one block: what all of them have in common stands there
once, what only some have names these.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import msgspec

from nodevet.base.printable import brief, cells, plain
from nodevet.fix import result_text as fixes
from nodevet.fix.next_steps import next_steps
from nodevet.fixing.result import HostResult, Outcome, Result, StepResult
from nodevet.sheet.text import GAP, count, name, nodeset, pad, wrap

ALIKE = 3  # more changes of one kind than that are counted, not listed
VARIANTS = 6  # rows of one step that differ from host to host; of more, half are shown
DIFF = 16  # lines of one file's diff
NARROWEST = 24  # columns of a text that is wrapped, however narrow the terminal
ID = re.compile(r"(?:GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

RED, GREEN, YELLOW, MAGENTA, DIM, BOLD = "31", "32", "33", "35", "2", "1"
TINTS = {
    Outcome.ROLLBACK_FAILED: RED,
    Outcome.UNKNOWN: MAGENTA,
    Outcome.FAILED: YELLOW,
    Outcome.PARTIAL: YELLOW,
    Outcome.REFUSED: YELLOW,
    Outcome.NOT_ATTEMPTED: YELLOW,
    Outcome.UNCHANGED: DIM,
}

Contents = Callable[[str], bytes | None]


class Styled(msgspec.Struct, frozen=True):
    """Text after a lead that is not wrapped; each with the code of its colour, or none."""

    lead: str = ""
    text: str = ""
    lead_tint: str = ""
    tint: str = ""


class _Row(msgspec.Struct, frozen=True):
    """One line about a step."""

    kind: str  # ran, check, now, ...
    text: str
    below: tuple[str, ...] = ()  # a diff


def table(
    result: Result,
    contents: Contents,
    folder: str,
    inventories: Sequence[str],
    *,
    colour: bool,
    width: int | None,
) -> str:
    """All of it. `folder` of the run, as a word of a command line."""
    lines = [*outcomes(result), Styled()]
    for hosts in _blocks(result):
        lines += [*_block(hosts, contents, folder), Styled()]
    lines += [Styled(f"{key}: ", value) for key, value in fixes.facts(result)]
    lines.append(Styled(text=fixes.summary(result), tint=BOLD))
    lines += after(result, folder, inventories)
    return drawn(lines, colour=colour, width=width)


def drawn(lines: Sequence[Styled], *, colour: bool, width: int | None) -> str:
    """As text; what does not fit goes on below its beginning."""
    out: list[str] = []
    for line in lines:
        indent = cells(line.lead)
        room = None if width is None else max(NARROWEST, width - indent)
        first, *rest = wrap(line.text, room) if room and cells(line.text) > room else [line.text]
        out.append(_sgr(line.lead, line.lead_tint, colour) + _sgr(first, line.tint, colour))
        out += [" " * indent + _sgr(part, line.tint, colour) for part in rest]
    return "\n".join(text.rstrip() for text in out) + "\n"


def _sgr(text: str, code: str, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour and code and text else text


def outcomes(result: Result) -> list[Styled]:
    """How hosts ended, worst first, those with the same words on one line."""
    rows = [(outcome, hosts, why) for outcome, hosts, why in fixes.folded(result)]
    width = max((len(outcome.words) for outcome, _, _ in rows), default=0)
    return [
        Styled(
            pad(outcome.words.upper(), width) + GAP,
            GAP.join(filter(None, (hosts, why))),
            TINTS.get(outcome, GREEN),
        )
        for outcome, hosts, why in rows
    ]


def after(result: Result, folder: str, inventories: Sequence[str]) -> list[Styled]:
    """What to do next, a line for each group of hosts."""
    return [Styled("next: ", step.text, BOLD) for step in next_steps(result, folder, inventories)]


# --- what was done --------------------------------------------------------------------------------


def _blocks(result: Result) -> list[list[HostResult]]:
    """Hosts on which something was done, those with the same steps and outcomes together, in the
    order of the run."""
    found: dict[tuple[tuple[str, Outcome], ...], list[HostResult]] = {}
    for host in result.hosts:
        if fixes.acted_on(host):
            key = tuple((step.fix, step.outcome) for step in host.steps)
            found.setdefault(key, []).append(host)
    return [*found.values()]


def _block(hosts: Sequence[HostResult], contents: Contents, folder: str) -> Iterator[Styled]:
    yield Styled(text=_head(hosts), tint=BOLD)
    for steps in zip(*(host.steps for host in hosts), strict=True):
        named = [(host.host, step) for host, step in zip(hosts, steps, strict=True)]
        yield from _step(named, contents, folder)


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
    named: Sequence[tuple[str, StepResult]], contents: Contents, folder: str
) -> Iterator[Styled]:
    """One step of all hosts of a block."""
    first = named[0][1]
    changes = {fixes.change(step) for _, step in named}
    one = len(changes) == 1
    said = GAP.join(filter(None, (plain(first.fix), *(changes if one else ()))))
    yield Styled(f"  {said}{GAP}", first.outcome.words, tint=TINTS.get(first.outcome, GREEN))
    hosts: dict[_Row, list[str]] = {}
    for host, step in named:
        own = [] if one else [_Row("", fixes.change(step))]
        for row in dict.fromkeys([*own, *_rows(host, step, contents)]):
            hosts.setdefault(row, []).append(host)
    for kind in dict.fromkeys(row.kind for row in hosts):
        rows = [row for row in hosts if row.kind == kind]
        common = [row for row in rows if len(hosts[row]) == len(named)]
        others = [row for row in rows if row not in common]
        shown = others if len(others) <= VARIANTS else others[: VARIANTS // 2]
        for row in rows:
            if row in common or row in shown:
                where = "" if row in common else f"{GAP}on {nodeset(hosts[row])}"
                yield Styled(f"      {f'{kind}{GAP}' if kind else ''}", row.text + where)
                yield from _diff(row.below, folder)
        if more := len(others) - len(shown):
            told = f"and {more:,} more that differ by host: nodevet report {folder} --format diff"
            yield Styled("      ", told, tint=DIM)


def _diff(lines: Sequence[str], folder: str) -> Iterator[Styled]:
    shown = lines if len(lines) <= DIFF else lines[: DIFF - 1]
    for line in shown:
        yield Styled(" " * 11, line, tint={"-": RED, "+": GREEN}.get(line[:1], DIM))
    if more := len(lines) - len(shown):
        told = f"{count(more, 'more line')}: nodevet report {folder} --format diff"
        yield Styled(" " * 11, told, tint=DIM)


def _rows(host: str, step: StepResult, contents: Contents) -> Iterator[_Row]:
    """What is said of a step, without what names this host or its parts."""
    if step.why:
        yield _Row("", fixes.without_host(host, brief(step.why, fixes.LONGEST)))
    for text, times in _counted(_general(fixes.ran(one)) for one in step.ran):
        yield _Row("ran", text + times)
    if step.verdicts:
        yield _Row("check", fixes.verdicts(step))
    yield from _now(step, contents)


def _now(step: StepResult, contents: Contents) -> Iterator[_Row]:
    """What became what; of many files of one kind that changed alike, the first and how many."""
    diffs = fixes.diffs(step, contents)
    alike: dict[tuple[str, str, str, str], list[str]] = {}
    for resource, before, after in fixes.moved(step):
        kind, _, path = resource.partition(" ")
        what = _general(path).rpartition("/")[2]
        alike.setdefault((kind, what, before, after), []).append(resource)
    for (_, _, before, later), resources in alike.items():
        general = list(dict.fromkeys(map(_general, resources)))
        shown = general if len(general) <= ALIKE else general[:1]
        for resource in shown:
            more = len(general) - len(shown)
            times = f" ×{len(resources)}" if len(general) == 1 < len(resources) else ""
            lines = tuple(map(_general, diffs.get(resources[0], ())))
            change = f"{before} → {later}"
            if lines and "absent" in (before, later):  # all of it: its plan has shown that
                change, lines = f"{change}, {count(len(lines) - 1, 'line')}", ()
            elif lines and later == f"{before}, other content":
                change = "changed"
            many = f" and {more} more" if more else ""
            yield _Row("now", f"{resource}{many}: {change}{times}", lines)


def _counted(texts: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Each text once, with how often it was there."""
    for text, same in groupby(texts):
        times = len(list(same))
        yield text, f" ×{times}" if times > 1 else ""


def _general(text: str) -> str:
    """Without the ids of GPUs, which are others on each host; every other format has them."""
    return ID.sub("GPU-…", text)
