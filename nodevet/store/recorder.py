"""Recording a run: hosts as they come in, some hundred in one short transaction."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from sqlalchemy import Connection, Table, bindparam, delete, func, insert, select, update
from sqlalchemy.engine import Engine

from nodevet import age, typed
from nodevet.changes import HostNews
from nodevet.evidence.document import Evidence, EvidenceError, opened
from nodevet.history import counters, parts, spans
from nodevet.history.model import Moment, Part, PartKind, RecordedRun, RunState, SpanEnd
from nodevet.history.spans import OpenSpan, SpanStep
from nodevet.model import Finding, HostReport, Severity, Status, Verdict
from nodevet.store import blobs, documents
from nodevet.store import schema as t
from nodevet.store.engine import told
from nodevet.store.errors import StoreError
from nodevet.store.text import encoded, plain

BATCH = 250  # hosts in one transaction,
BYTES = 16 << 20  # or as much evidence,
SECONDS = 2.0  # or what came in so long
WEEK = 7 * 86400.0  # seconds after which a host's readings get a new keyframe
PAYS = 0.6  # of a keyframe's size: a delta that is larger makes a new one

_KEYFRAME = t.blob.alias("keyframe")
_STEADY = t.blob.alias("steady_blob")
_JUDGED = t.blob.alias("judged_blob")
_HOST = (
    select(
        t.host,
        t.boot.c.machine_id,
        t.boot.c.boot_id,
        _KEYFRAME.c.data.label("frame"),
        _KEYFRAME.c.size.label("frame_size"),
        _STEADY.c.sha256.label("steady_sha"),
        _JUDGED.c.sha256.label("judged_sha"),
    )
    .select_from(
        t.host.outerjoin(t.boot, t.boot.c.id == t.host.c.boot)
        .outerjoin(_KEYFRAME, _KEYFRAME.c.id == t.host.c.keyframe)
        .outerjoin(_STEADY, _STEADY.c.id == t.host.c.steady)
        .outerjoin(_JUDGED, _JUDGED.c.id == t.host.c.judged)
    )
    .where(t.host.c.name == bindparam("name"))
)
_SINCE = t.visit.alias("since_visit")
_OPEN = (
    select(
        t.finding_span.c.id,
        t.baseline.c.name,
        t.finding_span.c.key,
        t.finding_span.c.check,
        t.finding_span.c.verdict,
        t.finding_span.c.severity,
        t.finding_span.c.said,
        _SINCE.c.at,
        t.run.c.name,
        t.finding_text.c.finding,
        _SINCE.c.id.label("since_visit"),
    )
    .select_from(
        t.finding_span.join(t.baseline, t.baseline.c.id == t.finding_span.c.baseline)
        .outerjoin(t.finding_text, t.finding_text.c.id == t.finding_span.c.text)
        .join(_SINCE, _SINCE.c.id == func.coalesce(t.finding_span.c.since, t.finding_span.c.first))
        .join(t.run, t.run.c.id == _SINCE.c.run)
    )
    .where(t.finding_span.c.host == bindparam("host"), t.finding_span.c.ended.is_(None))
    .order_by(t.finding_span.c.id)
)
_NAMED = select(t.baseline.c.id).where(t.baseline.c.name == bindparam("baseline"))
_CUT = (
    select(t.visit.c.id)
    .where(
        t.visit.c.host == bindparam("host"),
        t.visit.c.baseline
        == select(t.baseline.c.id)
        .where(t.baseline.c.name == bindparam("baseline"))
        .scalar_subquery(),
    )
    .order_by(t.visit.c.id.desc())
    .limit(1)
    .offset(spans.RECENT - 2)
)
_BEGAN = (
    select(t.finding_span.c.key, func.count())
    .select_from(t.finding_span.join(t.baseline, t.baseline.c.id == t.finding_span.c.baseline))
    .where(
        t.finding_span.c.host == bindparam("host"),
        t.baseline.c.name == bindparam("baseline"),
        t.finding_span.c.first >= bindparam("cut"),
        t.finding_span.c.since.is_(None),
        t.finding_span.c.verdict.in_([verdict.value for verdict in spans.TROUBLE]),
    )
    .group_by(t.finding_span.c.key)
)
_BLOB = select(t.blob.c.id, t.blob.c.base, t.blob.c.size, t.blob.c.data)
_BLOB_BY_ID = _BLOB.where(t.blob.c.id == bindparam("id"))
_BLOB_BY_SHA = _BLOB.where(t.blob.c.sha256 == bindparam("sha"))


class _NewBlob(msgspec.Struct, frozen=True):
    """Content on its way into the store."""

    sha: bytes | None  # None: readings, which no other visit has
    size: int
    data: bytes
    base: int | None = None


class _TakenHost(msgspec.Struct):
    """One host of the run, ready to be written."""

    report: HostReport
    evidence: bytes | None
    host: Any  # the host's row as it was; None: never met
    step: SpanStep
    news: HostNews
    at: float
    pieces: list[_NewBlob]
    steady: bytes | None = None  # the sha of a blob, as `judged`
    volatile: _NewBlob | None = None
    judged: bytes | None = None
    keyframe: bool = False  # `volatile` becomes the host's keyframe
    moved: dict[counters.Key, int] = {}  # counters
    counted: bytes | None = None  # the hash of all counters that are seen every night
    arrived: list[parts.Held] = []
    left: list[int] = []  # places that hold their part no more
    kept: Any = None  # the visit that this one replaces: its evidence stays


class Recorder:
    """Records one run. What goes wrong is kept in `broken`: the run itself goes on."""

    def __init__(
        self,
        engine: Engine,
        *,
        run: RecordedRun,
        run_id: int,
        seen: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.run = run
        self.broken: StoreError | None = None
        self._engine = engine.execution_options(writes=True)
        self._reading = engine
        self._run_id = run_id
        self._seen = set(seen)
        self._waiting: dict[str, _TakenHost] = {}
        self._bytes = 0
        self._clock, self._now = clock, now
        self._since = clock()
        self._connection: Connection | None = None

    def take(self, report: HostReport, evidence: bytes | None) -> HostNews:
        """Record one host, a second time too, and say what is news of it.

        It is written with the next ones. Once the store is `broken`, nothing is news.
        """
        if self.broken is None:
            try:
                with told(self._engine.url):
                    return self._take(report, evidence)
            except StoreError as error:
                self._break(error)
        return HostNews(host=report.host)

    def beat(self) -> None:
        """Say that the run goes on, from any thread. What goes wrong is told by what is recorded
        next."""
        with suppress(StoreError), told(self._engine.url), self._reading.begin() as connection:
            connection.execute(
                update(t.run).where(t.run.c.id == self._run_id).values(touched=t.epoch())
            )

    def finish(self, run: RecordedRun) -> None:
        """Write what waits, and how the run ended: incomplete if not all could be recorded."""
        try:
            if self.broken is None:
                with told(self._engine.url):
                    self._flush()
            state = run.state if self.broken is None else RunState.INCOMPLETE
            with told(self._engine.url), self._engine.begin() as connection:
                connection.execute(
                    update(t.run)
                    .where(t.run.c.id == self._run_id)
                    .values(
                        seconds=run.seconds,
                        state=state.value,
                        hosts=run.hosts,
                        exit_code=run.exit_code,
                        baselines=encoded(dict(run.baselines)),
                    )
                )
        except StoreError as error:
            self._break(error)
        finally:
            self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _break(self, error: StoreError) -> None:
        self.broken = self.broken or error
        self._waiting.clear()
        try:
            self.close()
        except Exception:
            self._connection = None

    def _take(self, report: HostReport, evidence: bytes | None) -> HostNews:
        again = report.host in self._seen
        if again:
            self._flush()
            with self._engine.begin() as connection:
                kept = self._undone(connection, report.host)
                taken = self._prepared(connection, report, evidence)
                taken.kept = kept if evidence is None else None
                self._write(connection, [taken])
            return taken.news
        if self._connection is None:
            self._connection = self._reading.connect()
        with self._connection.begin():
            taken = self._prepared(self._connection, report, evidence)
        self._seen.add(report.host)
        self._waiting[report.host] = taken
        self._bytes += len(evidence or b"")
        late = self._clock() - self._since > SECONDS
        if late or len(self._waiting) >= BATCH or self._bytes >= BYTES:
            self._flush()
        return taken.news

    def _prepared(
        self, connection: Connection, report: HostReport, evidence: bytes | None
    ) -> _TakenHost:
        at = age.seconds_of(report.arrived)
        arrived = self._now() if at is None else at
        host = connection.execute(_HOST, {"name": plain(report.host)}).one_or_none()
        known = _open_spans(connection, host.id) if host else []
        replaced = bool(
            host and host.machine and report.machine_id and host.machine != plain(report.machine_id)
        )
        taken_step = spans.step(known, report, replaced=replaced)
        taken = _TakenHost(
            report=report,
            evidence=evidence,
            host=host,
            step=taken_step,
            news=_news(connection, host, report, taken_step, self._moment(arrived)),
            at=arrived,
            pieces=[],
        )
        if report.status is Status.VETTED:
            self._judged(connection, taken)
        if evidence is not None:
            self._evidence(connection, taken, evidence)
        return taken

    def _moment(self, at: float) -> Moment:
        return Moment(at=age.instant(at), run=self.run.id)

    def _judged(self, connection: Connection, taken: _TakenHost) -> None:
        content = encoded(spans.judged(taken.report.findings))
        last = taken.host.judged if taken.host else None
        taken.judged = sha = blobs.sha_of(content)
        if taken.host is None or taken.host.judged_sha != sha:
            taken.pieces.append(_delta(connection, content, sha, last))

    def _evidence(self, connection: Connection, taken: _TakenHost, evidence: bytes) -> None:
        host = taken.host
        found = documents.apart(evidence)
        volatile = evidence if found is None else found.volatile
        changed: set[str] | None = None  # sections; None: all, for what is known
        if found is not None:
            shas = {name: blobs.sha_of(content) for name, content in found.steady.items()}
            manifest = msgspec.json.encode({name: sha.hex() for name, sha in shas.items()})
            taken.steady = sha = blobs.sha_of(manifest)
            changed = set()
            if host is None or host.steady_sha != sha:
                last = _manifest(connection, host.steady) if host and host.steady else {}
                for name, each in shas.items():
                    if last.get(name) != each.hex():
                        changed.add(name)
                        base = _id_of(connection, last.get(name))
                        taken.pieces.append(_delta(connection, found.steady[name], each, base))
                taken.pieces.append(
                    _delta(connection, manifest, sha, host.steady if host else None)
                )
        if taken.report.status is Status.VETTED:
            self._hardware(connection, taken, evidence, changed)
        frame = None
        if host is not None and host.frame is not None and taken.at - host.keyframe_at < WEEK:
            frame = blobs.unpacked(host.frame, host.frame_size)
        data = blobs.packed(volatile, frame)
        if frame is not None and len(data) < len(host.frame):
            taken.volatile = _NewBlob(None, len(volatile), data, host.keyframe)
            return
        if frame is not None:
            data = blobs.packed(volatile)
        taken.keyframe = True
        taken.volatile = _NewBlob(None, len(volatile), data)

    def _hardware(
        self,
        connection: Connection,
        taken: _TakenHost,
        document: bytes,
        changed: set[str] | None,
    ) -> None:
        """The parts that came and went, and the counters that moved. Only sections that are not as
        they were are looked at, and those that count among their readings."""
        host = taken.host
        try:
            evidence = opened(document)
        except EvidenceError:
            return
        every = frozenset(evidence.sections.raw)
        sections = every if changed is None else every & changed
        if sections & set(parts.SECTIONS):
            self._places(connection, taken, evidence, every)
        often = counters.counted(evidence, every & set(counters.OFTEN))
        taken.counted = blobs.sha_of(encoded([[*key, value] for key, value in often.items()]))[:8]
        if host is None or host.counted != taken.counted or sections & set(counters.SECTIONS):
            now = {**often, **counters.counted(evidence, sections - set(counters.OFTEN))}
            now = {_plain_key(key): value for key, value in now.items() if value < 1 << 64}
            taken.moved = counters.moved(_counters(connection, host), now)

    def _places(
        self, connection: Connection, taken: _TakenHost, evidence: Evidence, every: frozenset[str]
    ) -> None:
        held, told_of = parts.held(evidence, every)
        known = {} if taken.host is None else _open_places(connection, taken.host.id)
        now = {(part.kind, plain(part.id), plain(slot)): (part, slot) for part, slot in held}
        taken.arrived = [each for key, each in now.items() if key not in known]
        here = {key[:2] for key in now}
        taken.left = [
            number
            for key, number in known.items()
            if key not in now and (key[0] in told_of or key[:2] in here)
        ]

    def _flush(self) -> None:
        if self._waiting:
            with self._engine.begin() as connection:
                self._write(connection, list(self._waiting.values()))
            self._waiting.clear()
        self._bytes = 0
        self._since = self._clock()

    def _write(self, connection: Connection, batch: Sequence[_TakenHost]) -> None:
        """Write hosts; those that another run has visited meanwhile are looked at again."""
        names = [plain(taken.report.host) for taken in batch]
        listed = connection.execute(
            select(t.host.c.name, t.host.c.visit).where(t.host.c.name.in_(names))
        )
        last = {row.name: row.visit for row in listed}
        fresh = []
        for name, taken in zip(names, batch, strict=True):
            if last.get(name) != (taken.host.visit if taken.host else None):
                again = self._prepared(connection, taken.report, taken.evidence)
                again.kept = taken.kept
                fresh.append(again)
            else:
                fresh.append(taken)
        _Writing(connection, self._run_id, fresh).write()

    def _undone(self, connection: Connection, name: str) -> Any:
        """Take back what this run recorded of a host; what it was is given back."""
        host = connection.execute(_HOST, {"name": plain(name)}).one_or_none()
        if host is None:
            return None
        mine = connection.execute(
            select(t.visit).where(
                t.visit.c.run == self._run_id,
                t.visit.c.host == host.id,
                t.visit.c.superseded.is_(False),
            )
        ).one_or_none()
        if mine is None:
            return None
        _count(connection, self._run_id, {mine.outcome: -1})
        if host.visit != mine.id:  # another run has built on it since
            connection.execute(
                update(t.visit).where(t.visit.c.id == mine.id).values(superseded=True)
            )
            return mine
        for table in (t.finding_span, t.place):
            connection.execute(
                delete(table).where(table.c.host == host.id, table.c.first == mine.id)
            )
            values = {"last": None, "ended": None}
            if table is t.finding_span:
                values["end"] = None
            connection.execute(
                update(table)
                .where(table.c.host == host.id, table.c.ended == mine.id)
                .values(**values)
            )
        connection.execute(
            delete(t.counter).where(t.counter.c.host == host.id, t.counter.c.visit == mine.id)
        )
        connection.execute(delete(t.visit).where(t.visit.c.id == mine.id))
        _settle(connection, host.id)
        return mine


def _settle(connection: Connection, host: int) -> None:
    """What a host's row says by its visits, after one of them went."""
    listed = (
        select(t.visit.c.id, t.visit.c.boot, t.visit.c.machine_id, t.boot.c.machine_id.label("own"))
        .select_from(t.visit.outerjoin(t.boot, t.boot.c.id == t.visit.c.boot))
        .where(t.visit.c.host == host)
        .order_by(t.visit.c.id.desc())
    )
    last = connection.execute(listed.limit(1)).one_or_none()
    vetted = connection.execute(
        listed.where(t.visit.c.baseline.is_not(None)).limit(1)
    ).one_or_none()
    machine, begun, boot = None, None, None
    for row in connection.execute(listed.where(t.visit.c.baseline.is_not(None))):
        own = row.own or row.machine_id
        if own is None:
            continue
        if machine is not None and own != machine:
            break
        machine, begun, boot = own, row.id, boot or row.boot
    connection.execute(
        update(t.host)
        .where(t.host.c.id == host)
        .values(
            visit=last.id if last else None,
            vetted=vetted.id if vetted else None,
            machine=machine,
            machine_from=begun,
            boot=boot,
            steady=None,  # so that what the next visit says of parts and counters is looked at
            counted=None,
        )
    )


def _open_spans(connection: Connection, host: int) -> list[OpenSpan]:
    return [
        OpenSpan(
            id=row[0],
            baseline=row[1],
            key=row[2],
            check=row[3],
            verdict=Verdict(row[4]),
            severity=Severity(row[5]),
            said=row[6],
            since=Moment(at=age.instant(row[7]), run=row[8]),
            since_visit=row[10],
            finding=None if row[9] is None else typed.decode(row[9], Finding),
        )
        for row in connection.execute(_OPEN, {"host": host})
    ]


def _news(
    connection: Connection, host: Any, report: HostReport, taken: SpanStep, now: Moment
) -> HostNews:
    began: Mapping[str, int] = {}
    if host and (taken.ended or taken.opened or taken.still):
        asked = {"host": host.id, "baseline": plain(report.baseline)}
        cut = connection.execute(_CUT, asked).scalar() or 0
        cut = max(cut, host.machine_from or 0)
        if not any(ending.end is SpanEnd.REPLACED for ending in taken.ended):
            found = connection.execute(_BEGAN, {**asked, "cut": cut})
            began = {row[0]: row[1] for row in found}
    return spans.news(report, taken, now=now, began=began, first=host is None)


def _content(connection: Connection, row: Any) -> bytes:
    base = None
    if row.base is not None:
        under = connection.execute(_BLOB_BY_ID, {"id": row.base}).one()
        base = blobs.unpacked(under.data, under.size)
    return blobs.unpacked(row.data, row.size, base)


def _manifest(connection: Connection, blob: int) -> Mapping[str, str]:
    row = connection.execute(_BLOB_BY_ID, {"id": blob}).one_or_none()
    if row is None:
        return {}
    found: Mapping[str, str] = msgspec.json.decode(_content(connection, row))
    return found


def _id_of(connection: Connection, sha: str | None) -> int | None:
    if sha is None:
        return None
    row = connection.execute(_BLOB_BY_SHA, {"sha": bytes.fromhex(sha)}).one_or_none()
    return None if row is None else int(row.id)


def _plain_key(key: counters.Key) -> counters.Key:
    return plain(key[0]), plain(key[1]), plain(key[2])


def _counters(connection: Connection, host: Any) -> dict[counters.Key, int]:
    """Where every counter of a host stood last."""
    if host is None:
        return {}
    c = t.counter.c
    last = (
        select(func.max(c.id)).where(c.host == host.id).group_by(c.part, c.name, c.subject)
    ).scalar_subquery()
    rows = connection.execute(
        select(t.part.c.name, c.name, c.subject, c.value)
        .select_from(t.counter.outerjoin(t.part, t.part.c.id == c.part))
        .where(c.id.in_(last))
    )
    return {(row[0] or "", row[1], row[2]): row[3] % (1 << 64) for row in rows}


def _open_places(connection: Connection, host: int) -> dict[tuple[PartKind, str, str], int]:
    rows = connection.execute(
        select(t.part.c.kind, t.part.c.name, t.place.c.slot, t.place.c.id)
        .join(t.part, t.part.c.id == t.place.c.part)
        .where(t.place.c.host == host, t.place.c.ended.is_(None))
    )
    return {(PartKind(row[0]), row[1], row[2]): row[3] for row in rows}


def _delta(connection: Connection, content: bytes, sha: bytes, last: int | None) -> _NewBlob:
    """Compressed with the keyframe of what was there last, where that pays."""
    plainly = blobs.packed(content)
    row = connection.execute(_BLOB_BY_ID, {"id": last}).one_or_none() if last else None
    if row is not None and row.base is not None:
        row = connection.execute(_BLOB_BY_ID, {"id": row.base}).one_or_none()
    if row is not None:
        data = blobs.packed(content, blobs.unpacked(row.data, row.size))
        if len(data) < PAYS * len(plainly):
            return _NewBlob(sha, len(content), data, row.id)
    return _NewBlob(sha, len(content), plainly)


def _count(connection: Connection, run_id: int, more: Mapping[str, int]) -> None:
    """Keep the run's numbers, in the transaction that changes them."""
    row = connection.execute(select(t.run.c.outcomes).where(t.run.c.id == run_id)).one()
    counts = Counter(typed.decode(row.outcomes, dict[str, int]))
    counts.update(more)
    connection.execute(
        update(t.run)
        .where(t.run.c.id == run_id)
        .values(
            outcomes=msgspec.json.encode({key: n for key, n in counts.items() if n}),
            visited=sum(counts.values()),
            touched=t.epoch(),
        )
    )


class _Writing:
    """One transaction: some hosts of a run."""

    def __init__(self, connection: Connection, run_id: int, batch: Sequence[_TakenHost]) -> None:
        self._connection = connection
        self._run = run_id
        self._batch = batch
        self._next: dict[str, int] = {}
        self._rows: dict[str, list[dict[str, Any]]] = {}

    def write(self) -> None:
        batch = self._batch
        hosts = self._hosts()
        baselines = self._named(
            t.baseline, t.baseline.c.name, {plain(each.report.baseline) for each in batch} | {""}
        )
        groups = self._named(
            t.grouping, t.grouping.c.names, {_groups(each.report) for each in batch}
        )
        pieces = self._pieces()
        texts = self._texts()
        known_parts = self._parts()
        ended: list[dict[str, Any]] = []
        moved: list[dict[str, Any]] = []
        for taken in batch:
            report, host = taken.report, hosts[plain(taken.report.host)]
            visit = self._id(t.visit)
            vetted = report.status is Status.VETTED
            boot = self._boot(taken, host, visit)
            steady, volatile = pieces.get(taken.steady), self._volatile(taken)
            if taken.kept is not None and taken.evidence is None and vetted:
                steady, volatile = taken.kept.steady, taken.kept.volatile
            judged = pieces.get(taken.judged)
            self._add(
                t.visit,
                id=visit,
                run=self._run,
                host=host,
                status=report.status.value,
                why=plain(report.why) or None,
                outcome=report.outcome.value,
                seconds=report.seconds,
                at=taken.at,
                arrived=bool(report.arrived),
                machine_id=plain(report.machine_id) if report.machine_id and not boot else None,
                boot=boot,
                baseline=baselines[plain(report.baseline)] if vetted else None,
                grouping=groups[_groups(report)] if report.groups else None,
                steady=steady,
                volatile=volatile,
                judged=judged,
                thinned=False,
                superseded=False,
            )
            self._spans(taken, host, visit, baselines, texts)
            for ending in taken.step.ended:
                last = self._last_seen(taken, ending.span, baselines)
                ended.append(
                    {"_id": ending.span.id, "last": last, "ended": visit, "end": ending.end.value}
                )
            self._hardware(taken, host, visit, known_parts)
            moved.append(self._moved(taken, host, visit, boot, steady, volatile, judged))
        for table in (t.blob, t.boot, t.visit, t.finding_span, t.place, t.counter):
            if rows := self._rows.get(table.name):
                self._connection.execute(insert(table), rows)
        if ended:
            self._connection.execute(
                update(t.finding_span).where(t.finding_span.c.id == bindparam("_id")),
                ended,
            )
        self._connection.execute(update(t.host).where(t.host.c.id == bindparam("_id")), moved)
        counts = Counter(taken.report.outcome.value for taken in batch)
        _count(self._connection, self._run, counts)

    def _id(self, table: Table) -> int:
        if table.name not in self._next:
            most = self._connection.execute(select(func.max(table.c.id))).scalar()
            self._next[table.name] = most or 0
        self._next[table.name] += 1
        return self._next[table.name]

    def _add(self, table: Table, **values: Any) -> None:
        self._rows.setdefault(table.name, []).append(values)

    def _hosts(self) -> dict[str, int]:
        found = {plain(each.report.host): each.host.id for each in self._batch if each.host}
        new = [
            {"id": self._id(t.host), "name": name}
            for name in (plain(each.report.host) for each in self._batch)
            if name not in found
        ]
        if new:
            self._connection.execute(insert(t.host), new)
        return found | {str(row["name"]): int(str(row["id"])) for row in new}

    def _named(self, table: Table, column: Any, names: set[str]) -> dict[str, int]:
        rows = self._connection.execute(select(table.c.id, column).where(column.in_(names)))
        found = {name: number for number, name in rows}
        new = [{"id": self._id(table), column.name: name} for name in sorted(names - found.keys())]
        if new:
            self._connection.execute(insert(table), new)
        return found | {str(row[column.name]): int(str(row["id"])) for row in new}

    def _pieces(self) -> dict[bytes | None, int]:
        """The ids of all blobs that the batch speaks of; those that are new are written."""
        shas = {
            sha for each in self._batch for sha in (each.steady, each.judged) if sha is not None
        }
        new = {piece.sha: piece for each in self._batch for piece in each.pieces if piece.sha}
        listed = self._connection.execute(
            select(t.blob.c.id, t.blob.c.sha256).where(t.blob.c.sha256.in_(shas | new.keys()))
        )
        found: dict[bytes | None, int] = {bytes(sha): number for number, sha in listed}
        rows = []
        for sha, piece in new.items():
            if sha not in found:
                found[sha] = self._id(t.blob)
                rows.append(
                    {
                        "id": found[sha],
                        "sha256": sha,
                        "base": piece.base,
                        "size": piece.size,
                        "data": piece.data,
                    }
                )
        if rows:
            self._connection.execute(insert(t.blob), rows)
        return found

    def _parts(self) -> dict[str, int]:
        """The ids of all parts that the batch speaks of; new ones are written, others kept up."""
        told: dict[tuple[str, str], Part] = {}
        for each in self._batch:
            told |= {(part.kind.value, plain(part.id)): part for part, _ in each.arrived}
        names = {name for _, name in told}
        names |= {key[0] for each in self._batch for key in each.moved if key[0]}
        if not names:
            return {}
        found: dict[str, int] = {}
        kept: dict[tuple[str, str], Any] = {}
        for row in self._connection.execute(select(t.part).where(t.part.c.name.in_(names))):
            found[row.name] = row.id
            kept[row.kind, row.name] = row
        for (kind, name), part in told.items():
            values = {
                "model": plain(part.model),
                "names": encoded([plain(each) for each in part.names]),
            }
            here = kept.get((kind, name))
            if here is None:
                found[name] = number = self._id(t.part)
                self._add(t.part, id=number, kind=kind, name=name, **values)
            elif (here.model, bytes(here.names)) != (values["model"], values["names"]):
                self._connection.execute(
                    update(t.part).where(t.part.c.id == here.id).values(**values)
                )
        if rows := self._rows.pop(t.part.name, None):
            self._connection.execute(insert(t.part), rows)
        return found

    def _hardware(self, taken: _TakenHost, host: int, visit: int, known: Mapping[str, int]) -> None:
        """Places that began and ended, and counters that moved."""
        for part, slot in taken.arrived:
            self._add(
                t.place,
                id=self._id(t.place),
                part=known[plain(part.id)],
                host=host,
                slot=plain(slot),
                first=visit,
                last=None,
                ended=None,
            )
        if taken.left:
            last = taken.host.vetted
            self._connection.execute(
                update(t.place).where(t.place.c.id.in_(taken.left)).values(last=last, ended=visit)
            )
        for (of, name, subject), value in taken.moved.items():
            self._add(
                t.counter,
                id=self._id(t.counter),
                host=host,
                part=known.get(of) if of else None,
                name=name,
                subject=subject if not of or of in known else f"{of} {subject}".strip(),
                value=value - (1 << 64) if value >= 1 << 63 else value,
                visit=visit,
            )

    def _volatile(self, taken: _TakenHost) -> int | None:
        blob = taken.volatile
        if blob is None:
            return None
        number = self._id(t.blob)
        self._add(t.blob, id=number, sha256=None, base=blob.base, size=blob.size, data=blob.data)
        return number

    def _texts(self) -> dict[bytes, int]:
        new: dict[bytes, bytes] = {}
        for each in self._batch:
            for opening in each.step.opened:
                if opening.finding is not None:
                    text = encoded(opening.finding)
                    new[blobs.sha_of(text)] = text
        if not new:
            return {}
        listed = self._connection.execute(
            select(t.finding_text.c.id, t.finding_text.c.sha256).where(
                t.finding_text.c.sha256.in_(new)
            )
        )
        found = {bytes(sha): number for number, sha in listed}
        rows = []
        for sha, text in new.items():
            if sha not in found:
                found[sha] = self._id(t.finding_text)
                rows.append({"id": found[sha], "sha256": sha, "finding": text})
        if rows:
            self._connection.execute(insert(t.finding_text), rows)
        return found

    def _boot(self, taken: _TakenHost, host: int, visit: int) -> int | None:
        report, row = taken.report, taken.host
        if not report.machine_id or not report.boot_id:
            return None
        machine_id, boot_id = plain(report.machine_id), plain(report.boot_id)
        if row and row.boot and (row.machine_id, row.boot_id) == (machine_id, boot_id):
            return int(row.boot)
        if row:
            known = self._connection.execute(
                select(t.boot.c.id).where(
                    t.boot.c.host == host,
                    t.boot.c.machine_id == machine_id,
                    t.boot.c.boot_id == boot_id,
                )
            ).scalar()
            if known:
                return int(known)
        boot = self._id(t.boot)
        self._add(t.boot, id=boot, machine_id=machine_id, boot_id=boot_id, host=host, visit=visit)
        return boot

    def _spans(
        self,
        taken: _TakenHost,
        host: int,
        visit: int,
        baselines: Mapping[str, int],
        texts: Mapping[bytes, int],
    ) -> None:
        for opening in taken.step.opened:
            since = None
            if opening.inherits and opening.after:
                span = t.finding_span.c
                since = self._connection.execute(
                    select(func.coalesce(span.since, span.first)).where(span.id == opening.after.id)
                ).scalar()
            text = None
            if opening.finding is not None:
                text = texts[blobs.sha_of(encoded(opening.finding))]
            self._add(
                t.finding_span,
                id=self._id(t.finding_span),
                host=host,
                baseline=baselines[plain(taken.report.baseline) if opening.check else ""],
                key=opening.key,
                check=plain(opening.check),
                verdict=opening.verdict.value,
                severity=opening.severity.value,
                said=opening.said,
                text=text,
                why=plain(opening.why),
                first=visit,
                since=since,
                last=None,
                ended=None,
                end=None,
            )

    def _last_seen(self, taken: _TakenHost, span: OpenSpan, baselines: Mapping[str, int]) -> int:
        """The visit that saw a span last: before this one, and one that could see it."""
        found = select(func.max(t.visit.c.id)).where(t.visit.c.host == taken.host.id)
        if span.check:
            named = select(t.baseline.c.id).where(t.baseline.c.name == span.baseline)
            found = found.where(t.visit.c.baseline == named.scalar_subquery())
        else:
            found = found.where(
                t.visit.c.baseline.is_(None), t.visit.c.status != Status.INTERRUPTED.value
            )
        return int(self._connection.execute(found).scalar() or 0)

    def _moved(
        self,
        taken: _TakenHost,
        host: int,
        visit: int,
        boot: int | None,
        steady: int | None,
        volatile: int | None,
        judged: int | None,
    ) -> dict[str, Any]:
        """The host's row after this visit."""
        row, report = taken.host, taken.report
        machine = plain(report.machine_id) if report.machine_id else None
        same = row is not None and machine in (None, row.machine)
        vetted = report.status is Status.VETTED
        return {
            "_id": host,
            "visit": visit,
            "vetted": visit if vetted else row and row.vetted,
            "machine": machine or (row and row.machine),
            "machine_from": (row and row.machine_from) if same else visit,
            "boot": boot or (row and row.boot),
            "keyframe": volatile if taken.keyframe else row and row.keyframe,
            "keyframe_at": taken.at if taken.keyframe else row and row.keyframe_at,
            "steady": steady or (row and row.steady),
            "judged": judged or (row and row.judged),
            "counted": taken.counted or (row and row.counted),
        }


def _groups(report: HostReport) -> str:
    return plain(msgspec.json.encode([plain(group) for group in report.groups]).decode())
