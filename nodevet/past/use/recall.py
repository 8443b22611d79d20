"""Read runs and their differences from the store, as documents that commands show."""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from nodevet.evidence.document import EvidenceError, opened
from nodevet.past.fixed_by import fixed_by
from nodevet.past.listing import RunLine, refs, run_lines
from nodevet.past.moves import PartMove, Places, part_moves
from nodevet.past.run_diff import READS, RunDiff, RunRecords, fact_diffs, facts, run_diff
from nodevet.past.use.nights import MOST, last_after, last_two, night_before
from nodevet.store.records.model import FindingSpan, RecordedFixRun, RecordedRun, RecordedVisit
from nodevet.store.records.parts import SECTIONS, held

if TYPE_CHECKING:
    from nodevet.store import Store

COURSE = 13  # earlier runs that are drawn with a run


class RunsFound(msgspec.Struct, frozen=True, kw_only=True):
    """A list of runs, the newest first."""

    store: str
    runs: tuple[RunLine, ...]
    more: bool  # whether there are earlier runs


class RunFound(msgspec.Struct, frozen=True, kw_only=True):
    """One run with its hosts and their findings."""

    run: RunLine
    before: RunLine | None  # the night before, of the same series and hosts
    earlier: tuple[RecordedRun, ...]  # this run and those before of its series, the oldest first
    hosts: tuple[RecordedVisit, ...]
    findings: tuple[FindingSpan, ...]


def find_runs(store: "Store", *, series: str | None, most: int, after: str | None) -> RunsFound:
    """The newest runs, at most `most`."""
    listed = store.runs(series=series, limit=most + 1, after=after)
    shown = listed[:most]
    return RunsFound(store=store.name, runs=_lines(store, shown), more=len(listed) > len(shown))


def _lines(store: "Store", runs: list[RecordedRun]) -> tuple[RunLine, ...]:
    if not runs:
        return ()
    run_ids = [run.id for run in store.runs()]
    return run_lines(runs, run_ids, store.spans(after=runs[-1].started))


class FixRunsFound(msgspec.Struct, frozen=True, kw_only=True):
    """A list of runs of fixes, the newest first."""

    store: str
    fix_runs: tuple[RecordedFixRun, ...]
    more: bool  # whether there are earlier runs


def find_fix_runs(store: "Store", *, most: int, after: str | None) -> FixRunsFound:
    """The newest runs of fixes, at most `most`."""
    listed = store.fix_runs(limit=most + 1, after=after)
    return FixRunsFound(store=store.name, fix_runs=tuple(listed[:most]), more=len(listed) > most)


def find_run(store: "Store", ref: str) -> RunFound:
    """One run. Raises StoreError if no run has this name."""
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
    """The differences of two runs, and the names of the runs on a command line."""

    diff: RunDiff
    refs: tuple[str, str]
    newer: int = 0  # newer runs that were passed over: incomplete, by hand, or of other hosts


def find_diff(store: "Store", before: str | None, after: str | None) -> DiffFound:
    """The differences of two runs; without `after` from `before` to the last night of its series
    and hosts, without both those of the last two nights. Raises StoreError, and UserError if there
    are no such nights."""
    if before is None:
        earlier, later = last_two(store)
    else:
        earlier = store.run(before)
        later = store.run(after) if after else last_after(store, earlier)
    since = [] if after else store.runs(after=later.started, limit=MOST)
    newer = sum(run.id != later.id for run in since)
    names = refs([run.id for run in store.runs()])
    pairs, moves, thinned = _facts(store, earlier, later)
    actions = cache(store.actions)
    diff = run_diff(
        _records_of(store, earlier),
        _records_of(store, later),
        lambda host: store.judged(later.id, host),
        fact_diffs(pairs),
        moves,
        thinned,
        fixing_action=lambda span: fixed_by(span, actions(span.host)),
    )
    return DiffFound(diff=diff, refs=(names[earlier.id], names[later.id]), newer=newer)


def _records_of(store: "Store", run: RecordedRun) -> RunRecords:
    return RunRecords.of(run, store.visits(run.id), store.spans(run=run.id))


Facts = Mapping[str, str]
HOLDING = frozenset(SECTIONS)


def _facts(
    store: "Store", before: RecordedRun, after: RecordedRun
) -> tuple[list[tuple[str, Facts, Facts]], tuple[PartMove, ...], int]:
    """The hosts whose facts differ, with the facts of both runs; the parts that moved; and the
    number of hosts whose evidence was pruned."""
    facts_before: dict[str, Facts] = {}
    was, now = Places(), Places()
    thinned = 0
    for visit, document in store.evidence(before.id, sections=READS):
        thinned += visit.thinned
        if host_facts := _facts_in(visit.host, document, was):
            facts_before[visit.host] = host_facts
    pairs: list[tuple[str, Facts, Facts]] = []
    for visit, document in store.evidence(after.id, sections=READS):
        thinned += visit.thinned and visit.host in facts_before
        old, new = facts_before.get(visit.host), _facts_in(visit.host, document, now)
        if old and new and old != new:
            pairs.append((visit.host, old, new))
    return pairs, part_moves(was, now), thinned


def _facts_in(host: str, document: bytes | None, places: Places) -> Facts:
    """The facts of a host, empty if its evidence cannot be read. Adds its parts to `places`."""
    if document is None:
        return {}
    try:
        evidence = opened(document)
    except EvidenceError:
        return {}
    places.add(host, *held(evidence, HOLDING))
    return facts(evidence)
