"""From the URL of a store to an open database, and its errors in plain words."""

import os
import sqlite3
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from nodevet.base.printable import brief
from nodevet.base.trust import distrust, shared_folder
from nodevet.store import tls
from nodevet.store.errors import StoreError
from nodevet.store.schema import VERSION_TABLE
from nodevet.store.urls import url_text

WAIT = 60.0  # seconds to wait for another process that writes
PAGE = 16384  # bytes; it holds a night of ten hosts, and 4096 would hold two and waste the rest

MOST_COPIED = 64 << 20  # bytes of a file; its first transactions create the tables
BESIDE = ("-wal", "-shm", "-journal")  # files that SQLite keeps beside a database
READINGS = 20  # tries to read a database that another process is creating
WRITERS = 0x6E6F6465  # the advisory lock of writers: `node`
INSTALL = "install it with: pip install 'nodevet[postgres]'"


def engine_of(url: URL, *, create: bool) -> Engine:
    """The engine of a store. Raises StoreError for a file or folder that cannot be used."""
    if url.drivername == "sqlite":
        return _sqlite(url, create=create)
    return _postgres(url)


def _sqlite(url: URL, *, create: bool) -> Engine:
    path = Path(str(url.database))
    if not is_there(url):
        if not create:
            raise StoreError(f"{path}: there is no store yet; a sweep or a check creates it")
        _check_owner(path)
        try:
            _create_file(path)
        except OSError as error:
            why = "a link to a file that does not exist" if path.is_symlink() else error.strerror
            raise StoreError(f"{path}: cannot create the store: {why}") from error
    elif not path.is_file():
        raise StoreError(f"{path}: not a regular file; name another store with --store")
    _check_owner(path)
    with store_errors(url):
        _refuse_foreign(path)
    engine = create_engine(
        url,
        connect_args={"timeout": WAIT, "check_same_thread": False},
        poolclass=QueuePool,
        pool_size=2,
        max_overflow=8,
    )

    @event.listens_for(engine, "connect")
    def _connected(raw: sqlite3.Connection, _record: Any) -> None:
        raw.isolation_level = None  # transactions begin with our own BEGIN
        cursor = raw.cursor()
        cursor.execute(f"PRAGMA page_size={PAGE}")  # works only for an empty file
        cursor.execute("PRAGMA auto_vacuum=INCREMENTAL")  # likewise; Store.prune needs it
        _write_ahead(cursor)
        cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute("PRAGMA temp_store=MEMORY")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _write_ahead(cursor: sqlite3.Cursor) -> None:
    """Switch a database to write-ahead logging, waiting for other processes that do the same, since
    SQLite does not. Raises sqlite3.OperationalError after WAIT seconds."""
    end = time.monotonic() + WAIT
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > end:
                raise
        time.sleep(0.05)


def is_there(url: URL) -> bool:
    """Whether the file of an SQLite store exists. Raises StoreError if that cannot be read."""
    path = Path(str(url.database))
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:  # a folder without access; an invalid name
        why = getattr(error, "strerror", None) or error
        raise StoreError(
            f"{path}: cannot read the store: {why}; check who owns its folder, or name another "
            "store with --store"
        ) from error
    return True


def _check_owner(path: Path) -> None:
    """Raises StoreError if other users may write the store, or the files that SQLite adds to it."""
    beside = _beside(path)
    for file in (path, *beside):
        if doubt := distrust(file):
            raise StoreError(
                f"{doubt}; nodevet reads no store that other users may change: correct that, or "
                "name another store with --store"
            )
    if path.parent.is_dir() and (shared := shared_folder(path)):
        raise StoreError(
            f"{shared}: others may create files next to the store, which SQLite would read; keep "
            f"it in its own folder: --store sqlite:///FOLDER/history.sqlite"
        )
    for file in beside:  # SQLite would follow links and wait for pipes
        if not _is_regular(file):
            raise StoreError(
                f"{file}: not a regular file; remove it, or name another store with --store"
            )


def _is_regular(path: Path) -> bool:
    """Whether a file is regular or absent. SQLite may remove it at any moment."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return True


def _beside(path: Path) -> tuple[Path, ...]:
    """The files that SQLite may keep beside a database."""
    database_file = path.resolve()
    return tuple(database_file.with_name(database_file.name + end) for end in BESIDE)


def _refuse_foreign(path: Path) -> None:
    """Raises StoreError for a database of another program, and does not change it: the statements
    below would switch it to WAL."""
    database_file = path.resolve()
    beside = _logs(path)
    if not database_file.stat().st_size:
        for log in beside:
            if log.name.endswith("-wal"):  # SQLite would delete it
                raise StoreError(
                    f"{path}: it is empty, but {log} holds data; move that away, or name another "
                    "store with --store"
                )
    tables = _tables_of_file(path)
    if tables and VERSION_TABLE not in tables:
        raise StoreError(f"{path}: {foreign_tables_text(tables)}")


def _logs(path: Path) -> Sequence[Path]:
    """The files beside a database that hold data."""
    return [file for file in _beside(path) if _size(file)]


def _size(path: Path) -> int:
    """The size of a file in bytes; 0 if it does not exist (any more)."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _tables_of_file(path: Path) -> Sequence[str]:
    """The tables of a database, with retries: another process may be creating it. Raises
    sqlite3.Error and OSError."""
    for _ in range(READINGS):
        with suppress(FileNotFoundError, sqlite3.DatabaseError):
            return _read_tables(path)
        time.sleep(0.05)
    return _read_tables(path)


def _read_tables(path: Path) -> Sequence[str]:
    """One try. Raises FileNotFoundError if a log vanishes meanwhile, sqlite3.Error and OSError."""
    database_file = path.resolve()
    tables = (
        _tables(f"{database_file.as_uri()}?mode=ro&immutable=1")
        if database_file.stat().st_size
        else ()
    )
    logs = _logs(path)
    return _tables_of_copy(database_file, logs) if logs and not tables else tables


def _tables(uri: str) -> Sequence[str]:
    """The names of the tables of a database, then of its indexes. Raises sqlite3.Error."""
    with closing(sqlite3.connect(uri, uri=True)) as database:
        rows = database.execute("SELECT name FROM sqlite_master ORDER BY type <> 'table', name")
        return [name for (name,) in rows]


def _tables_of_copy(path: Path, beside: Sequence[Path]) -> Sequence[str]:
    """The tables of a database that may be only in its log. SQLite writes when it reads a log,
    so it gets a copy. Raises sqlite3.Error and OSError."""
    from tempfile import TemporaryDirectory  # rarely

    with TemporaryDirectory(prefix="nodevet-") as folder:
        for file in (*beside, path):  # the log first: its data may move to the database
            with file.open("rb") as source:
                Path(folder, file.name).write_bytes(source.read(MOST_COPIED))
        return _tables(Path(folder, path.name).as_uri())


def foreign_tables_text(tables: Sequence[str]) -> str:
    """Why a database with these tables is not a store."""
    names = ", ".join(map(brief, tables[:3]))
    return f"it has tables of another program ({names}); name another store with --store"


def _create_file(path: Path) -> None:
    """Create an empty file of mode 0600, and its folder with 0700 if there is none. SQLite gives
    the files beside it the same mode."""
    if not path.parent.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _check_owner(path)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def _postgres(url: URL) -> Engine:
    try:
        import pg8000  # noqa: F401
    except ImportError as error:
        raise StoreError(f"a store in PostgreSQL needs pg8000; {INSTALL}") from error
    arguments: dict[str, Any] = {"timeout": 30}
    query = dict(url.query)
    folder = query.pop("host", None)
    if isinstance(folder, str) and folder.startswith("/"):
        arguments["unix_sock"] = f"{folder}/.s.PGSQL.{query.pop('port', url.port or 5432)}"
    arguments["ssl_context"] = tls.context(query)
    query = {name: value for name, value in query.items() if name not in tls.QUERY}
    engine = create_engine(url.set(query=query), connect_args=arguments, pool_pre_ping=True)
    engine.dialect.do_close = _end  # type: ignore[method-assign]

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        if connection.get_execution_options().get("writes"):
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITERS})")

    return engine


def _end(dbapi_connection: Any) -> None:
    """Close a session of PostgreSQL, also one that the server ended. pg8000 leaves the stream with
    the unsent last message to the garbage collector, so close it here."""
    from pg8000.dbapi import Error as PostgresError

    stream = dbapi_connection._sock
    with suppress(OSError, PostgresError):
        dbapi_connection.close()
    with suppress(OSError, ValueError):
        stream.close()


@contextmanager
def store_errors(url: URL) -> Iterator[None]:
    """Turn errors of the database into a StoreError of one sentence."""
    try:
        yield
    except SQLAlchemyError as error:
        raise StoreError(f"{url_text(url)}: {_error_text(error)}") from error
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{url_text(url)}: {_sqlite_error_text(str(error))}") from error


SQLITE_WORDS = {
    "database is locked": "another process has been writing to it for too long; try again, or "
    "find it with: fuser -v {path}",
    "disk is full": "no space is left on its disk, or it has reached its largest size; make "
    "room, or delete old evidence with: nodevet prune",
    "disk I/O error": "disk full or I/O error; make room, and read dmesg",
    "readonly database": "no permission to write it; check who owns it and its folder",
    "unable to open database file": "it cannot be opened; check who owns it and its folder, and "
    "that its file system is not read-only",
    "file is not a database": "not a store of nodevet; name another with --store",
    "malformed": "it is damaged; restore a copy, or move it away: the next run creates a new one",
}


def _error_text(error: SQLAlchemyError) -> str:
    if not isinstance(error, DBAPIError):
        return str(error)
    cause = error.orig
    if isinstance(cause, Exception) and isinstance(cause.__cause__, OSError):
        return _unreachable_text(cause.__cause__)
    if cause is not None and cause.args and isinstance(cause.args[0], dict):  # PostgreSQL's fields
        fields = cause.args[0]
        return str(fields.get("M", fields))
    return _sqlite_error_text(str(cause))


def _unreachable_text(error: OSError) -> str:
    """Why no PostgreSQL server answers."""
    why = error.strerror or str(error)
    return (
        f"no PostgreSQL server answers there: {why}; start it, or check host and port: "
        "pg_isready -h HOST -p PORT"
    )


def _sqlite_error_text(text: str) -> str:
    for sqlite_text, words in SQLITE_WORDS.items():
        if sqlite_text in text:
            return words.replace("{path}", "FILE")
    return text
