"""The database of a store: transactions for reading and writing, pages of rows, its size."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, Table, func, select
from sqlalchemy.engine import URL, Engine

from nodevet.store.engine import engine_of, store_errors
from nodevet.store.urls import url_text

PAGE = 1000  # rows in memory at once
FREED_AT_ONCE = 2000  # pages of SQLite, 8 MB
PAUSE = 0.05  # seconds; SQLite retries its lock after at most twice as long

Portion = TypeVar("Portion")
Result = TypeVar("Result")

_SIZE = select(func.pg_database_size(func.current_database()))


def _free_pages(raw: Any) -> int:
    """The number of unused pages of a connection of sqlite3."""
    return int(raw.execute("PRAGMA freelist_count").fetchone()[0])


class Database:
    """Its methods raise StoreError."""

    def __init__(self, engine: Engine, url: URL) -> None:
        self.engine = engine
        self._url = url

    @property
    def name(self) -> str:
        return url_text(self._url)

    def in_this_process(self) -> "Database":
        """The same with connections of its own, for a forked process. Raises StoreError."""
        return Database(engine_of(self._url, create=False), self._url)

    @property
    def _is_file(self) -> bool:
        return self._url.drivername == "sqlite"

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with store_errors(self._url), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        writes = self.engine.execution_options(writes=True)
        with store_errors(self._url), writes.begin() as connection:
            yield connection

    def in_turn(
        self, portions: Iterable[Portion], write: Callable[[Connection, Portion], Result]
    ) -> Iterator[Result]:
        """Write each portion in its own transaction, and yield the results. Between two
        portions is a pause in which other writers get their turn."""
        for index, portion in enumerate(portions):
            if index:
                time.sleep(PAUSE)
            with self.writing() as connection:
                result = write(connection, portion)
            yield result

    def pages(self, query: Select[Any], table: Table) -> Iterator[Sequence[Any]]:
        """Pages of rows in the order of a table's ids. The transaction of a page ends before it is
        yielded, so a slow reader blocks nobody."""
        last = 0
        rows: Sequence[Any] = ()
        while not last or len(rows) == PAGE:
            page = query.where(table.c.id > last).order_by(table.c.id).limit(PAGE)
            with self.reading() as connection:
                rows = connection.execute(page).all()
            if not rows:
                return
            yield rows
            last = rows[-1].id

    def size(self) -> int:
        """Its size in bytes."""
        if self._is_file:
            path = Path(str(self._url.database))
            files = (path, path.with_name(f"{path.name}-wal"))
            return sum(file.stat().st_size for file in files if file.exists())
        with self.reading() as connection:
            return int(connection.execute(_SIZE).scalar() or 0)

    def give_back(self) -> None:
        """Return free pages of SQLite to the file system; PostgreSQL has its own vacuum."""
        if not self._is_file:
            return
        with store_errors(self._url), self.engine.connect() as connection:
            raw: Any = connection.connection.driver_connection
            free, before = _free_pages(raw), 0
            while free and free != before:
                # a script, since execute() stops after the first page; in portions, since others
                # wait for the lock
                raw.executescript(f"PRAGMA incremental_vacuum({FREED_AT_ONCE})")
                time.sleep(PAUSE if free > FREED_AT_ONCE else 0)
                free, before = _free_pages(raw), free
            raw.executescript("PRAGMA wal_checkpoint(TRUNCATE)")
