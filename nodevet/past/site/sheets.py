"""The sheets of the site's pages, made from the sheets of the history. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from nodevet.base.printable import plain
from nodevet.past.sheets.parts import KINDS
from nodevet.past.site.clock import CLOCK
from nodevet.past.site.fleet import GONE, HostLine
from nodevet.sheet.model import AnyBlock, Cell, FactBlock, GroupBlock, Sheet, TableBlock
from nodevet.sheet.text import count
from nodevet.store.records.model import PartPlace, RecordedRun

ON_A_LIST = 500  # hosts
MOST_ROWS = 15  # of a table on the first page
MOST_EVENTS = 500
NIGHTLY = ("last seen", "runs", "nights")  # facts that each night changes: the script shows them


class SiteWritten(Struct, frozen=True, kw_only=True):
    """The content of a site, and the number of changed files."""

    folder: str
    hosts: int
    parts: int  # pages of parts
    runs: int  # pages of runs
    written: int  # files that are new or differ
    removed: int


class NightSheets(NamedTuple):
    """The last night of a sweep, and its differences from the night before; None: there is none."""

    title: str  # the name of the sweep
    run: Sheet
    diff: Sheet | None


def fleet_sheet(title: str, nights: Sequence[NightSheets], runs: Sheet) -> Sheet:
    """The first page: what the last night of each sweep changed, what is wrong, the newest runs."""
    blocks: list[AnyBlock] = []
    for night in nights:
        blocks += _night(night, f" ({night.title})" if len(nights) > 1 else "")
    blocks.append(GroupBlock(title="Runs", blocks=tuple(_shortened(runs.blocks))))
    return Sheet(title=title, kind="site", blocks=tuple(blocks))


def _night(night: NightSheets, whose: str) -> Iterator[AnyBlock]:
    if night.diff is not None:
        yield GroupBlock(
            title=f"What changed{whose}",
            note=" · ".join(night.diff.facts[1:]),
            blocks=tuple(_shortened(night.diff.blocks)),
        )
    for block in _shortened(night.run.blocks):
        if block.title and block.title != "Hosts":
            yield replace(block, title=block.title + whose)


def _shortened(blocks: Iterable[AnyBlock]) -> Iterator[AnyBlock]:
    for block in blocks:
        if isinstance(block, TableBlock) and len(block.rows) > MOST_ROWS:
            more = count(len(block.rows) - MOST_ROWS, "more row")
            note = "; ".join(filter(None, (block.note, f"and {more} on the page of the run")))
            yield replace(block, rows=block.rows[:MOST_ROWS], note=note)
        else:
            yield block


def check_sheet(check: str, trends: Sequence[Sheet]) -> Sheet:
    """The trends of a check, one for each sweep."""
    title = trends[0].title if len(trends) == 1 else plain(check)
    blocks = tuple(block for trend in trends for block in trend.blocks)
    return Sheet(title=title, kind="site", blocks=blocks)


def run_title(run: RecordedRun) -> str:
    """`nightly of 2026-11-20 02:00`."""
    return f"{plain(run.series) or 'check'} of {CLOCK.moment_text(run.started)}"


def anchor(word: str) -> str:
    """The anchor of the hosts with this outcome."""
    return word.replace(" ", "-")


def hosts_sheet(lines: Sequence[HostLine], first: int, total: int) -> Sheet:
    """A part of the list of hosts, which begins with number `first`, from 0."""
    groups = (
        GroupBlock(title=word, anchor=anchor(word), blocks=(_hosts_table(list(members)),))
        for word, members in groupby(lines, lambda line: line.word)
    )
    last = first + len(lines)
    shown = "" if len(lines) == total else f": {first + 1:,} to {last:,}"
    return Sheet(title=count(total, "host") + shown, kind="site", blocks=tuple(groups))


def _hosts_table(lines: Sequence[HostLine]) -> TableBlock:
    rows = tuple(
        (
            Cell(line.label),
            Cell(line.what, line.tone),
            Cell(line.marks, "quiet"),
            Cell(line.at, "quiet", right=True),
            Cell(line.groups, "quiet"),
        )
        for line in lines
    )
    return TableBlock(heads=("host", "what", "last runs", "last visit", "groups"), rows=rows)


def host_sheet(story: Sheet, line: HostLine, parts: Sequence[PartPlace]) -> Sheet:
    """The story of a host without what each night changes, and its parts."""
    blocks = (*map(_lasting, story.blocks), *_parts(parts))
    title = f"{line.label}: {GONE}" if line.word == GONE else story.title
    return replace(story, title=title, kind="site", blocks=blocks)


def _lasting(block: AnyBlock) -> AnyBlock:
    if isinstance(block, FactBlock):
        return replace(block, rows=tuple(row for row in block.rows if row[0] not in NIGHTLY))
    if isinstance(block, TableBlock) and len(block.rows) > MOST_EVENTS:
        note = f"the last {MOST_EVENTS} of {len(block.rows):,}"
        return replace(block, rows=block.rows[-MOST_EVENTS:], note=note)
    return block


def _parts(places: Sequence[PartPlace]) -> Iterator[TableBlock]:
    rows = tuple(
        (
            Cell(KINDS[place.part.kind.value]),
            Cell(plain(place.part.id)),
            Cell(plain(place.slot)),
            Cell(plain(place.part.model)),
            Cell(plain(", ".join(place.part.names)), "quiet"),
            Cell(CLOCK.moment_text(place.first.at), "quiet", right=True),
        )
        for place in places
    )
    if rows:
        heads = ("part", "id", "slot", "model", "serial and other names", "there since")
        yield TableBlock(title="Parts", heads=heads, rows=rows)


def written_sheet(written: SiteWritten) -> Sheet:
    """The content of a site, and the number of changed files."""
    facts = (
        count(written.hosts, "host"),
        count(written.parts, "part"),
        count(written.runs, "run"),
        f"{count(written.written, 'file')} written, {written.removed:,} deleted",
    )
    title = f"site written to {plain(written.folder)}"
    return Sheet(title=title, kind="site", facts=facts, end="open index.html in this folder")
