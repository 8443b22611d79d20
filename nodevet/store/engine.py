"""From a URL to a database that can be asked."""

import os
import re
import sqlite3
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

from nodevet.base.files import state_folder
from nodevet.base.printable import brief
from nodevet.base.trust import distrust, shared_folder
from nodevet.store import tls
from nodevet.store.errors import StoreError
from nodevet.store.schema import VERSION_TABLE

WAIT = 60.0  # seconds for another process that writes
PAGE = 16384  # bytes: a night of some ten hosts, where 4096 would hold two and waste the rest
POSTGRES = ("postgresql", "postgres", "postgresql+pg8000")
QUERY = frozenset({"host", "port", *tls.QUERY})
MOST_COPIED = 64 << 20  # bytes of a file: the first transactions make the tables
BESIDE = ("-wal", "-shm", "-journal")  # files that SQLite keeps beside a database
READINGS = 20  # of a database that another process is making
WRITERS = 0x6E6F6465  # the advisory lock that writers take; `node`
INSTALL = "install it with: pip install 'nodevet[postgres]'"


def default_url() -> str:
    """Where history is kept if no one says: the user's state directory. Raises StoreError."""
    try:
        return f"sqlite:///{state_folder() / 'history.sqlite'}"
    except OSError as error:
        raise StoreError(f"{error.strerror}, or name a store with --store") from error


def parsed(url: str) -> URL:
    """Raises StoreError for what is no URL of a store."""
    if path := _path_meant(url):
        raise StoreError(
            f"the store {brief(url)!r} is a path, and a URL is needed: type sqlite:///{path}"
        )
    try:
        found = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise StoreError(
            f"--store {_hidden(url)!r} is no URL of a store: sqlite:///PATH or postgresql://USER@HOST/DB"
        ) from error
    if found.drivername == "sqlite":
        elsewhere = found.host or found.username or found.query
        if not found.database or found.database == ":memory:" or elsewhere:
            raise StoreError(
                f"--store {_hidden(url)!r} names no file: type sqlite:///PATH, or sqlite:////ABSOLUTE/PATH"
            )
        return found
    if found.drivername in POSTGRES:
        if found.host and "@" in found.host:
            raise StoreError(
                f"--store {_hidden(url)!r} has an @ too many: in a password it is written %40"
            )
        if not found.username:
            raise StoreError(f"--store {_hidden(url)!r} names no user: postgresql://USER@HOST/DB")
        if unknown := sorted(set(found.query) - QUERY):
            raise StoreError(
                f"--store {_hidden(url)!r} takes no {', '.join(unknown)}; what goes behind the "
                "question mark is host=/FOLDER and port=NUMBER, of a socket, or for TLS sslmode, "
                "sslrootcert, sslcert and sslkey, as for psql"
            )
        return found.set(drivername="postgresql+pg8000")
    raise StoreError(
        f"--store {found.drivername}://…: nodevet keeps its history in SQLite or PostgreSQL: "
        "sqlite:///PATH or postgresql://USER@HOST/DB"
    )


def _path_meant(url: str) -> str:
    """The path that is meant by a path or by nearly a URL of one; "" if a URL may be meant."""
    scheme, colon, rest = url.partition(":")
    is_url = rest.startswith("//")
    if "@" in url or (colon and scheme not in ("sqlite", "file")):
        return ""
    if scheme == "sqlite" and is_url and not rest.startswith("///~"):  # only a shell knows a home
        return ""
    path = (rest.lstrip("/") if "~" in rest else rest.removeprefix("//")) if colon else url.strip()
    return os.path.expanduser(path)  # noqa: PTH111  (a user without a home is no error here)


def _hidden(text: str) -> str:
    """What is no URL may have a password in it all the same, before an @ or in what is asked."""
    before, at, after = text.partition("?")[0].rpartition("@")
    after = re.sub(r":[^/]*", "", after, count=1) if at else after  # what is no port
    return f"***@{after}" if at else before + after


def shown(url: URL) -> str:
    """A store's name in a sentence; without its password."""
    if url.drivername == "sqlite":
        return str(url.database)
    plain = url.set(drivername="postgresql", query={})
    return plain.render_as_string(hide_password=True)


def engine_of(url: URL, *, create: bool) -> Engine:
    """Raises StoreError for a file or folder that cannot be used."""
    if url.drivername == "sqlite":
        return _sqlite(url, create=create)
    return _postgres(url)


def _sqlite(url: URL, *, create: bool) -> Engine:
    path = Path(str(url.database))
    if not is_there(url):
        if not create:
            raise StoreError(f"{path}: there is no store yet; a sweep or a check makes it")
        _check_owner(path)
        try:
            _make(path)
        except OSError as error:
            why = "a link to a file that does not exist" if path.is_symlink() else error.strerror
            raise StoreError(f"{path}: the store cannot be made: {why}") from error
    elif not path.is_file():
        raise StoreError(f"{path}: not a regular file; name another store with --store")
    _check_owner(path)
    with told(url):
        _check_contents(path)
    engine = create_engine(
        url,
        connect_args={"timeout": WAIT, "check_same_thread": False},
        poolclass=QueuePool,
        pool_size=2,
        max_overflow=8,
    )

    @event.listens_for(engine, "connect")
    def _connected(raw: sqlite3.Connection, _record: Any) -> None:
        raw.isolation_level = None  # transactions begin where we say
        cursor = raw.cursor()
        cursor.execute(f"PRAGMA page_size={PAGE}")  # of a file that is still empty
        cursor.execute("PRAGMA auto_vacuum=INCREMENTAL")  # likewise; see Store.prune
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
    """Switch a database to its log. SQLite itself does not wait here for another process that
    does the same. Raises sqlite3.OperationalError after WAIT."""
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
    """Whether there is a file of SQLite. Raises StoreError if that cannot be told."""
    path = Path(str(url.database))
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError) as error:  # a folder that may not be read; a name that is none
        why = getattr(error, "strerror", None) or error
        raise StoreError(
            f"{path}: the store cannot be reached: {why}; see who owns its folder, or name another "
            "with --store"
        ) from error
    return True


def _check_owner(path: Path) -> None:
    """Raises StoreError if other users may write the store, or what SQLite keeps beside it."""
    beside = _beside(path)
    for each in (path, *beside):
        if doubt := distrust(each):
            raise StoreError(
                f"{doubt}; nodevet reads no store that other users may change: correct that, or "
                "name another store with --store"
            )
    if path.parent.is_dir() and (shared := shared_folder(path)):
        raise StoreError(
            f"{shared}: others may create files beside the store, which SQLite would read; keep it "
            "in a folder of its own: --store sqlite:///FOLDER/history.sqlite"
        )
    for each in beside:  # SQLite follows links and waits for pipes
        if not _is_regular(each):
            raise StoreError(
                f"{each}: not a regular file; remove it, or name another store with --store"
            )


def _is_regular(path: Path) -> bool:
    """Whether a file is regular, or absent: SQLite may remove it at any moment."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return True


def _beside(path: Path) -> tuple[Path, ...]:
    """The files that SQLite keeps beside this one, whether they exist or not."""
    whole = path.resolve()
    return tuple(whole.with_name(whole.name + end) for end in BESIDE)


def _check_contents(path: Path) -> None:
    """Raises StoreError for a database of another program, which stays as it is: what SQLite is
    asked below switches it to WAL."""
    whole = path.resolve()
    beside = _logs(path)
    if not whole.stat().st_size:
        for log in beside:
            if log.name.endswith("-wal"):  # SQLite would delete it
                raise StoreError(
                    f"{path}: it is empty, but {log} holds data; move that away, or name another "
                    "store with --store"
                )
    tables = _tables_beside_writers(path)
    if tables and VERSION_TABLE not in tables:
        raise StoreError(f"{path}: {of_something_else(tables)}")


def _logs(path: Path) -> Sequence[Path]:
    """The files beside a database that hold data."""
    return [each for each in _beside(path) if _size(each)]


def _size(path: Path) -> int:
    """The size of a file that another process may remove at any moment; 0 without it."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _tables_beside_writers(path: Path) -> Sequence[str]:
    """The tables of a database, which another process may be making right now: what is read then
    may be half of it, so it is read again. Raises sqlite3.Error and OSError."""
    for _ in range(READINGS):
        with suppress(FileNotFoundError, sqlite3.DatabaseError):
            return _tables_now(path)
        time.sleep(0.05)
    return _tables_now(path)


def _tables_now(path: Path) -> Sequence[str]:
    """Raises FileNotFoundError if a log vanishes meanwhile, sqlite3.Error and OSError."""
    whole = path.resolve()
    tables = _tables(f"{whole.as_uri()}?mode=ro&immutable=1") if whole.stat().st_size else ()
    logs = _logs(path)
    return _tables_of_copy(whole, logs) if logs and not tables else tables


def _tables(uri: str) -> Sequence[str]:
    """The names of a database's tables, then those of its indexes. Raises sqlite3.Error."""
    with closing(sqlite3.connect(uri, uri=True)) as database:
        rows = database.execute("SELECT name FROM sqlite_master ORDER BY type <> 'table', name")
        return [name for (name,) in rows]


def _tables_of_copy(path: Path, beside: Sequence[Path]) -> Sequence[str]:
    """The tables of a database that may be wholly in its log: to read a log, SQLite writes, so it
    is given a copy. Raises sqlite3.Error and OSError."""
    from tempfile import TemporaryDirectory  # rarely

    with TemporaryDirectory(prefix="nodevet-") as folder:
        for each in (*beside, path):  # the log first: what it has may move to the database
            with each.open("rb") as source:
                Path(folder, each.name).write_bytes(source.read(MOST_COPIED))
        return _tables(Path(folder, path.name).as_uri())


def of_something_else(tables: Sequence[str]) -> str:
    """Why a database with these tables is no store."""
    some = ", ".join(map(brief, tables[:3]))
    return f"it has tables of something else ({some}); name another store with --store"


def _make(path: Path) -> None:
    """An empty file of mode 0600, in a folder of 0700 if there was none; SQLite gives what lies
    beside it the same mode."""
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
    """Close a session of PostgreSQL. One that the server ended is no news; its last word, which
    cannot be sent, goes with the stream that holds it: pg8000 leaves that to the collector."""
    from pg8000.dbapi import Error as PostgresError

    stream = dbapi_connection._sock
    with suppress(OSError, PostgresError):
        dbapi_connection.close()
    with suppress(OSError, ValueError):
        stream.close()


@contextmanager
def told(url: URL) -> Iterator[None]:
    """What the database says, as a StoreError in one sentence."""
    try:
        yield
    except SQLAlchemyError as error:
        raise StoreError(f"{shown(url)}: {_words(error)}") from error
    except (OSError, sqlite3.Error) as error:
        raise StoreError(f"{shown(url)}: {_sqlite_words(str(error))}") from error


SQLITE_WORDS = {
    "database is locked": "another process has been writing to it for too long; try again, or "
    "find it with: fuser -v {path}",
    "disk is full": "no space is left where it lies, or it has reached its largest size; make "
    "room, or thin it out with: nodevet prune",
    "disk I/O error": "the disk does not take or give what is asked of it; make room, and look at "
    "dmesg",
    "readonly database": "it may not be written; see who owns it, and its folder",
    "unable to open database file": "it cannot be opened; see who owns it, and its folder",
    "file is not a database": "it is no store of nodevet's; name another with --store",
    "malformed": "it is damaged; put back a copy, or move it away: the next run begins a new one",
}


def _words(error: SQLAlchemyError) -> str:
    if not isinstance(error, DBAPIError):
        return str(error)
    cause = error.orig
    if isinstance(cause, Exception) and isinstance(cause.__cause__, OSError):
        return _unreachable(cause.__cause__)
    if cause is not None and cause.args and isinstance(cause.args[0], dict):  # PostgreSQL's fields
        fields = cause.args[0]
        return str(fields.get("M", fields))
    return _sqlite_words(str(cause))


def _unreachable(error: OSError) -> str:
    """Why no server of PostgreSQL answers."""
    why = error.strerror or str(error)
    return (
        f"no PostgreSQL server answers there: {why}; start it, or see the host and port: "
        "pg_isready -h HOST -p PORT"
    )


def _sqlite_words(text: str) -> str:
    for told_by_sqlite, words in SQLITE_WORDS.items():
        if told_by_sqlite in text:
            return words.replace("{path}", "FILE")
    return text
