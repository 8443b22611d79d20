"""The database of a store: transactions to read and to write in, pages, its size."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, Table, func, select
from sqlalchemy.engine import URL, Engine

from nodevet.store.engine import shown, told

PAGE = 1000  # rows in memory at once
PAUSE = 0.05  # seconds; SQLite asks again for its lock after a tenth at most

Portion = TypeVar("Portion")
Done = TypeVar("Done")

_SIZE = select(func.pg_database_size(func.current_database()))


class Database:
    """What goes wrong with it is a StoreError."""

    def __init__(self, engine: Engine, url: URL) -> None:
        self.engine = engine
        self._url = url

    @property
    def name(self) -> str:
        return shown(self._url)

    @property
    def _is_file(self) -> bool:
        return self._url.drivername == "sqlite"

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with told(self._url), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        writes = self.engine.execution_options(writes=True)
        with told(self._url), writes.begin() as connection:
            yield connection

    def in_turn(
        self, portions: Iterable[Portion], write: Callable[[Connection, Portion], Done]
    ) -> Iterator[Done]:
        """What comes of each portion, written in a transaction of its own, with a pause between
        two of them in which others that wait to write do."""
        for place, some in enumerate(portions):
            if place:
                time.sleep(PAUSE)
            with self.writing() as connection:
                done = write(connection, some)
            yield done

    def pages(self, asked: Select[Any], table: Table) -> Iterator[Sequence[Any]]:
        """Rows in the order of a table's ids, a page at a time, each in a transaction of its own
        that has ended when it is given: a reader that takes its time holds nothing up."""
        last = 0
        rows: Sequence[Any] = ()
        while not last or len(rows) == PAGE:
            page = asked.where(table.c.id > last).order_by(table.c.id).limit(PAGE)
            with self.reading() as connection:
                rows = connection.execute(page).all()
            if not rows:
                return
            yield rows
            last = rows[-1].id

    def size(self) -> int:
        """Bytes on the disk."""
        if self._is_file:
            path = Path(str(self._url.database))
            files = (path, path.with_name(f"{path.name}-wal"))
            return sum(each.stat().st_size for each in files if each.exists())
        with self.reading() as connection:
            return int(connection.execute(_SIZE).scalar() or 0)

    def give_back(self) -> None:
        """Free pages go back to the file system; PostgreSQL's own vacuum sees to its own."""
        if not self._is_file:
            return
        with told(self._url), self.engine.connect() as connection:
            raw = connection.connection.cursor()
            raw.execute("PRAGMA incremental_vacuum")
            raw.fetchall()
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            raw.close()
