"""Read runs and their differences from the store, as documents that commands show."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from nodevet.evidence.document import EvidenceError, open_evidence
from nodevet.past.fact_diffs import fact_diffs, facts
from nodevet.past.fixed_by import fixed_by
from nodevet.past.listing import RunLine, refs, run_lines
from nodevet.past.moves import Key, PartMove, Places, part_moves
from nodevet.past.run_diff import READS, RunDiff, RunRecords, run_diff
from nodevet.past.use.nights import MOST, last_after, last_two, newer, night_before
from nodevet.store.records.model import FindingSpan, RecordedFixRun, RecordedRun, RecordedVisit
from nodevet.store.records.parts import SECTIONS, held_parts

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
        earlier=(*reversed(store.runs(series=run.series, before=run.id, limit=COURSE)), run),
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
    passed_over = [] if after else [*newer(store.runs(limit=MOST), later)]
    names = refs([run.id for run in store.runs()])
    pairs, moves, thinned = _facts(store, earlier, later)
    actions = cache(store.actions)
    diff = run_diff(
        _records_of(store, earlier, store.spans(run=earlier.id, unjudged=True)),
        _records_of(store, later),
        lambda host: store.check_verdicts(later.id, host),
        fact_diffs(pairs),
        moves,
        thinned,
        fixing_action=lambda span: fixed_by(span, actions(span.host)),
    )
    return DiffFound(diff=diff, refs=(names[earlier.id], names[later.id]), newer=len(passed_over))


def _records_of(store: "Store", run: RecordedRun, more: Iterable[FindingSpan] = ()) -> RunRecords:
    return RunRecords.of(run, store.visits(run.id), [*store.spans(run=run.id), *more])


Facts = Mapping[str, str]
HOLDING = frozenset(SECTIONS)
NICS = frozenset({"infiniband", "network"})  # both list parts of one kind
CHUNK = 500  # hosts that one query names


def _facts(
    store: "Store", before: RecordedRun, after: RecordedRun
) -> tuple[list[tuple[str, Facts, Facts]], tuple[PartMove, ...], int]:
    """The hosts whose facts differ, with the facts of both runs; the parts that moved; and the
    number of hosts whose evidence was pruned. Facts and parts are not readings, so a host with the
    same steady values has the same ones."""
    look = _Look(store, before, after)
    unlike = store.unlike_hosts(before.id, after.id, READS)
    hosts_by_sections: dict[frozenset[str], list[str]] = {}
    for host, sections in unlike.items():
        needed = sections | {"host"} | (NICS if sections & NICS else frozenset())
        hosts_by_sections.setdefault(needed, []).append(host)
    for sections, hosts in hosts_by_sections.items():
        look.read_sections(hosts, sections)
    others = store.holders({name for _, name in look.changed_parts()})
    for sections, hosts in hosts_by_sections.items():  # the same parts, in sections not read above
        if not sections >= HOLDING:
            look.read_sections([host for host in hosts if host in others], HOLDING - sections)
    look.read_sections(sorted(others - unlike.keys()), HOLDING)
    order = {host: place for place, host in enumerate(unlike)}
    pairs = sorted(look.pairs, key=lambda pair: order.get(pair[0], -1))
    return pairs, part_moves(look.was, look.now), look.thinned


class _Look:
    """What was read of some hosts in two runs."""

    def __init__(self, store: "Store", before: RecordedRun, after: RecordedRun) -> None:
        self._store, self._before, self._after = store, before.id, after.id
        self.was, self.now = Places(), Places()
        self.pairs: list[tuple[str, Facts, Facts]] = []
        self.thinned = 0

    def read_sections(self, hosts: Sequence[str], sections: frozenset[str]) -> None:
        """Read these sections of some hosts."""
        for begin in range(0, len(hosts), CHUNK):
            self._read_chunk(hosts[begin : begin + CHUNK], sections)

    def _read_chunk(self, hosts: Sequence[str], sections: frozenset[str]) -> None:
        facts_before: dict[str, Facts] = {}
        for visit, document in self._store.evidence(self._before, hosts=hosts, sections=sections):
            self.thinned += visit.thinned
            if host_facts := _facts_in(visit.host, document, self.was, sections):
                facts_before[visit.host] = host_facts
        for visit, document in self._store.evidence(self._after, hosts=hosts, sections=sections):
            self.thinned += visit.thinned and visit.host in facts_before
            old = facts_before.get(visit.host)
            new = _facts_in(visit.host, document, self.now, sections)
            if old and new and old != new:
                self.pairs.append((visit.host, old, new))

    def changed_parts(self) -> set[Key]:
        """The parts that moved."""
        keys = {*self.was.keys, *self.now.keys}
        return {key for key in keys if self.was.place_of(key) != self.now.place_of(key)}


def _facts_in(host: str, document: bytes | None, places: Places, sections: frozenset[str]) -> Facts:
    """The facts of a host, empty if its evidence cannot be read. Adds its parts to `places`."""
    if document is None:
        return {}
    try:
        evidence = open_evidence(document)
    except EvidenceError:
        return {}
    places.add(host, *held_parts(evidence, HOLDING & sections))
    return facts(evidence)
