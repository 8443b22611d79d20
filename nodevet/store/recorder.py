"""Recording a run: hosts as they come in, some hundred in one short transaction."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from math import inf

from sqlalchemy import Connection, select, update
from sqlalchemy.engine import Engine

from nodevet.base import age
from nodevet.checking.changes import HostNews
from nodevet.model import HostReport
from nodevet.store import known
from nodevet.store import schema as t
from nodevet.store.engine import told
from nodevet.store.errors import StoreError
from nodevet.store.known import KnownHost
from nodevet.store.preparing import TakenHost, prepared
from nodevet.store.records.model import RecordedRun, RunState
from nodevet.store.text import encoded, plain
from nodevet.store.undoing import undone
from nodevet.store.writing import HostWriting

BATCH = 250  # hosts in one transaction,
BYTES = 16 << 20  # or as much evidence,
SECONDS = 2.0  # or what came in so long
CHUNK = 64  # hosts that are looked up at once,
AHEAD = 10.0  # seconds before they come in at most,
MOST = 512  # and of which that many wait


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
        self._waiting: dict[str, TakenHost] = {}
        self._expected: Iterator[str] = iter(())
        self._ahead: dict[str, tuple[float, KnownHost | None]] = {}  # and when it was read
        self._bytes = 0
        self._clock, self._now = clock, now
        self._since = clock()
        self._connection: Connection | None = None

    def expect(self, hosts: Iterable[str]) -> None:
        """The hosts that are going to be taken, about in this order."""
        self._expected = (plain(host) for host in hosts)

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
        if report.host in self._seen:
            self._flush()
            with self._engine.begin() as connection:
                kept = undone(connection, self._run_id, report.host)
                taken = self._prepared(connection, report, evidence)
                taken.kept = kept if evidence is None else None
                self._write(connection, [taken])
            return taken.news
        if self._connection is None:
            self._connection = self._reading.connect()
        taken = self._prepared(self._connection, report, evidence, ahead=True)
        if self._connection.in_transaction():
            self._connection.commit()
        self._seen.add(report.host)
        self._waiting[report.host] = taken
        self._bytes += len(evidence or b"")
        late = self._clock() - self._since > SECONDS
        if late or len(self._waiting) >= BATCH or self._bytes >= BYTES:
            self._flush()
        return taken.news

    def _prepared(
        self,
        connection: Connection,
        report: HostReport,
        evidence: bytes | None,
        *,
        ahead: bool = False,
    ) -> TakenHost:
        """`ahead`: what was looked up before will do; see `_write`."""
        arrived = age.seconds_of(report.arrived)
        at = self._now() if arrived is None else arrived
        name = plain(report.host)
        host = self._looked_up(connection, name) if ahead else known.host(connection, name)
        return prepared(connection, report, evidence, host, at=at, run=self.run.id)

    def _looked_up(self, connection: Connection, name: str) -> KnownHost | None:
        """A host; with it are read some of those that are expected next."""
        now = self._clock()
        since, host = self._ahead.pop(name, (-inf, None))
        if now - since < AHEAD:
            return host
        ahead = {each: read for each, read in self._ahead.items() if now - read[0] < AHEAD}
        more = list(islice(self._expected, CHUNK)) if len(ahead) < MOST else []
        found = known.hosts(connection, [name, *more])
        self._ahead = ahead | {each: (now, found.get(each)) for each in more if each != name}
        return found.get(name)

    def _flush(self) -> None:
        if self._waiting:
            with self._engine.begin() as connection:
                self._write(connection, list(self._waiting.values()))
            self._waiting.clear()
        self._bytes = 0
        self._since = self._clock()

    def _write(self, connection: Connection, batch: Sequence[TakenHost]) -> None:
        """Write hosts; those that another run has visited meanwhile are looked at again."""
        names = [plain(taken.report.host) for taken in batch]
        listed = connection.execute(
            select(t.host.c.name, t.host.c.visit).where(t.host.c.name.in_(names))
        )
        last = {row[0]: row[1] for row in listed}
        fresh = []
        for name, taken in zip(names, batch, strict=True):
            if last.get(name) != (taken.host.visit if taken.host else None):
                again = self._prepared(connection, taken.report, taken.evidence)
                again.kept = taken.kept
                fresh.append(again)
            else:
                fresh.append(taken)
        HostWriting(connection, self._run_id, fresh).write()
