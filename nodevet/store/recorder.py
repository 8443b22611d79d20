"""Record a run: hosts as they arrive, some hundred in one short transaction."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from math import inf

from sqlalchemy import Connection, select, update
from sqlalchemy.engine import Engine

from nodevet.base import age
from nodevet.evidence.document import Evidence
from nodevet.model import HostReport
from nodevet.model.changes import HostNews
from nodevet.store import known
from nodevet.store import schema as t
from nodevet.store.engine import store_errors
from nodevet.store.errors import StoreError
from nodevet.store.known import KnownHost
from nodevet.store.preparing import NewBlob, PreparedHost, prepare_host
from nodevet.store.records.model import RecordedRun, RunState
from nodevet.store.rows import encoded, plain
from nodevet.store.undoing import undo_visit
from nodevet.store.writing import HostWriting

BATCH = 250  # hosts in one transaction,
BYTES = 4 << 20  # or this much evidence,
SECONDS = 2.0  # or this much time
CHUNK = 64  # hosts that are looked up together,
AHEAD = 10.0  # seconds for which a lookup is valid,
MOST = 512  # and lookups that wait at most


class Recorder:
    """Records one run. After an error, which is in `broken`, the run goes on without records."""

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
        self._lock = threading.Lock()  # of the hosts that wait: `beat` writes them, too
        self._engine = engine.execution_options(writes=True)
        self._reading = engine
        self._run_id = run_id
        self._seen = set(seen)
        self._waiting: dict[str, PreparedHost] = {}
        self._pieces: dict[bytes, NewBlob] = {}  # of the hosts that wait
        self._expected: Iterator[str] = iter(())
        self._ahead: dict[str, tuple[float, KnownHost | None]] = {}  # and when it was read
        self._bytes = 0
        self._clock, self._now = clock, now
        self._since = clock()
        self._connection: Connection | None = None

    def expect(self, hosts: Iterable[str]) -> None:
        """Announce the hosts that will be taken, roughly in this order."""
        self._expected = (plain(host) for host in hosts)

    def take(
        self, report: HostReport, evidence: bytes | None, decoded: Evidence | None = None
    ) -> HostNews:
        """Record one host, or record it again, and return its news.

        It is written together with the next hosts. Once `broken`, there are no news. `decoded`: the
        evidence, as it was judged.
        """
        if self.broken is None:
            try:
                with store_errors(self._engine.url), self._lock:
                    return self._take(report, evidence, decoded)
            except StoreError as error:
                self._break(error)
        return HostNews(host=report.host)

    def take_prepared(
        self, prepared: PreparedHost, evidence: bytes | None, whole: Callable[[], HostReport]
    ) -> HostNews:
        """As `take`, of a host that another process prepared. `whole`: its report."""
        host = prepared.report.host
        if host in self._seen or self.broken is not None:
            return self.take(whole(), evidence)
        prepared.evidence, prepared.whole = evidence, whole
        try:
            with store_errors(self._engine.url), self._lock:
                for sha, piece in prepared.pieces.items():
                    self._pieces.setdefault(sha, piece)
                return self._add_waiting(prepared)
        except StoreError as error:
            self._break(error)
        return HostNews(host=host)

    def beat(self) -> None:
        """Note that the run goes on, and write the hosts that wait, as others may take long; from
        any thread. The next `take` reports errors."""
        with suppress(StoreError), store_errors(self._engine.url):
            with self._reading.begin() as connection:
                connection.execute(
                    update(t.run).where(t.run.c.id == self._run_id).values(touched=t.epoch())
                )
            with self._lock:
                self._flush()

    def finish(self, run: RecordedRun) -> None:
        """Write the waiting hosts and the end of the run: incomplete if a host was not recorded."""
        try:
            if self.broken is None:
                with store_errors(self._engine.url), self._lock:
                    self._flush()
            state = run.state if self.broken is None else RunState.INCOMPLETE
            with store_errors(self._engine.url), self._engine.begin() as connection:
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

    def _take(
        self, report: HostReport, evidence: bytes | None, decoded: Evidence | None
    ) -> HostNews:
        if report.host in self._seen:
            self._flush()
            with self._engine.begin() as connection:
                visit_before = undo_visit(connection, self._run_id, report.host)
                prepared = self._prepared(connection, report, evidence, decoded)
                prepared.kept = visit_before if evidence is None else None
                self._write(connection, [prepared])
            return prepared.news
        if self._connection is None:
            self._connection = self._reading.connect()
        prepared = self._prepared(self._connection, report, evidence, decoded, ahead=True)
        if self._connection.in_transaction():
            self._connection.commit()
        return self._add_waiting(prepared)

    def _add_waiting(self, prepared: PreparedHost) -> HostNews:
        """Write the host together with the next ones."""
        self._seen.add(prepared.report.host)
        self._waiting[prepared.report.host] = prepared
        self._bytes += len(prepared.evidence or b"")
        is_late = self._clock() - self._since > SECONDS
        if is_late or len(self._waiting) >= BATCH or self._bytes >= BYTES:
            self._flush()
        return prepared.news

    def _prepared(
        self,
        connection: Connection,
        report: HostReport,
        evidence: bytes | None,
        decoded: Evidence | None,
        *,
        ahead: bool = False,
    ) -> PreparedHost:
        """`ahead`: an earlier lookup will do, since `_write` checks it."""
        arrived = age.seconds_of(report.arrived)
        at = self._now() if arrived is None else arrived
        name = plain(report.host)
        host = self._looked_up(connection, name) if ahead else known.host(connection, name)
        return prepare_host(
            connection,
            report,
            evidence,
            host,
            at=at,
            run=self.run.id,
            pieces=self._pieces,
            decoded=decoded,
        )

    def _looked_up(self, connection: Connection, name: str) -> KnownHost | None:
        """Look up a host, together with some of the hosts that are expected next."""
        now = self._clock()
        since, host = self._ahead.pop(name, (-inf, None))
        if now - since < AHEAD:
            return host
        ahead = {
            expected: entry for expected, entry in self._ahead.items() if now - entry[0] < AHEAD
        }
        next_names = list(islice(self._expected, CHUNK)) if len(ahead) < MOST else []
        known_hosts = known.hosts(connection, [name, *next_names])
        self._ahead = ahead | {
            expected: (now, known_hosts.get(expected))
            for expected in next_names
            if expected != name
        }
        return known_hosts.get(name)

    def _flush(self) -> None:
        if self._waiting:
            with self._engine.begin() as connection:
                self._write(connection, list(self._waiting.values()))
            self._waiting.clear()
        self._bytes = 0
        self._since = self._clock()

    def _write(self, connection: Connection, batch: Sequence[PreparedHost]) -> None:
        """Write hosts; prepare those again that another run has visited meanwhile."""
        names = [plain(prepared.report.host) for prepared in batch]
        rows = connection.execute(
            select(t.host.c.name, t.host.c.visit).where(t.host.c.name.in_(names))
        )
        last_visits = {row[0]: row[1] for row in rows}
        fresh = []
        for name, prepared in zip(names, batch, strict=True):
            if last_visits.get(name) != (prepared.host.visit if prepared.host else None):
                report = prepared.whole() if prepared.whole else prepared.report
                renewed = self._prepared(connection, report, prepared.evidence, None)
                renewed.kept = prepared.kept
                fresh.append(renewed)
            else:
                fresh.append(prepared)
        HostWriting(connection, self._run_id, fresh, self._pieces).write()
        self._pieces.clear()
