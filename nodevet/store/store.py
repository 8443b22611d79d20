"""The store: records by run, host, check, part and time."""

import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import TracebackType

from sqlalchemy import select, update

from nodevet.base.last_few import LastFew
from nodevet.model import HostOutcome, Status, Verdict
from nodevet.store import (
    fixes,
    incidents,
    latest,
    parts,
    pruning,
    runs,
    spans,
    together,
    unlike,
    visits,
)
from nodevet.store import schema as t
from nodevet.store.blobs import content
from nodevet.store.database import Database
from nodevet.store.engine import engine_of, store_errors
from nodevet.store.errors import StoreError
from nodevet.store.evidence import KeptEvidence, of_visits
from nodevet.store.moments import instant
from nodevet.store.preparing import PrepareApart, preparing_apart
from nodevet.store.recorder import Recorder
from nodevet.store.records.latest import HostNow, PartNow
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
from nodevet.store.urls import default_url, parse_url

CHUNK = 64  # visits whose evidence is in memory at once


def open_store(url: str | None = None, *, create: bool = True) -> "Store":
    """The store at a URL (None: the default one). Raises StoreError, also if there is none and
    `create` is False."""
    parsed = parse_url(url or default_url())
    engine = engine_of(parsed, create=create)
    try:
        with store_errors(parsed):
            upgrade(engine)
    except StoreError:
        engine.dispose()
        raise
    return Store(Database(engine, parsed))


class Store:
    """An open store: close it, or use it in a `with`. `Store.run` says how to name a run."""

    def __init__(self, database: Database) -> None:
        self._database = database

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

    def in_this_process(self) -> "Store":
        """The same with connections of its own, for a forked process. Raises StoreError."""
        return Store(self._database.in_this_process())

    def preparing_apart(self) -> PrepareApart:
        """For a forked process: prepares what Recorder.take_prepared writes, or None if the store
        cannot be read now; then the recorder does, and reports the error if there still is one."""
        try:
            return preparing_apart(self._database.in_this_process())
        except StoreError:
            return lambda *_: None

    @property
    def name(self) -> str:
        """Its name in messages: a path, or a URL without password."""
        return self._database.name

    def begin(self, run: RecordedRun, *, alone: bool = False) -> Recorder:
        """Record a run that begins now. Raises StoreError.

        `alone`: raises StoreHeldError if another run of this sweep goes on. If several begin at
        once, only one succeeds.
        """
        with self._database.writing() as connection:
            if alone:
                runs.refuse_running(connection, run.series)
            number = runs.begin(connection, run)
        return Recorder(self._database.engine, run=run, run_id=number)

    def resume(self, run: str) -> tuple[Recorder, frozenset[str]]:
        """Resume a run that did not end, and return the hosts that need no other visit.

        Raises StoreError if another process still records it, or if it is complete.
        """
        with self._database.writing() as connection:
            number, recorded = runs.resume(connection, run)
            statuses = visits.statuses(connection, number)
        done = frozenset(
            host for host, status in statuses.items() if status is not Status.INTERRUPTED
        )
        return Recorder(
            self._database.engine, run=recorded, run_id=number, seen=list(statuses)
        ), done

    def runs(
        self,
        *,
        series: str | None = None,
        limit: int | None = None,
        before: str | None = None,
        after: str | None = None,
    ) -> list[RecordedRun]:
        """The runs, newest first by the order of records. `before`: the id of a run; `after`: an
        ISO 8601 instant or day, inclusive."""
        with self._database.reading() as connection:
            return runs.list_runs(
                connection, series=series, limit=limit, before=before, after=after
            )

    def require_free(self, series: str) -> None:
        """Raises StoreHeldError if a run of this sweep goes on."""
        with self._database.reading() as connection:
            runs.refuse_running(connection, series)

    def run(self, ref: str = "last", *, series: str | None = None) -> RecordedRun:
        """The run of an id, the beginning of one, `last`, `last~2`, or a day (its last run).

        Raises StoreError.
        """
        with self._database.reading() as connection:
            return runs.find_run(connection, ref, series)

    def reported_with(self, run_id: str, exit_code: int) -> None:
        """Note that the reports of a run were written, and its exit code. Raises StoreError."""
        ended = update(t.run).where(t.run.c.name == run_id).values(exit_code=exit_code)
        with self._database.writing() as connection:
            connection.execute(ended)

    def last_reported(self, *, before: str, series: str | None = None) -> RecordedRun | None:
        """The newest run recorded before this one whose reports were written, by the order of
        records; None if there is none."""
        with self._database.reading() as connection:
            return runs.last_reported(connection, before, series)

    def reported_visits(self, hosts: Iterable[str], *, series: str | None = None) -> dict[str, int]:
        """The number of the last reported visit of each host, of this sweep or of any; without
        hosts that were never reported."""
        with self._database.reading() as connection:
            return visits.reported_visits(connection, hosts, series)

    def hosts(self) -> list[str]:
        """The names of all hosts, sorted."""
        with self._database.reading() as connection:
            return list(connection.execute(select(t.host.c.name).order_by(t.host.c.name)).scalars())

    def hosts_now(self) -> list[HostNow]:
        """Every host with its last visit, sorted by name."""
        with self._database.reading() as connection:
            return latest.hosts_now(connection)

    def parts_now(self) -> list[PartNow]:
        """Every name of every part, sorted, each with the host where the part was last."""
        with self._database.reading() as connection:
            return latest.parts_now(connection)

    def outcomes(self, runs: Collection[str]) -> Mapping[str, Mapping[str, HostOutcome]]:
        """By host, how each of these runs (ids) ended for it."""
        with self._database.reading() as connection:
            return latest.outcomes(connection, runs)

    def last_counter_changes(self, parts: Collection[str]) -> Mapping[str, int]:
        """By part (id), the number of the last change of a counter; without parts that have
        none."""
        with self._database.reading() as connection:
            return latest.last_counter_changes(connection, parts)

    def visits(self, run: str, hosts: Iterable[str] | None = None) -> Iterator[RecordedVisit]:
        """The visits of a run, in the order of records."""
        query = visits.select_visits(run=self.run(run).id, hosts=hosts)
        for rows in self._database.pages(query, t.visit):
            yield from map(visits.visit_of, rows)

    def visited_hosts(self, runs: Iterable[str]) -> dict[str, tuple[int, tuple[str, ...]]]:
        """The hosts that these runs (ids) reached: the number of visits, and the groups at the last
        one."""
        with self._database.reading() as connection:
            return visits.visited_hosts(connection, runs)

    def visits_of(
        self, host: str, *, after: str | None = None, limit: int | None = None
    ) -> list[RecordedVisit]:
        """The visits of one host, newest first."""
        query = visits.newest_first(visits.select_visits(host=host, after=after), limit)
        with self._database.reading() as connection:
            return [visits.visit_of(row) for row in connection.execute(query)]

    def evidence(
        self,
        run: str,
        *,
        hosts: Iterable[str] | None = None,
        sections: Iterable[str] | None = None,
    ) -> Iterator[tuple[RecordedVisit, bytes | None]]:
        """The visits of a run with their evidence: whole, or some sections without their times;
        None if it was not kept."""
        alike = None if sections is None else LastFew()
        for visit, kept in self.kept_evidence(run, hosts=hosts, sections=sections):
            yield visit, None if kept is None else kept.document(alike)

    def kept_evidence(
        self,
        run: str,
        *,
        hosts: Iterable[str] | None = None,
        sections: Iterable[str] | None = None,
    ) -> Iterator[tuple[RecordedVisit, KeptEvidence | None]]:
        """As `evidence`, but not joined."""
        query = visits.select_visits(run=self.run(run).id, hosts=hosts)
        section_names = None if sections is None else frozenset(sections)
        for rows in self._database.pages(query, t.visit):
            for offset in range(0, len(rows), CHUNK):
                chunk = rows[offset : offset + CHUNK]
                with self._database.reading() as connection:
                    evidence = of_visits(connection, [row.id for row in chunk], section_names)
                for row in chunk:
                    yield visits.visit_of(row), evidence.get(row.id)

    def nights(
        self, host: str, runs: Collection[str], sections: Collection[str] | None = None
    ) -> list[tuple[RecordedVisit, KeptEvidence | None]]:
        """The visits of one host in these runs (ids), as `kept`."""
        query = visits.select_visits(host=host, runs=runs).order_by(t.visit.c.id)
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
            evidence = of_visits(connection, [row.id for row in rows], sections)
        return [(visits.visit_of(row), evidence.get(row.id)) for row in rows]

    def unlike_hosts(
        self, before: str, after: str, sections: Iterable[str]
    ) -> Mapping[str, frozenset[str]]:
        """The hosts whose evidence may differ between two runs in more than readings, each with
        the sections that differ. All of them if a run did not vet it, or its evidence is not
        kept."""
        with self._database.reading() as connection:
            return unlike.unlike_hosts(connection, before, after, frozenset(sections))

    def holders(self, parts: Collection[str]) -> set[str]:
        """The hosts that ever held one of these parts, by their ids."""
        with self._database.reading() as connection:
            return unlike.holders(connection, parts)

    def last_evidence(
        self,
        host: str,
        before_run: str | None = None,
        *,
        series: str | None = None,
        reported: bool = False,
    ) -> tuple[RecordedVisit, bytes] | None:
        """The last visit of a host before a run, and its evidence; None if no evidence is kept.

        `series`: only runs of this sweep. `reported`: only runs whose reports were written.
        """
        with self._database.reading() as connection:
            run_id = None
            if before_run is not None:
                run_id = connection.execute(runs.id_of(before_run)).scalar()
            query = visits.last_with_evidence(
                host, before_run=run_id, series=series, reported=reported
            )
            row = connection.execute(query).first()
            if row is None:
                return None
            return visits.visit_of(row), of_visits(connection, [row.id])[row.id].document()

    def spans(
        self,
        *,
        host: str | None = None,
        check: str | None = None,
        run: str | None = None,
        after: str | None = None,
        ended_after: str | None = None,
        unjudged: bool = False,
    ) -> Iterator[FindingSpan]:
        """Findings as spans of time, in the order in which they began.

        `run`: the findings of that run; with `unjudged`, those that had not ended on hosts that it
        could not judge. `after`: findings that lasted at any time since. `ended_after`: findings
        that ended after that run had begun, by the order of visits.
        """
        query = spans.select_spans(
            host=host,
            check=check,
            run=None if run is None else self.run(run).id,
            after=after,
            ended_after=ended_after,
            unjudged=unjudged,
        )
        for rows in self._database.pages(query, t.finding_span):
            yield from map(spans.span_of, rows)

    def standing_verdicts(
        self, check: str, runs: Collection[str], *, host: str | None = None
    ) -> list[tuple[str, str, Verdict]]:
        """The runs and hosts on which a check was not just ok, with its verdicts."""
        with self._database.reading() as connection:
            return list(spans.standing_verdicts(connection, check, runs, host))

    def begun_together(self, checks: Collection[str]) -> tuple[BegunTogether, ...]:
        """The runs in which hosts began to fail one of these checks that they still fail."""
        with self._database.reading() as connection:
            return tuple(together.begun_together(connection, checks))

    def check_verdicts(self, run: str, host: str) -> Mapping[str, Verdict]:
        """The verdicts of a host in a run by key; the worst if a key has several."""
        name = self.run(run).id
        with self._database.reading() as connection:
            passed = spans.check_verdicts(connection, name, host)
        return spans.worst_verdicts(passed, self.spans(host=host, run=name))

    def passed_hosts(self, run: str, check: str, hosts: Iterable[str]) -> set[str]:
        """The hosts on which a check was ok in a run, for at least one subject."""
        passing: set[str] = set()
        remaining = iter(hosts)
        while chunk := list(islice(remaining, CHUNK)):
            with self._database.reading() as connection:
                passing |= spans.passed_hosts(connection, run, check, chunk)
        return passing

    def parts(self, text: str = "") -> list[Part]:
        """Parts by id, serial number or part number; if none matches exactly, by the beginning of
        an id. An empty text matches every part."""
        with self._database.reading() as connection:
            return parts.find_parts(connection, text)

    def places(self, *, part: str | None = None, host: str | None = None) -> list[PartPlace]:
        """The places of a part, or of the parts of a host, in the order of arrival."""
        with self._database.reading() as connection:
            return parts.places(connection, part=part, host=host)

    def points(
        self, *, host: str | None = None, part: str | None = None, after: str | None = None
    ) -> Iterator[CounterPoint]:
        """Each change of a counter, in order."""
        query = parts.points(host=host, part=part, after=after)
        for rows in self._database.pages(query, t.counter):
            yield from map(parts.point_of, rows)

    def record_plan(self, plan: RecordedPlan, text: bytes) -> None:
        """Record a plan of fixes with its text, unless it is recorded already. Raises
        StoreError."""
        with self._database.writing() as connection:
            fixes.record_plan(connection, plan, text)

    def plan_text(self, digest: str) -> bytes | None:
        """The text of a plan by its SHA-256; None if it was not recorded."""
        with self._database.reading() as connection:
            return fixes.plan_text(connection, digest)

    def plans(self, host: str | None = None) -> list[RecordedPlan]:
        """The plans, oldest first; with `host` only those for it, and only its fixes."""
        with self._database.reading() as connection:
            return fixes.plans(connection, host)

    def record_fix_run(
        self,
        run: RecordedFixRun,
        actions: Sequence[RecordedAction],
        proofs: Sequence[FixProof] = (),
    ) -> None:
        """Record a run of fixes with its actions and proofs, replacing an earlier record of it.
        Raises StoreError."""
        with self._database.writing() as connection:
            fixes.record_run(connection, run, actions, proofs)

    def fix_runs(
        self, *, host: str | None = None, limit: int | None = None, after: str | None = None
    ) -> list[RecordedFixRun]:
        """The runs of fixes, newest first; with `host` only those that reached it, and only with
        it. `after`: see `runs`."""
        started_after = None if after is None else instant(after)
        with self._database.reading() as connection:
            return fixes.runs(connection, host, limit, started_after)

    def actions(self, host: str | None = None) -> list[RecordedAction]:
        """The actions of runs of fixes, oldest first."""
        with self._database.reading() as connection:
            return fixes.actions(connection, host)

    def proofs(self, host: str | None = None) -> list[FixProof]:
        """The proofs of runs of fixes, oldest first, without those of replaced machines."""
        with self._database.reading() as connection:
            return fixes.proofs(connection, host)

    def failed_fixes(
        self, outcomes: Collection[str], *, after: str, in_doubt: str
    ) -> list[FailedFix]:
        """Fixes that ended with one of these outcomes since `after`, once for each host and run.
        `in_doubt`: the outcome that does not count in a run without an end."""
        with self._database.reading() as connection:
            return fixes.failed_fixes(connection, outcomes, instant(after), in_doubt)

    def record_incident(self, hosts: Mapping[str, str], bundle: bytes, at: str) -> None:
        """Record a bundle of `nodevet diagnose`, with the cause of each host. Raises StoreError."""
        with self._database.writing() as connection:
            incidents.record(connection, hosts, bundle, at)

    def incidents(self, host: str | None = None) -> list[RecordedIncident]:
        """The incidents, oldest first."""
        with self._database.reading() as connection:
            return incidents.incidents(connection, host)

    def bundle(self, incident: RecordedIncident) -> bytes:
        """The bundle of an incident."""
        with self._database.reading() as connection:
            return content(connection, incident.bundle)

    def prune(self, policy: Retention, now: float | None = None) -> Pruned:
        """Delete evidence that the policy does not keep, and blobs that nothing refers to any more.
        Findings, parts, counters and verdicts stay. Raises StoreError."""
        before, moment = self.size(), time.time() if now is None else now
        with self._database.reading() as connection:
            hosts = pruning.hosts(connection)
        count = sum(
            self._database.in_turn(
                hosts, lambda c, portion: pruning.thin(c, portion, policy, moment)
            )
        )
        with self._database.reading() as connection:
            unused = pruning.unused_blobs(connection)
        deleted = sum(
            self._database.in_turn(
                pruning.portions(unused), lambda c, portion: pruning.sweep(c, portion, unused)
            )
        )
        self._database.give_back()
        freed = max(0, before - self.size())
        return Pruned(thinned=count, blobs=deleted, freed_b=freed)

    def count_prunable(self, policy: Retention, now: float | None = None) -> int:
        """The number of visits that `prune` would take the evidence from."""
        with self._database.reading() as connection:
            moment = time.time() if now is None else now
            return sum(
                pruning.thin(connection, portion, policy, moment, dry_run=True)
                for portion in pruning.hosts(connection)
            )

    def size(self) -> int:
        """Its size in bytes."""
        return self._database.size()
