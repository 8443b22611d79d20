"""The store: what was recorded, asked for by run, host, check, part and time."""

import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Select, Table, case, delete, func, insert, or_, select, update
from sqlalchemy.engine import URL, Engine

from nodevet import age, typed
from nodevet.history.model import (
    BegunTogether,
    CounterPoint,
    FindingSpan,
    Moment,
    Part,
    PartKind,
    PartPlace,
    RecordedAction,
    RecordedIncident,
    RecordedRun,
    RecordedVisit,
    RunState,
    SpanEnd,
)
from nodevet.history.retention import Pruned, Retention
from nodevet.history.spans import judged_keys
from nodevet.model import Finding, HostOutcome, Severity, Status, Verdict
from nodevet.problems import did_you_mean
from nodevet.store import blobs, documents, pruning, together
from nodevet.store import schema as t
from nodevet.store.engine import default_url, engine_of, parsed, shown, told
from nodevet.store.errors import StoreError
from nodevet.store.owner import is_gone, this_process
from nodevet.store.reading import contents
from nodevet.store.recorder import Recorder
from nodevet.store.text import encoded, plain
from nodevet.store.upgrade import upgrade

MOST_OF_A_STATE = 4000  # characters
if TYPE_CHECKING:
    from nodevet.resource import State
    from nodevet.result import Result, StepResult

CHUNK = 64  # visits whose evidence is in memory at once
_LAST = re.compile(r"last(?:~(\d{1,6}))?")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def open_store(url: str | None = None, *, create: bool = True) -> "Store":
    """The store at a URL; None: the user's own. Raises StoreError, also if there is none and it is
    not to be made."""
    place = parsed(url or default_url())
    engine = engine_of(place, create=create)
    with told(place):
        upgrade(engine)
    return Store(engine, place)


class Store:
    """Close it, or use it in a `with`."""

    def __init__(self, engine: Engine, url: URL) -> None:
        self._engine = engine
        self._url = url

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
        self._engine.dispose()

    @property
    def name(self) -> str:
        """As messages say it: a path, or a URL without its password."""
        return shown(self._url)

    def begin(
        self, run: RecordedRun, baselines_text: Mapping[str, bytes] | None = None
    ) -> Recorder:
        """Record a run that begins now. Raises StoreError."""
        started = age.seconds_of(run.started)
        with self._writing() as connection:
            number = (connection.execute(select(func.max(t.run.c.id))).scalar() or 0) + 1
            connection.execute(
                insert(t.run).values(
                    id=number,
                    name=run.id,
                    series=plain(run.series),
                    started=time.time() if started is None else started,
                    began=run.started,
                    seconds=run.seconds,
                    state=RunState.RUNNING.value,
                    nodevet=run.nodevet,
                    fail_on=run.fail_on.value,
                    hosts=run.hosts,
                    visited=0,
                    outcomes=b"{}",
                    owner=this_process(),
                    touched=time.time(),
                    exit_code=run.exit_code,
                    baselines=encoded(dict(run.baselines)),
                )
            )
            for text in (baselines_text or {}).values():
                _keep(connection, text)
        return Recorder(self._engine, run=run, run_id=number)

    def resume(self, run_id: str) -> tuple[Recorder, frozenset[str]]:
        """Go on with a run that did not end; the hosts that need no visit any more.

        Raises StoreError for one that another process still records, or that is complete.
        """
        run = self.run(run_id)
        if run.state is RunState.COMPLETE:
            raise StoreError(f"run {run.id} is complete: there is nothing left to visit")
        if run.state is RunState.RUNNING:
            raise StoreError(f"run {run.id} is still being recorded by another process")
        with self._writing() as connection:
            row = connection.execute(select(t.run).where(t.run.c.name == run.id)).one()
            if _run(row).state is RunState.RUNNING:
                raise StoreError(f"run {run.id} is being recorded by another process since now")
            number = int(row.id)
            connection.execute(
                update(t.run)
                .where(t.run.c.id == number)
                .values(state=RunState.RUNNING.value, owner=this_process(), touched=time.time())
            )
            rows = connection.execute(
                select(t.host.c.name, t.visit.c.status)
                .join(t.visit, t.visit.c.host == t.host.c.id)
                .where(t.visit.c.run == number, t.visit.c.superseded.is_(False))
            ).all()
        recorder = Recorder(self._engine, run=run, run_id=number, seen=[row.name for row in rows])
        done = frozenset(row.name for row in rows if row.status != Status.INTERRUPTED.value)
        return recorder, done

    def runs(
        self,
        *,
        series: str | None = None,
        limit: int | None = None,
        before: str | None = None,
        after: str | None = None,
    ) -> list[RecordedRun]:
        """Newest first. `before` and `after` are ISO 8601 instants or days; `after` is included."""
        asked = select(t.run).order_by(t.run.c.started.desc(), t.run.c.id.desc())
        if series is not None:
            asked = asked.where(t.run.c.series == series)
        if before is not None:
            asked = asked.where(t.run.c.started < _instant(before))
        if after is not None:
            asked = asked.where(t.run.c.started >= _instant(after))
        if limit is not None:
            asked = asked.limit(limit)
        with self._reading() as connection:
            return [_run(row) for row in connection.execute(asked)]

    def running(self, series: str) -> tuple[RecordedRun, str] | None:
        """The run of a sweep that goes on, and who records it: `process PID on HOST`."""
        asked = select(t.run).where(
            t.run.c.series == plain(series), t.run.c.state == RunState.RUNNING.value
        )
        with self._reading() as connection:
            for row in connection.execute(asked):
                if (found := _run(row)).state is RunState.RUNNING:
                    host, pid, _ = row.owner.rsplit(" ", 2)
                    return found, f"process {pid} on {host}"
        return None

    def run(self, ref: str = "last", *, series: str | None = None) -> RecordedRun:
        """By id, the beginning of one, `last`, `last~2`, or a day: the last run of it.

        Raises StoreError.
        """
        asked = select(t.run).order_by(t.run.c.started.desc(), t.run.c.id.desc())
        if series is not None:
            asked = asked.where(t.run.c.series == series)
        if found := _LAST.fullmatch(ref):
            back = int(found[1] or 0)
            asked = asked.offset(back).limit(1)
            hint = "`nodevet runs` lists what was recorded"
        elif _DAY.fullmatch(ref):
            begin = _instant(ref)
            end = begin + 86400.0
            asked = asked.where(t.run.c.started >= begin, t.run.c.started < end).limit(1)
            hint = "`nodevet runs` lists what was recorded, each with its day"
        else:
            exact = t.run.c.name == plain(ref)
            begins = t.run.c.name.startswith(plain(ref), autoescape=True)
            asked = asked.where(or_(exact, begins)).limit(20)
            hint = "`nodevet runs` lists what was recorded; `last` is the last run"
        with self._reading() as connection:
            rows = connection.execute(asked).all()
            if not rows:
                names = connection.execute(select(t.run.c.name)).scalars().all()
                told_near = did_you_mean(ref, names)
                raise StoreError(f"{self.name}: no run {ref!r}{told_near}; {hint}")
        exactly = [row for row in rows if row.name == ref]
        if len(rows) > 1 and not exactly:
            listed = ", ".join(row.name for row in rows[:4])
            raise StoreError(f"{self.name}: {ref!r} is the beginning of several runs: {listed}")
        return _run((exactly or rows)[0])

    def visits(self, run: str, hosts: Iterable[str] | None = None) -> Iterator[RecordedVisit]:
        """The hosts of a run, in the order in which they were recorded."""
        asked = _VISITS.where(t.run.c.name == self.run(run).id, t.visit.c.superseded.is_(False))
        if hosts is not None:
            asked = asked.where(t.host.c.name.in_([plain(host) for host in hosts]))
        for rows in self._chunks(asked):
            yield from map(_visit, rows)

    def visits_of(
        self, host: str, *, after: str | None = None, limit: int | None = None
    ) -> list[RecordedVisit]:
        """Of one host, newest first."""
        asked = (
            _VISITS.where(t.host.c.name == plain(host), t.visit.c.superseded.is_(False))
            .order_by(None)
            .order_by(t.visit.c.id.desc())
        )
        if after is not None:
            asked = asked.where(t.visit.c.at >= _instant(after))
        if limit is not None:
            asked = asked.limit(limit)
        with self._reading() as connection:
            return [_visit(row) for row in connection.execute(asked)]

    def hosts(self) -> list[str]:
        """Every host that was ever visited, by name."""
        with self._reading() as connection:
            return list(connection.execute(select(t.host.c.name).order_by(t.host.c.name)).scalars())

    def evidence(
        self,
        run: str,
        *,
        hosts: Iterable[str] | None = None,
        sections: Iterable[str] | None = None,
    ) -> Iterator[tuple[RecordedVisit, bytes | None]]:
        """The visits of a run with their evidence, of some sections or whole; in bounded memory."""
        asked = _VISITS.where(t.run.c.name == self.run(run).id, t.visit.c.superseded.is_(False))
        if hosts is not None:
            asked = asked.where(t.host.c.name.in_([plain(host) for host in hosts]))
        yield from self._evidence_of(asked, sections)

    def evidence_of(
        self,
        host: str,
        *,
        sections: Iterable[str] | None = None,
        after: str | None = None,
        before: str | None = None,
    ) -> Iterator[tuple[RecordedVisit, bytes | None]]:
        """The visits of one host with their evidence, oldest first."""
        asked = _VISITS.where(t.host.c.name == plain(host), t.visit.c.superseded.is_(False))
        if after is not None:
            asked = asked.where(t.visit.c.at >= _instant(after))
        if before is not None:
            asked = asked.where(t.visit.c.at < _instant(before))
        yield from self._evidence_of(asked, sections)

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
        asked = (
            _VISITS.where(t.host.c.name == plain(host), t.visit.c.volatile.is_not(None))
            .order_by(None)
            .order_by(t.visit.c.id.desc())
            .limit(1)
        )
        if before_run is not None:
            with self._reading() as connection:
                number = connection.execute(_run_id(before_run)).scalar()
            if number is not None:
                asked = asked.where(t.run.c.id < number)
        if series is not None:
            asked = asked.where(t.run.c.series == plain(series))
        if reported:
            asked = asked.where(t.run.c.exit_code.is_not(None))
        for visit, document in self._evidence_of(asked, None):
            if document is not None:
                return visit, document
        return None

    def reported_with(self, run_id: str, exit_code: int) -> None:
        """The reports of a run were written, and this is what it came to. Raises StoreError."""
        ended = update(t.run).where(t.run.c.name == run_id).values(exit_code=exit_code)
        with self._writing() as connection:
            connection.execute(ended)

    def last_reported(self, *, before: str, series: str | None = None) -> RecordedRun | None:
        """The run that was recorded last before this one and came to its reports; by the order in
        which they were recorded, whatever the clock said."""
        asked = select(t.run).where(t.run.c.exit_code.is_not(None), t.run.c.name != before)
        if series is not None:
            asked = asked.where(t.run.c.series == plain(series))
        with self._reading() as connection:
            number = connection.execute(_run_id(before)).scalar()
            if number is not None:
                asked = asked.where(t.run.c.id < number)
            row = connection.execute(asked.order_by(t.run.c.id.desc()).limit(1)).one_or_none()
        return None if row is None else _run(row)

    def reported(self, hosts: Iterable[str], *, series: str | None = None) -> dict[str, int]:
        """In which visit each of these hosts was reported last, of this sweep or of any: its
        number; without those that never were."""
        last = (
            select(func.max(t.visit.c.id).label("id"), t.host.c.name.label("host"))
            .select_from(
                t.visit.join(t.run, t.run.c.id == t.visit.c.run).join(
                    t.host, t.host.c.id == t.visit.c.host
                )
            )
            .where(
                t.run.c.exit_code.is_not(None),
                t.visit.c.superseded.is_(False),
                t.visit.c.status != Status.INTERRUPTED.value,
            )
            .group_by(t.host.c.name)
        )
        if series is not None:
            last = last.where(t.run.c.series == plain(series))
        names = {plain(host): host for host in hosts}
        found: dict[str, int] = {}
        listed = list(names)
        with self._reading() as connection:
            for begin in range(0, len(listed), CHUNK):
                some = last.where(t.host.c.name.in_(listed[begin : begin + CHUNK]))
                found |= {names[row.host]: row.id for row in connection.execute(some)}
        return found

    def spans(
        self,
        *,
        host: str | None = None,
        check: str | None = None,
        run: str | None = None,
        open_only: bool = False,
        after: str | None = None,
        before: str | None = None,
        key: str | None = None,
        ended_after: str | None = None,
    ) -> Iterator[FindingSpan]:
        """What was found, for as long as it stayed the same, in the order in which it began.

        `run`: what was so in that run. `after`, `before`: what was so at any time between.
        `ended_after`: what ended after that run had begun, by the order of visits.
        """
        span = t.finding_span
        asked = _SPANS.order_by(span.c.id)
        if host is not None:
            asked = asked.where(t.host.c.name == plain(host))
        if check is not None:
            asked = asked.where(span.c.check == plain(check))
        if key is not None:
            asked = asked.where(span.c.key == key)
        if open_only:
            asked = asked.where(span.c.ended.is_(None))
        if after is not None:
            asked = asked.where(_LAST_MOMENT.c.at >= _instant(after))
        if before is not None:
            asked = asked.where(_FIRST.c.at < _instant(before))
        if ended_after is not None:
            first = select(func.min(t.visit.c.id)).where(
                t.visit.c.run == _run_id(ended_after).scalar_subquery()
            )
            asked = asked.where(span.c.ended > first.scalar_subquery())
        if run is not None:
            seen = t.visit.alias("seen")
            asked = asked.where(
                select(seen.c.id)
                .join(t.run, t.run.c.id == seen.c.run)
                .where(
                    t.run.c.name == self.run(run).id,
                    seen.c.host == span.c.host,
                    seen.c.superseded.is_(False),
                    seen.c.id >= span.c.first,
                    or_(span.c.ended.is_(None), seen.c.id <= span.c.last),
                    or_(
                        seen.c.baseline == span.c.baseline,
                        (span.c.check == "")
                        & seen.c.baseline.is_(None)
                        & (seen.c.status != Status.INTERRUPTED.value),
                    ),
                    or_(span.c.check == "", seen.c.baseline.is_not(None)),
                )
                .exists()
            )
        for rows in self._chunks(asked):
            yield from map(_span, rows)

    def begun(self, checks: Collection[str]) -> tuple[BegunTogether, ...]:
        """In which runs hosts began to fail one of the checks that they fail still."""
        with self._reading() as connection:
            return tuple(together.begun(connection, checks))

    def judged(self, run: str, host: str) -> Mapping[str, Verdict]:
        """Every key that was judged on a host in a run, with its verdict; the worst of several."""
        name = self.run(run).id
        asked = select(t.visit.c.judged).where(
            t.visit.c.run == _run_id(name).scalar_subquery(),
            t.visit.c.host
            == select(t.host.c.id).where(t.host.c.name == plain(host)).scalar_subquery(),
            t.visit.c.superseded.is_(False),
        )
        found: dict[str, Verdict] = {}
        with self._reading() as connection:
            blob = connection.execute(asked).scalar()
            if blob is not None:
                listed = typed.decode(
                    contents(connection, [blob])[blob], dict[str, list[tuple[str, str, str]]]
                )
                for verdict in (Verdict.NOT_APPLICABLE, Verdict.OK):
                    found |= dict.fromkeys(judged_keys(listed[verdict.value]), verdict)
        order = [Verdict.WAIVED, Verdict.UNKNOWN, Verdict.FAIL]
        spans = [each for each in self.spans(host=host, run=run) if each.check]
        for each in sorted(spans, key=lambda span: order.index(span.verdict)):
            found[each.key] = each.verdict
        return found

    def parts(self, text: str = "") -> list[Part]:
        """Parts by id, serial or part number as printed on them, or the beginning of an id; an
        exact one goes before all others. Empty: every part."""
        found = plain(text)
        with self._reading() as connection:
            rows = connection.execute(select(t.part).order_by(t.part.c.id)).all()
        listed = [_part(row) for row in rows]
        if not found:
            return listed
        exact = [each for each in listed if found.lower() in (each.id.lower(), *_lower(each.names))]
        return exact or [each for each in listed if each.id.lower().startswith(found.lower())]

    def places(self, *, part: str | None = None, host: str | None = None) -> list[PartPlace]:
        """Where a part was, or what a host held, in the order in which it came there."""
        asked = _PLACES.order_by(t.place.c.first, t.place.c.id)
        if part is not None:
            asked = asked.where(t.part.c.name == plain(part))
        if host is not None:
            asked = asked.where(t.host.c.name == plain(host))
        with self._reading() as connection:
            return [_place(row) for row in connection.execute(asked)]

    def points(
        self,
        *,
        host: str | None = None,
        part: str | None = None,
        name: str | None = None,
        after: str | None = None,
    ) -> Iterator[CounterPoint]:
        """The counters where they moved, in the order in which they did."""
        asked = _POINTS.order_by(t.counter.c.id)
        if host is not None:
            asked = asked.where(t.host.c.name == plain(host))
        if part is not None:
            asked = asked.where(t.part.c.name == plain(part))
        if name is not None:
            asked = asked.where(t.counter.c.name == name)
        if after is not None:
            asked = asked.where(t.visit.c.at >= _instant(after))
        for rows in self._chunks(asked):
            yield from map(_point, rows)

    def field(
        self,
        path: str,
        *,
        host: str | None = None,
        runs: Iterable[str] | None = None,
        after: str | None = None,
    ) -> Iterator[tuple[RecordedVisit, tuple[tuple[str, Any], ...]]]:
        """A field of the evidence per visit, oldest first: `gpu.gpus[].temperature_gpu_c`.

        Each value stands with what names its place: `gpus[0]`. Raises StoreError for a path
        without a section.
        """
        section, _, inner = path.partition(".")
        if not inner:
            raise StoreError(
                f"{path!r} names no field: SECTION.FIELD, gpu.gpus[].temperature_gpu_c"
            )
        asked = _VISITS.where(t.visit.c.volatile.is_not(None), t.visit.c.superseded.is_(False))
        if host is not None:
            asked = asked.where(t.host.c.name == plain(host))
        if runs is not None:
            asked = asked.where(t.run.c.name.in_(list(runs)))
        if after is not None:
            asked = asked.where(t.visit.c.at >= _instant(after))
        for visit, text in self._evidence_of(asked, [section]):
            found = None if text is None else documents.section(text, section)
            if found is not None:
                yield visit, tuple(_at(found.get("data"), inner.split("."), ""))

    def record_plan(self, digest: str, text: bytes, created: str) -> None:
        """A plan of fixes, by its SHA-256. Raises StoreError."""
        with self._writing() as connection:
            known = select(t.plan.c.id).where(t.plan.c.sha256 == digest)
            if connection.execute(known).scalar() is None:
                connection.execute(
                    insert(t.plan).values(
                        id=_next(connection, t.plan),
                        sha256=digest,
                        created=_instant(created),
                        text=_keep(connection, text),
                    )
                )

    def plan_text(self, digest: str) -> bytes | None:
        """A recorded plan; None if it was not recorded."""
        with self._reading() as connection:
            blob = connection.execute(
                select(t.plan.c.text).where(t.plan.c.sha256 == digest)
            ).scalar()
            return None if blob is None else contents(connection, [blob])[blob]

    def record_result(self, result: "Result", run: str) -> None:
        """What a run of fixes changed, resource by resource; recorded again, it replaces what it
        was. Raises StoreError."""
        with self._writing() as connection:
            connection.execute(delete(t.action).where(t.action.c.run == plain(run)))
            number = _next(connection, t.action)
            rows: list[dict[str, Any]] = []
            for host in result.hosts:
                known = _host_id(connection, host.host) if host.steps else 0
                for step in host.steps:
                    for resource, before, after in _changes(step):
                        rows.append(
                            {
                                "id": number + len(rows),
                                "run": plain(run),
                                "plan": result.digest,
                                "host": known,
                                "step": plain(step.id),
                                "resource": plain(resource),
                                "before": plain(before),
                                "after": plain(after),
                                "outcome": step.outcome.value,
                                "at": _instant(result.started),
                            }
                        )
            if rows:
                connection.execute(insert(t.action), rows)

    def actions(self, *, host: str | None = None, part: str | None = None) -> list[RecordedAction]:
        """What fixes changed, oldest first; of a part: on the hosts where it was, meanwhile."""
        asked = (
            select(t.action, t.host.c.name.label("host_name"))
            .join(t.host, t.host.c.id == t.action.c.host)
            .order_by(t.action.c.at, t.action.c.id)
        )
        if host is not None:
            asked = asked.where(t.host.c.name == plain(host))
        with self._reading() as connection:
            found = [_action(row) for row in connection.execute(asked)]
        if part is None:
            return found
        places = self.places(part=part)
        return [
            each
            for each in found
            if any(
                each.host == place.host
                and place.first.at <= each.at
                and (place.open or each.at <= place.last.at)
                for place in places
            )
        ]

    def record_incident(self, hosts: Mapping[str, str], bundle: bytes, at: str) -> None:
        """A bundle of `nodevet diagnose`: the cause that it came to by host. Raises StoreError."""
        with self._writing() as connection:
            kept, number = _keep(connection, bundle), _next(connection, t.incident)
            rows = [
                {
                    "id": number + place,
                    "host": _host_id(connection, host),
                    "at": _instant(at),
                    "cause": plain(cause),
                    "bundle": kept,
                }
                for place, (host, cause) in enumerate(hosts.items())
            ]
            if rows:
                connection.execute(insert(t.incident), rows)

    def incidents(self, host: str | None = None) -> list[RecordedIncident]:
        """Oldest first."""
        asked = (
            select(t.incident, t.host.c.name.label("host_name"))
            .join(t.host, t.host.c.id == t.incident.c.host)
            .order_by(t.incident.c.at, t.incident.c.id)
        )
        if host is not None:
            asked = asked.where(t.host.c.name == plain(host))
        with self._reading() as connection:
            return [
                RecordedIncident(
                    host=row.host_name, at=age.instant(row.at), cause=row.cause, bundle=row.bundle
                )
                for row in connection.execute(asked)
            ]

    def bundle(self, incident: RecordedIncident) -> bytes:
        """The bundle of an incident."""
        with self._reading() as connection:
            return contents(connection, [incident.bundle])[incident.bundle]

    def prune(self, policy: Retention, now: float | None = None) -> Pruned:
        """Let go of evidence by this policy, and of what nothing refers to any more; findings,
        parts, counters and what was judged stay. Raises StoreError."""
        before = self.size()
        with self._writing() as connection:
            count = pruning.thin(connection, policy, time.time() if now is None else now)
            gone = pruning.sweep(connection)
        self._give_back()
        freed = max(0, before - self.size())
        return Pruned(thinned=count, blobs=gone, freed_b=freed)

    def prunable(self, policy: Retention, now: float | None = None) -> int:
        """How many visits would lose their evidence by this policy; nothing is written."""
        with self._reading() as connection:
            moment = time.time() if now is None else now
            return pruning.thin(connection, policy, moment, dry_run=True)

    def size(self) -> int:
        """Bytes on the disk."""
        with self._reading() as connection:
            if self._url.drivername == "sqlite":
                path = Path(str(self._url.database))
                files = (path, path.with_name(f"{path.name}-wal"))
                return sum(each.stat().st_size for each in files if each.exists())
            return int(connection.execute(_DATABASE_SIZE).scalar() or 0)

    def _give_back(self) -> None:
        """Free pages go back to the file system; PostgreSQL's own vacuum sees to its own."""
        if self._url.drivername != "sqlite":
            return
        with told(self._url), self._engine.connect() as connection:
            raw = connection.connection.cursor()
            raw.execute("PRAGMA incremental_vacuum")
            raw.fetchall()
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            raw.close()

    def baseline_text(self, sha256: str) -> bytes | None:
        """The text of a baseline that a run was judged by; see RecordedRun.baselines."""
        with self._reading() as connection:
            row = connection.execute(
                select(t.blob.c.id).where(t.blob.c.sha256 == bytes.fromhex(sha256))
            ).scalar()
            return None if row is None else contents(connection, [row])[row]

    def _evidence_of(
        self, asked: Select[Any], sections: Iterable[str] | None
    ) -> Iterator[tuple[RecordedVisit, bytes | None]]:
        wanted = None if sections is None else frozenset(sections)
        for rows in self._chunks(asked):
            with self._reading() as connection:
                documents_of = _documents(connection, rows, wanted)
            for row in rows:
                yield _visit(row), documents_of.get(row.id)

    def _chunks(self, asked: Select[Any]) -> Iterator[Sequence[Any]]:
        """Rows, some at a time; each time in a transaction of its own that has ended when they are
        given, so that a reader that takes its time holds nothing up."""
        with self._reading() as connection:
            rows = connection.execute(asked).all()
        for begin in range(0, len(rows), CHUNK):
            yield rows[begin : begin + CHUNK]

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with told(self._url), self._engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        writes = self._engine.execution_options(writes=True)
        with told(self._url), writes.begin() as connection:
            yield connection


_DATABASE_SIZE = select(func.pg_database_size(func.current_database()))
_FIRST = t.visit.alias("first_visit")
_FIRST_RUN = t.run.alias("first_run")
_LAST_MOMENT = t.visit.alias("last_visit")
_LAST_RUN = t.run.alias("last_run")
_SINCE = t.visit.alias("since_visit")
_SINCE_RUN = t.run.alias("since_run")
_ENDED = t.visit.alias("ended_visit")
_ENDED_RUN = t.run.alias("ended_run")
_SEEN = t.visit.alias("seen_visit")
_LAST_SEEN = (
    select(func.max(_SEEN.c.id))
    .where(_SEEN.c.host == t.finding_span.c.host, _SEEN.c.baseline == t.finding_span.c.baseline)
    .correlate(t.finding_span)
    .scalar_subquery()
)
_LAST_UNSEEN = (
    select(func.max(_SEEN.c.id))
    .where(
        _SEEN.c.host == t.finding_span.c.host,
        _SEEN.c.baseline.is_(None),
        _SEEN.c.status != Status.INTERRUPTED.value,
    )
    .correlate(t.finding_span)
    .scalar_subquery()
)
_SPANS = select(
    t.finding_span,
    t.host.c.name.label("host_name"),
    t.baseline.c.name.label("baseline_name"),
    t.finding_text.c.finding,
    _FIRST.c.at.label("first_at"),
    _FIRST_RUN.c.name.label("first_run"),
    _LAST_MOMENT.c.at.label("last_at"),
    _LAST_RUN.c.name.label("last_run"),
    _SINCE.c.at.label("since_at"),
    _SINCE_RUN.c.name.label("since_run"),
    _ENDED.c.at.label("ended_at"),
    _ENDED_RUN.c.name.label("ended_run"),
).select_from(
    t.finding_span.join(t.host, t.host.c.id == t.finding_span.c.host)
    .join(t.baseline, t.baseline.c.id == t.finding_span.c.baseline)
    .outerjoin(t.finding_text, t.finding_text.c.id == t.finding_span.c.text)
    .join(_FIRST, _FIRST.c.id == t.finding_span.c.first)
    .join(_FIRST_RUN, _FIRST_RUN.c.id == _FIRST.c.run)
    .join(
        _LAST_MOMENT,
        _LAST_MOMENT.c.id
        == func.coalesce(
            t.finding_span.c.last,
            case((t.finding_span.c.check != "", _LAST_SEEN), else_=_LAST_UNSEEN),
        ),
    )
    .join(_LAST_RUN, _LAST_RUN.c.id == _LAST_MOMENT.c.run)
    .outerjoin(_SINCE, _SINCE.c.id == t.finding_span.c.since)
    .outerjoin(_SINCE_RUN, _SINCE_RUN.c.id == _SINCE.c.run)
    .outerjoin(_ENDED, _ENDED.c.id == t.finding_span.c.ended)
    .outerjoin(_ENDED_RUN, _ENDED_RUN.c.id == _ENDED.c.run)
)
_VISITS = (
    select(
        t.visit,
        t.run.c.name.label("run_name"),
        t.host.c.name.label("host_name"),
        t.baseline.c.name.label("baseline_name"),
        t.grouping.c.names.label("group_names"),
        t.boot.c.machine_id.label("boot_machine"),
        t.boot.c.boot_id,
    )
    .select_from(
        t.visit.join(t.run, t.run.c.id == t.visit.c.run)
        .join(t.host, t.host.c.id == t.visit.c.host)
        .outerjoin(t.baseline, t.baseline.c.id == t.visit.c.baseline)
        .outerjoin(t.grouping, t.grouping.c.id == t.visit.c.grouping)
        .outerjoin(t.boot, t.boot.c.id == t.visit.c.boot)
    )
    .order_by(t.visit.c.id)
)


_PLACES = select(
    t.place,
    t.part.c.kind,
    t.part.c.name,
    t.part.c.model,
    t.part.c.names,
    t.host.c.name.label("host_name"),
    _FIRST.c.at.label("first_at"),
    _FIRST_RUN.c.name.label("first_run"),
    _LAST_MOMENT.c.at.label("last_at"),
    _LAST_RUN.c.name.label("last_run"),
).select_from(
    t.place.join(t.part, t.part.c.id == t.place.c.part)
    .join(t.host, t.host.c.id == t.place.c.host)
    .join(_FIRST, _FIRST.c.id == t.place.c.first)
    .join(_FIRST_RUN, _FIRST_RUN.c.id == _FIRST.c.run)
    .join(_LAST_MOMENT, _LAST_MOMENT.c.id == func.coalesce(t.place.c.last, t.host.c.vetted))
    .join(_LAST_RUN, _LAST_RUN.c.id == _LAST_MOMENT.c.run)
)
_POINTS = select(
    t.counter,
    t.host.c.name.label("host_name"),
    t.part.c.name.label("part_name"),
    t.visit.c.at,
    t.run.c.name.label("run_name"),
    t.boot.c.boot_id,
).select_from(
    t.counter.join(t.host, t.host.c.id == t.counter.c.host)
    .join(t.visit, t.visit.c.id == t.counter.c.visit)
    .join(t.run, t.run.c.id == t.visit.c.run)
    .outerjoin(t.part, t.part.c.id == t.counter.c.part)
    .outerjoin(t.boot, t.boot.c.id == t.visit.c.boot)
)


def _part(row: Any) -> Part:
    return Part(
        kind=PartKind(row.kind),
        id=row.name,
        model=row.model,
        names=typed.decode(row.names, tuple[str, ...]),
    )


def _place(row: Any) -> PartPlace:
    return PartPlace(
        part=_part(row),
        host=row.host_name,
        slot=row.slot,
        first=Moment(at=age.instant(row.first_at), run=row.first_run),
        last=Moment(at=age.instant(row.last_at), run=row.last_run),
        open=row.ended is None,
    )


def _point(row: Any) -> CounterPoint:
    return CounterPoint(
        host=row.host_name,
        part=row.part_name or "",
        name=row.name,
        subject=row.subject,
        value=row.value % (1 << 64),
        moment=Moment(at=age.instant(row.at), run=row.run_name),
        boot_id=row.boot_id,
    )


def _action(row: Any) -> RecordedAction:
    return RecordedAction(
        run=row.run,
        plan=row.plan,
        host=row.host_name,
        step=row.step,
        resource=row.resource,
        before=row.before,
        after=row.after,
        outcome=row.outcome,
        at=age.instant(row.at),
    )


def _changes(step: "StepResult") -> Iterator[tuple[str, str, str]]:
    """Each resource that a step changes, with what it was and what it is."""
    after = {state.resource: state for state in step.after}
    for state in step.before:
        resource = f"{state.resource.kind} {state.resource.name}"
        yield resource, _short(state), _short(after.get(state.resource))


def _short(state: "State | None") -> str:
    if state is None:
        return ""
    if not state.exists:
        return "absent"
    return encoded(state.value).decode()[:MOST_OF_A_STATE]


def _lower(names: Iterable[str]) -> Iterator[str]:
    return (name.lower() for name in names)


def _at(value: Any, path: Sequence[str], place: str) -> Iterator[tuple[str, Any]]:
    """The values at a path, each with where it is."""
    if not path:
        yield place, value
        return
    name, listed = path[0].removesuffix("[]"), path[0].endswith("[]")
    if not isinstance(value, dict) or name not in value:
        return
    below = value[name]
    at = f"{place}.{name}" if place else name
    if not listed:
        yield from _at(below, path[1:], at)
    elif isinstance(below, list):
        for number, each in enumerate(below):
            yield from _at(each, path[1:], f"{at}[{number}]")


def _next(connection: Connection, table: Table) -> int:
    return int(connection.execute(select(func.max(table.c.id))).scalar() or 0) + 1


def _host_id(connection: Connection, name: str) -> int:
    """The id of a host; of one that was never visited, a new one."""
    asked = select(t.host.c.id).where(t.host.c.name == plain(name))
    found = connection.execute(asked).scalar()
    if found is None:
        found = _next(connection, t.host)
        connection.execute(insert(t.host).values(id=found, name=plain(name)))
    return int(found)


def _run_id(name: str) -> Select[Any]:
    return select(t.run.c.id).where(t.run.c.name == name)


def _run(row: Any) -> RecordedRun:
    state = RunState(row.state)
    if state is RunState.RUNNING and is_gone(row.owner, time.time() - row.touched):
        state = RunState.INCOMPLETE
    counts = typed.decode(row.outcomes, dict[str, int])
    return RecordedRun(
        id=row.name,
        series=row.series,
        started=row.began,
        seconds=row.seconds,
        state=state,
        nodevet=row.nodevet,
        fail_on=Severity(row.fail_on),
        hosts=row.hosts,
        visited=row.visited,
        outcomes={HostOutcome(key): count for key, count in counts.items()},
        baselines=typed.decode(row.baselines, dict[str, str]),
        exit_code=row.exit_code,
    )


def _visit(row: Any) -> RecordedVisit:
    groups = typed.decode(row.group_names, tuple[str, ...]) if row.group_names else ()
    return RecordedVisit(
        run=row.run_name,
        host=row.host_name,
        status=Status(row.status),
        why=row.why or "",
        outcome=HostOutcome(row.outcome),
        seconds=row.seconds,
        arrived=age.instant(row.at) if row.arrived else "",
        machine_id=row.boot_machine or row.machine_id,
        boot_id=row.boot_id,
        baseline=row.baseline_name or "",
        groups=groups,
        evidence=row.volatile is not None,
        thinned=row.thinned,
    )


def _span(row: Any) -> FindingSpan:
    finding = typed.decode(row.finding, Finding) if row.finding else None
    since = None
    if row.since is not None:
        since = Moment(at=age.instant(row.since_at), run=row.since_run)
    ended = None
    if row.ended is not None and row.ended_run is not None:
        ended = Moment(at=age.instant(row.ended_at), run=row.ended_run)
    return FindingSpan(
        host=row.host_name,
        baseline=row.baseline_name,
        key=row.key,
        check=row.check,
        verdict=Verdict(row.verdict),
        severity=Severity(row.severity),
        finding=finding,
        why=row.why,
        first=Moment(at=age.instant(row.first_at), run=row.first_run),
        last=Moment(at=age.instant(row.last_at), run=row.last_run),
        end=SpanEnd(row.end) if row.end else None,
        ended=ended,
        since=since,
        since_visit=row.since or row.first,
        ended_visit=row.ended,
    )


def _keep(connection: Connection, content: bytes) -> int:
    """The id of a blob of this content."""
    sha = blobs.sha_of(content)
    found = connection.execute(select(t.blob.c.id).where(t.blob.c.sha256 == sha)).scalar()
    if found is not None:
        return int(found)
    number = int(connection.execute(select(func.max(t.blob.c.id))).scalar() or 0) + 1
    connection.execute(
        insert(t.blob).values(
            id=number, sha256=sha, base=None, size=len(content), data=blobs.packed(content)
        )
    )
    return number


def _documents(
    connection: Connection, rows: Sequence[Any], sections: frozenset[str] | None
) -> dict[int, bytes]:
    """The evidence of some visits, by the visit's id."""
    whole = contents(
        connection,
        {each for row in rows for each in (row.steady, row.volatile) if each is not None},
    )
    manifests: dict[int, dict[str, str]] = {}
    for row in rows:
        if row.steady is not None and row.steady not in manifests:
            manifests[row.steady] = typed.decode(whole[row.steady], dict[str, str])
    shas = {
        bytes.fromhex(sha)
        for names in manifests.values()
        for name, sha in names.items()
        if _wanted(name, sections)
    }
    numbers = {
        bytes(row.sha256).hex(): row.id
        for row in connection.execute(
            select(t.blob.c.id, t.blob.c.sha256).where(t.blob.c.sha256.in_(shas))
        )
    }
    pieces = contents(connection, numbers.values())
    found: dict[int, bytes] = {}
    for row in rows:
        if row.volatile is None:
            continue
        if row.steady is None:
            found[row.id] = whole[row.volatile]
            continue
        names = manifests[row.steady]
        steady = {
            name: pieces[numbers[sha]] for name, sha in names.items() if _wanted(name, sections)
        }
        found[row.id] = documents.together(names, steady, whole[row.volatile])
    return found


def _wanted(name: str, sections: frozenset[str] | None) -> bool:
    return sections is None or name.removeprefix(documents.EARLIER) in sections


def _instant(text: str) -> float:
    """Seconds of an ISO 8601 instant or day, which is UTC. Raises StoreError."""
    if _DAY.fullmatch(text):
        text = f"{text}T00:00:00+00:00"
    found = age.seconds_of(text)
    if found is None:
        raise StoreError(f"{text!r} is no time: 2026-11-20, or 2026-11-20T04:00:00+00:00")
    return found
