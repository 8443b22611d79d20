"""The store: what was recorded, asked for by run, host, check, part and time."""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import TracebackType

from sqlalchemy import select, update
from sqlalchemy.engine import URL, Engine

from nodevet.model import Status, Verdict
from nodevet.store import evidence, fixes, incidents, parts, pruning, runs, spans, together, visits
from nodevet.store import schema as t
from nodevet.store.contents import content
from nodevet.store.database import Database
from nodevet.store.engine import default_url, engine_of, parsed, told
from nodevet.store.errors import StoreError
from nodevet.store.moments import instant
from nodevet.store.recorder import Recorder
from nodevet.store.records.model import (
    BegunTogether,
    CounterPoint,
    FailedFix,
    FindingSpan,
    FixProof,
    Part,
    PartPlace,
    RecordedAction,
    RecordedFixRun,
    RecordedIncident,
    RecordedPlan,
    RecordedRun,
    RecordedVisit,
)
from nodevet.store.records.retention import Pruned, Retention
from nodevet.store.upgrade import upgrade

CHUNK = 64  # visits whose evidence is in memory at once


def open_store(url: str | None = None, *, create: bool = True) -> "Store":
    """The store at a URL; None: the user's own. Raises StoreError, also if there is none and it is
    not to be made."""
    place = parsed(url or default_url())
    engine = engine_of(place, create=create)
    try:
        with told(place):
            upgrade(engine)
    except StoreError:
        engine.dispose()
        raise
    return Store(engine, place)


class Store:
    """Close it, or use it in a `with`. A run is called as Store.run takes it."""

    def __init__(self, engine: Engine, url: URL) -> None:
        self._database = Database(engine, url)

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._database.engine.dispose()

    @property
    def name(self) -> str:
        """As messages say it: a path, or a URL without its password."""
        return self._database.name

    def begin(self, run: RecordedRun, *, alone: bool = False) -> Recorder:
        """Record a run that begins now. Raises StoreError.

        `alone`: no other run of this sweep may be going on, or StoreHeldError is raised; of two
        that begin at once, one begins.
        """
        with self._database.writing() as connection:
            if alone:
                runs.free(connection, run.series)
            number = runs.begin(connection, run)
        return Recorder(self._database.engine, run=run, run_id=number)

    def resume(self, run: str) -> tuple[Recorder, frozenset[str]]:
        """Go on with a run that did not end; the hosts that need no visit any more.

        Raises StoreError for one that another process still records, or that is complete.
        """
        with self._database.writing() as connection:
            number, found = runs.take_up(connection, run)
            seen = visits.done(connection, number)
        done = frozenset(host for host, how in seen.items() if how is not Status.INTERRUPTED)
        return Recorder(self._database.engine, run=found, run_id=number, seen=list(seen)), done

    def runs(
        self,
        *,
        series: str | None = None,
        limit: int | None = None,
        before: str | None = None,
        after: str | None = None,
    ) -> list[RecordedRun]:
        """Newest first. `before` and `after` are ISO 8601 instants or days; `after` is included."""
        with self._database.reading() as connection:
            return runs.listed(connection, series=series, limit=limit, before=before, after=after)

    def free(self, series: str) -> None:
        """Raises StoreHeldError if a run of this sweep goes on."""
        with self._database.reading() as connection:
            runs.free(connection, series)

    def run(self, ref: str = "last", *, series: str | None = None) -> RecordedRun:
        """By id, the beginning of one, `last`, `last~2`, or a day: the last run of it.

        Raises StoreError.
        """
        with self._database.reading() as connection:
            return runs.named(connection, ref, series)

    def reported_with(self, run_id: str, exit_code: int) -> None:
        """The reports of a run were written, and this is what it came to. Raises StoreError."""
        ended = update(t.run).where(t.run.c.name == run_id).values(exit_code=exit_code)
        with self._database.writing() as connection:
            connection.execute(ended)

    def last_reported(self, *, before: str, series: str | None = None) -> RecordedRun | None:
        """The run that was recorded last before this one and came to its reports; by the order in
        which they were recorded, whatever the clock said."""
        with self._database.reading() as connection:
            return runs.last_reported(connection, before, series)

    def reported(self, hosts: Iterable[str], *, series: str | None = None) -> dict[str, int]:
        """In which visit each of these hosts was reported last, of this sweep or of any: its
        number; without those that never were."""
        with self._database.reading() as connection:
            return visits.reported(connection, hosts, series)

    def hosts(self) -> list[str]:
        """Every host that was ever visited, by name."""
        with self._database.reading() as connection:
            return list(connection.execute(select(t.host.c.name).order_by(t.host.c.name)).scalars())

    def visits(self, run: str, hosts: Iterable[str] | None = None) -> Iterator[RecordedVisit]:
        """The hosts of a run, in the order in which they were recorded."""
        asked = visits.asked(run=self.run(run).id, hosts=hosts)
        for rows in self._database.pages(asked, t.visit):
            yield from map(visits.visit_of, rows)

    def visits_of(
        self, host: str, *, after: str | None = None, limit: int | None = None
    ) -> list[RecordedVisit]:
        """Of one host, newest first."""
        asked = visits.newest_first(visits.asked(host=host, after=after), limit)
        with self._database.reading() as connection:
            return [visits.visit_of(row) for row in connection.execute(asked)]

    def evidence(
        self,
        run: str,
        *,
        hosts: Iterable[str] | None = None,
        sections: Iterable[str] | None = None,
    ) -> Iterator[tuple[RecordedVisit, bytes | None]]:
        """The visits of a run with their evidence: whole, or some sections without how long each
        took; None if it is not kept."""
        asked = visits.asked(run=self.run(run).id, hosts=hosts)
        wanted = None if sections is None else frozenset(sections)
        for rows in self._database.pages(asked, t.visit):
            for begin in range(0, len(rows), CHUNK):
                some = rows[begin : begin + CHUNK]
                with self._database.reading() as connection:
                    read = evidence.of_visits(connection, [row.id for row in some], wanted)
                for row in some:
                    yield visits.visit_of(row), read.get(row.id)

    def last_evidence(
        self,
        host: str,
        before_run: str | None = None,
        *,
        series: str | None = None,
        reported: bool = False,
    ) -> tuple[RecordedVisit, bytes] | None:
        """What the last visit of a host read, before a run; None if nothing is kept.

        `series`: of the runs of this sweep; `reported`: of those that came to their reports.
        """
        with self._database.reading() as connection:
            before = None
            if before_run is not None:
                before = connection.execute(runs.id_of(before_run)).scalar()
            asked = visits.last_with_evidence(
                host, before_run=before, series=series, reported=reported
            )
            row = connection.execute(asked).first()
            if row is None:
                return None
            return visits.visit_of(row), evidence.of_visits(connection, [row.id])[row.id]

    def spans(
        self,
        *,
        host: str | None = None,
        check: str | None = None,
        run: str | None = None,
        after: str | None = None,
        ended_after: str | None = None,
    ) -> Iterator[FindingSpan]:
        """What was found, for as long as it stayed the same, in the order in which it began.

        `run`: what was so in that run. `after`: what was so at any time since.
        `ended_after`: what ended after that run had begun, by the order of visits.
        """
        asked = spans.asked(
            host=host,
            check=check,
            run=None if run is None else self.run(run).id,
            after=after,
            ended_after=ended_after,
        )
        for rows in self._database.pages(asked, t.finding_span):
            yield from map(spans.span_of, rows)

    def standing(
        self, check: str, runs: Collection[str], *, host: str | None = None
    ) -> list[tuple[str, str, Verdict]]:
        """Where a check did not just pass in these runs: run, host, verdict."""
        with self._database.reading() as connection:
            return list(spans.standing(connection, check, runs, host))

    def begun(self, checks: Collection[str]) -> tuple[BegunTogether, ...]:
        """In which runs hosts began to fail one of the checks that they fail still."""
        with self._database.reading() as connection:
            return tuple(together.begun(connection, checks))

    def judged(self, run: str, host: str) -> Mapping[str, Verdict]:
        """Every key that was judged on a host in a run, with its verdict; the worst of several."""
        name = self.run(run).id
        with self._database.reading() as connection:
            passed = spans.judged(connection, name, host)
        return spans.worst(passed, self.spans(host=host, run=name))

    def passed(self, run: str, check: str, hosts: Iterable[str]) -> set[str]:
        """Those of these hosts on which a check was ok in a run, for some subject at least."""
        found: set[str] = set()
        left = iter(hosts)
        while some := list(islice(left, CHUNK)):
            with self._database.reading() as connection:
                found |= spans.passed(connection, run, check, some)
        return found

    def parts(self, text: str = "") -> list[Part]:
        """Parts by id, serial or part number as printed on them, or the beginning of an id; an
        exact one goes before all others. Empty: every part."""
        with self._database.reading() as connection:
            return parts.named(connection, text)

    def places(self, *, part: str | None = None, host: str | None = None) -> list[PartPlace]:
        """Where a part was, or what a host held, in the order in which it came there."""
        with self._database.reading() as connection:
            return parts.places(connection, part=part, host=host)

    def points(
        self, *, host: str | None = None, part: str | None = None, after: str | None = None
    ) -> Iterator[CounterPoint]:
        """The counters where they moved, in the order in which they did."""
        asked = parts.points(host=host, part=part, after=after)
        for rows in self._database.pages(asked, t.counter):
            yield from map(parts.point_of, rows)

    def record_plan(self, plan: RecordedPlan, text: bytes) -> None:
        """A plan of fixes with its text; one that is known stays. Raises StoreError."""
        with self._database.writing() as connection:
            fixes.record_plan(connection, plan, text)

    def plan_text(self, digest: str) -> bytes | None:
        """A recorded plan by its SHA-256; None if it was not recorded."""
        with self._database.reading() as connection:
            return fixes.plan_text(connection, digest)

    def plans(self, host: str | None = None) -> list[RecordedPlan]:
        """Oldest first; those for a host have its fixes alone."""
        with self._database.reading() as connection:
            return fixes.plans(connection, host)

    def record_fix_run(
        self,
        run: RecordedFixRun,
        actions: Sequence[RecordedAction],
        proofs: Sequence[FixProof] = (),
    ) -> None:
        """A run of fixes with what it changed, resource by resource, and what it proved; recorded
        again, it replaces what it was. Raises StoreError."""
        with self._database.writing() as connection:
            fixes.record_run(connection, run, actions, proofs)

    def fix_runs(
        self, *, host: str | None = None, limit: int | None = None, after: str | None = None
    ) -> list[RecordedFixRun]:
        """Newest first; those that came to a host have it alone. `after`: as of `runs`."""
        begun = None if after is None else instant(after)
        with self._database.reading() as connection:
            return fixes.runs(connection, host, limit, begun)

    def actions(self, host: str | None = None) -> list[RecordedAction]:
        """What runs of fixes changed, oldest first."""
        with self._database.reading() as connection:
            return fixes.actions(connection, host)

    def proofs(self, host: str | None = None) -> list[FixProof]:
        """What runs of fixes proved of the machines that were visited, oldest first."""
        with self._database.reading() as connection:
            return fixes.proofs(connection, host)

    def failed_fixes(
        self, outcomes: Collection[str], *, after: str, in_doubt: str
    ) -> list[FailedFix]:
        """Fixes that ended in one of these outcomes since then, once for each host and run.
        `in_doubt`: the outcome that does not count in a run without an end."""
        with self._database.reading() as connection:
            return fixes.failed(connection, outcomes, instant(after), in_doubt)

    def record_incident(self, hosts: Mapping[str, str], bundle: bytes, at: str) -> None:
        """A bundle of `nodevet diagnose`: the cause that it came to by host. Raises StoreError."""
        with self._database.writing() as connection:
            incidents.record(connection, hosts, bundle, at)

    def incidents(self, host: str | None = None) -> list[RecordedIncident]:
        """Oldest first."""
        with self._database.reading() as connection:
            return incidents.recorded(connection, host)

    def bundle(self, incident: RecordedIncident) -> bytes:
        """The bundle of an incident."""
        with self._database.reading() as connection:
            return content(connection, incident.bundle)

    def prune(self, policy: Retention, now: float | None = None) -> Pruned:
        """Let go of evidence by this policy, and of what nothing refers to any more; findings,
        parts, counters and what was judged stay. Raises StoreError."""
        before, moment = self.size(), time.time() if now is None else now
        with self._database.reading() as connection:
            hosts = pruning.hosts(connection)
        count = sum(
            self._database.in_turn(hosts, lambda c, some: pruning.thin(c, some, policy, moment))
        )
        with self._database.reading() as connection:
            found = pruning.unused(connection)
        gone = sum(
            self._database.in_turn(
                pruning.portions(found), lambda c, some: pruning.sweep(c, some, found)
            )
        )
        self._database.give_back()
        freed = max(0, before - self.size())
        return Pruned(thinned=count, blobs=gone, freed_b=freed)

    def prunable(self, policy: Retention, now: float | None = None) -> int:
        """How many visits would lose their evidence by this policy; nothing is written."""
        with self._database.reading() as connection:
            moment = time.time() if now is None else now
            return sum(
                pruning.thin(connection, some, policy, moment, dry_run=True)
                for some in pruning.hosts(connection)
            )

    def size(self) -> int:
        """Bytes on the disk."""
        return self._database.size()
