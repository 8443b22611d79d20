"""The history, opened to be read, and the documents that commands show of it."""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from nodevet.evidence.document import EvidenceError, opened
from nodevet.past.fixed_by import fixed_by
from nodevet.past.listing import RunLine, refs, run_lines
from nodevet.past.moves import PartMove, Places, part_moves
from nodevet.past.run_diff import READS, RunDiff, RunSeen, fact_diffs, facts, run_diff
from nodevet.past.use.nights import MOST, last_after, last_two, night_before
from nodevet.store.records.model import FindingSpan, RecordedFixRun, RecordedRun, RecordedVisit
from nodevet.store.records.parts import SECTIONS, held

if TYPE_CHECKING:
    from nodevet.store import Store

COURSE = 13  # runs before one, that are drawn with it


class RunsFound(msgspec.Struct, frozen=True, kw_only=True):
    """The runs that were asked for, the newest first."""

    store: str
    runs: tuple[RunLine, ...]
    more: bool  # whether there are earlier ones


class RunFound(msgspec.Struct, frozen=True, kw_only=True):
    """One run with its hosts, and what was found on them."""

    run: RunLine
    before: RunLine | None  # the night before, of the same series and hosts
    earlier: tuple[RecordedRun, ...]  # it and those before of its series, the oldest first
    hosts: tuple[RecordedVisit, ...]
    findings: tuple[FindingSpan, ...]


def runs_found(store: "Store", *, series: str | None, most: int, after: str | None) -> RunsFound:
    """The newest runs, at most so many."""
    listed = store.runs(series=series, limit=most + 1, after=after)
    shown = listed[:most]
    return RunsFound(store=store.name, runs=_lines(store, shown), more=len(listed) > len(shown))


def _lines(store: "Store", runs: list[RecordedRun]) -> tuple[RunLine, ...]:
    if not runs:
        return ()
    every = [run.id for run in store.runs()]
    return run_lines(runs, every, store.spans(after=runs[-1].started))


class FixRunsFound(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of fixes that were asked for, the newest first."""

    store: str
    fix_runs: tuple[RecordedFixRun, ...]
    more: bool  # whether there are earlier ones


def fix_runs_found(store: "Store", *, most: int, after: str | None) -> FixRunsFound:
    """The newest runs of fixes, at most so many."""
    listed = store.fix_runs(limit=most + 1, after=after)
    return FixRunsFound(store=store.name, fix_runs=tuple(listed[:most]), more=len(listed) > most)


def run_found(store: "Store", ref: str) -> RunFound:
    """One run. Raises StoreError for a name that is none."""
    run = store.run(ref)
    before = night_before(store, run)
    lines = _lines(store, [run, *([before] if before else [])])
    return RunFound(
        run=lines[0],
        before=lines[1] if before else None,
        earlier=(*reversed(store.runs(series=run.series, before=run.started, limit=COURSE)), run),
        hosts=tuple(store.visits(run.id)),
        findings=tuple(store.spans(run=run.id)),
    )


class DiffFound(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs compared, and how a command line calls them."""

    diff: RunDiff
    refs: tuple[str, str]
    newer: int = 0  # runs that were passed over: incomplete, by hand, or of other hosts


def diff_found(store: "Store", before: str | None, after: str | None) -> DiffFound:
    """What differs; without both, between the last two nights, without `after` between that run and
    the last night of its series and hosts. Raises StoreError, and UserError if there is none."""
    if before is None:
        earlier, later = last_two(store)
    else:
        earlier = store.run(before)
        later = store.run(after) if after else last_after(store, earlier)
    since = [] if after else store.runs(after=later.started, limit=MOST)
    newer = sum(run.id != later.id for run in since)
    named = refs([run.id for run in store.runs()])
    pairs, moves, thinned = _facts(store, earlier, later)
    actions = cache(store.actions)
    found = run_diff(
        _seen(store, earlier),
        _seen(store, later),
        lambda host: store.judged(later.id, host),
        fact_diffs(pairs),
        moves,
        thinned,
        by=lambda span: fixed_by(span, actions(span.host)),
    )
    return DiffFound(diff=found, refs=(named[earlier.id], named[later.id]), newer=newer)


def _seen(store: "Store", run: RecordedRun) -> RunSeen:
    return RunSeen.of(run, store.visits(run.id), store.spans(run=run.id))


Facts = Mapping[str, str]
HOLDING = frozenset(SECTIONS)


def _facts(
    store: "Store", before: RecordedRun, after: RecordedRun
) -> tuple[list[tuple[str, Facts, Facts]], tuple[PartMove, ...], int]:
    """The facts of the hosts of both runs that differ, the parts that moved, and how many hosts
    have lost their evidence."""
    kept: dict[str, Facts] = {}
    was, now = Places(), Places()
    thinned = 0
    for visit, document in store.evidence(before.id, sections=READS):
        thinned += visit.thinned
        if found := _facts_in(visit.host, document, was):
            kept[visit.host] = found
    pairs: list[tuple[str, Facts, Facts]] = []
    for visit, document in store.evidence(after.id, sections=READS):
        thinned += visit.thinned and visit.host in kept
        old, new = kept.get(visit.host), _facts_in(visit.host, document, now)
        if old and new and old != new:
            pairs.append((visit.host, old, new))
    return pairs, part_moves(was, now), thinned


def _facts_in(host: str, document: bytes | None, places: Places) -> Facts:
    """None of what a host said that cannot be read. Its parts are added to the places."""
    if document is None:
        return {}
    try:
        evidence = opened(document)
    except EvidenceError:
        return {}
    places.add(host, *held(evidence, HOLDING))
    return facts(evidence)
