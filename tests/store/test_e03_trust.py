"""What other users may change is not believed: stores, runs, kept verdicts, saved evidence."""

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from nodevet.base import last_verdict
from nodevet.fix.journal.journal import Journal, JournalError
from nodevet.past.use.export import TABLES, _write
from nodevet.store import StoreError, open_store

STRANGER = 65534
ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
SPOILED: dict[str, Callable[[Path], object]] = {
    "a file of mode 0666": lambda path: path.chmod(0o666),
    "a folder of mode 0777": lambda path: path.parent.chmod(0o777),
    "the folder above it": lambda path: path.parent.parent.chmod(0o777),
    "a -wal of mode 0666": lambda path: planted(path.with_name(f"{path.name}-wal")).chmod(0o666),
    "a file of another user": lambda path: os.chown(path, STRANGER, STRANGER),
    "a folder of another user": lambda path: os.chown(path.parent, STRANGER, STRANGER),
    "a -shm of another user": lambda path: os.chown(
        planted(path.with_name(f"{path.name}-shm")), STRANGER, STRANGER
    ),
}


def planted(path: Path) -> Path:
    path.touch()
    return path


def url(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "above" / "folder" / "store.sqlite"
    open_store(url(path)).close()
    return path


@ROOT
@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_e03_a_store_that_others_may_write_is_refused(
    store: Path, spoil: Callable[[Path], object]
) -> None:
    open_store(url(store), create=False).close()
    spoil(store)
    before = store.read_bytes()
    for create in (True, False):
        with pytest.raises(StoreError, match=r"owner .*, mode 0.*correct that"):
            open_store(url(store), create=create)
    assert store.read_bytes() == before


def test_e03_a_store_in_a_sticky_folder_like_tmp_is_refused(store: Path) -> None:
    """Nobody replaces it there, but anybody may make the -wal that SQLite reads with it."""
    store.parent.chmod(0o1777)
    for create in (True, False):
        with pytest.raises(
            StoreError, match=r"mode 1777.*others may create files next to the store"
        ):
            open_store(url(store), create=create)


@ROOT
def test_e03_no_folder_is_created_inside_a_folder_of_another_user(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    os.chown(theirs, STRANGER, STRANGER)
    (tmp_path / "way").symlink_to(theirs)
    for place in (theirs, tmp_path / "way"):
        with pytest.raises(StoreError, match="belongs to another user"):
            open_store(url(place / "a" / "b" / "store.sqlite"))
        with pytest.raises(JournalError, match="belongs to another user"):
            Journal.create(place / "runs" / "1")
    assert list(theirs.iterdir()) == []


def test_e03_no_store_is_made_where_a_planted_link_points(tmp_path: Path) -> None:
    (tmp_path / "store.sqlite").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="a link to a file that does not exist"):
        open_store(url(tmp_path / "store.sqlite"))
    assert not (tmp_path / "elsewhere").exists()
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(StoreError, match="can be written by everyone"):
        open_store(url(tmp_path / "open" / "store.sqlite"))
    assert not list((tmp_path / "open").iterdir())


def test_e03_a_symlink_of_the_same_user_to_a_store_is_followed(store: Path, tmp_path: Path) -> None:
    (tmp_path / "link.sqlite").symlink_to(store)
    open_store(url(tmp_path / "link.sqlite"), create=False).close()


def test_e03_a_database_of_something_else_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "browser.sqlite"
    made = sqlite3.connect(path)
    made.execute("CREATE TABLE places (url)")
    made.commit()
    made.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"tables of another program \(places\)"):
        open_store(url(path))
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["browser.sqlite"]
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(StoreError, match="not a store of nodevet"):
        open_store(url(path))
    assert path.read_bytes() == b"no database" * 1000


def killed(folder: Path, table: str) -> Path:
    """A database whose tables are in its log alone, as a process leaves it that is killed."""
    path = folder / "killed.sqlite"
    living = folder / "living.sqlite"
    with closing(sqlite3.connect(living)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA wal_autocheckpoint=0")
        database.execute(f"CREATE TABLE {table} (version_num)")
        database.commit()
        for end in ("", "-wal"):
            beside(path, end).write_bytes(beside(living, end).read_bytes())
    living.unlink()
    return path


def beside(path: Path, end: str) -> Path:
    return path.with_name(f"{path.name}{end}")


def held(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


@pytest.mark.parametrize("create", [True, False])
def test_e03_another_programs_database_that_is_only_in_its_wal_is_not_changed(
    tmp_path: Path, create: bool
) -> None:
    path = killed(tmp_path, "bookmarks")
    before = held(tmp_path)
    with pytest.raises(StoreError, match=r"tables of another program \(bookmarks\)"):
        open_store(url(path), create=create)
    assert held(tmp_path) == before
    path.write_bytes(b"")
    before = held(tmp_path)
    with pytest.raises(StoreError, match=r"it is empty, but .*-wal holds data; move that away"):
        open_store(url(path), create=create)
    assert held(tmp_path) == before


def test_e03_another_programs_database_that_is_only_in_its_journal_is_not_changed(
    tmp_path: Path,
) -> None:
    living, path = tmp_path / "living.sqlite", tmp_path / "killed.sqlite"
    with closing(sqlite3.connect(living, isolation_level=None)) as database:
        database.execute("CREATE TABLE bookmarks (url)")
        database.execute("PRAGMA cache_size=1")
        database.execute("PRAGMA cache_spill=1")
        database.execute("BEGIN")
        database.execute("DROP TABLE bookmarks")
        database.execute("CREATE TABLE other (url)")
        database.execute("INSERT INTO other VALUES (randomblob(99999))")
        database.execute("DROP TABLE other")
        journal = beside(living, "-journal").read_bytes()
        database.execute("COMMIT")
        path.write_bytes(living.read_bytes())
        beside(path, "-journal").write_bytes(journal)
    before = held(tmp_path)
    with pytest.raises(StoreError, match=r"tables of another program \(bookmarks\)"):
        open_store(url(path))
    assert held(tmp_path) == before


def test_e03_a_store_that_is_only_in_its_wal_is_opened(store: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copied"
    folder.mkdir()
    path = folder / "store.sqlite"
    with open_store(url(store)) as living:
        living.runs(limit=1)
        with closing(sqlite3.connect(store)) as database:
            database.execute("PRAGMA wal_checkpoint")
            tables = database.execute("SELECT sql FROM sqlite_master WHERE sql <> ''").fetchall()
            (version,) = database.execute("SELECT version_num FROM nodevet_schema").fetchone()
    with closing(sqlite3.connect(folder / "living")) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA wal_autocheckpoint=0")
        for (sql,) in tables:
            database.execute(sql)
        database.execute("INSERT INTO nodevet_schema VALUES (?)", (version,))
        database.commit()
        for end in ("", "-wal"):
            beside(path, end).write_bytes(beside(folder / "living", end).read_bytes())
    with open_store(url(path), create=False) as found:
        assert found.runs(limit=1) == []


@pytest.mark.parametrize("end", ["-wal", "-shm", "-journal"])
def test_e03_a_log_that_is_a_link_or_a_pipe_is_refused(
    store: Path, tmp_path: Path, end: str
) -> None:
    (tmp_path / "own").write_text("a file of the user's own")
    (tmp_path / "own").chmod(0o600)
    for plant in (lambda path: path.symlink_to(tmp_path / "own"), os.mkfifo, Path.mkdir):
        plant(beside(store, end))
        with pytest.raises(StoreError, match=rf"{end}: not a regular file; remove it"):
            open_store(url(store))
        (Path.rmdir if beside(store, end).is_dir() else Path.unlink)(beside(store, end))
    assert (tmp_path / "own").read_text() == "a file of the user's own"
    open_store(url(store)).close()


@ROOT
@pytest.mark.parametrize("end", ["-wal", "-journal"])
def test_e03_a_log_of_another_user_is_refused(store: Path, end: str) -> None:
    os.chown(planted(beside(store, end)), STRANGER, STRANGER)
    with pytest.raises(StoreError, match=rf"{end} \(owner .* belongs to another user"):
        open_store(url(store))


@pytest.mark.parametrize("spoil", [0, 1])
def test_e03_no_run_is_kept_where_others_may_write(tmp_path: Path, spoil: int) -> None:
    folder = tmp_path / "runs" / "r-1"
    Journal.create(folder).close()
    (folder, folder.parent)[spoil].chmod(0o777)
    with pytest.raises(JournalError, match="can be written by everyone"):
        Journal.open(folder)
    if spoil:
        with pytest.raises(JournalError, match="can be written by everyone"):
            Journal.create(folder.parent / "r-2")


def test_e03_a_journal_behind_a_symlink_is_not_opened(tmp_path: Path) -> None:
    folder, other = tmp_path / "r-1", tmp_path / "r-2"
    Journal.create(folder).close()
    other.mkdir()
    (other / "journal.jsonl").symlink_to(folder / "journal.jsonl")
    with pytest.raises(JournalError, match="cannot be opened"):
        Journal.open(other)


@pytest.mark.parametrize("most", ["60.0", "nan", "inf"])
def test_e03_a_verdict_is_recalled_only_where_no_other_user_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "above" / "state"))
    (tmp_path / "above").mkdir()
    began = (time.time() - 1, time.clock_gettime(time.CLOCK_BOOTTIME) - 1)
    words = ["check", "@local", "--max-age", "1m"]
    given = {"max_age": float(most), "began": began, "show_age": False}
    assert last_verdict.remember(words, b"ok\n", ("/etc",), **given)
    assert (last_verdict.recall(words) == b"ok\n") == (most == "60.0")
    (tmp_path / "above").chmod(0o777)
    assert last_verdict.recall(words) is None
    with pytest.raises(PermissionError):
        last_verdict.prepare()


def test_e03_an_export_is_not_written_through_a_planted_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(os, "urandom", bytes)
    name, table = next(iter(TABLES.items()))
    path = tmp_path / f"{name}.parquet"
    planted(tmp_path / f".{path.name}.{bytes(8).hex()}")
    with pytest.raises(FileExistsError):
        _write(path, table, iter(()))


def test_e03_a_database_without_tables_of_its_own_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "views.sqlite"
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE VIEW places AS SELECT 1")
        made.commit()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"another program \(places\)"):
        open_store(url(path))
    assert path.read_bytes() == before
