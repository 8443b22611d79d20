"""What other users may change is not believed: stores, runs, kept verdicts, saved evidence."""

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from nodevet import last_verdict
from nodevet.remedy.journal.journal import Journal, JournalError
from nodevet.run.export import TABLES, _write
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


def test_e03_a_link_of_ones_own_to_a_store_is_followed(store: Path, tmp_path: Path) -> None:
    (tmp_path / "link.sqlite").symlink_to(store)
    open_store(url(tmp_path / "link.sqlite"), create=False).close()


def test_e03_a_database_of_something_else_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "browser.sqlite"
    made = sqlite3.connect(path)
    made.execute("CREATE TABLE places (url)")
    made.commit()
    made.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"tables of something else \(places\)"):
        open_store(url(path))
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["browser.sqlite"]
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(StoreError, match="no store of nodevet's"):
        open_store(url(path))
    assert path.read_bytes() == b"no database" * 1000


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


def test_e03_no_journal_is_taken_up_through_a_link(tmp_path: Path) -> None:
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
    given = {"most": float(most), "began": began, "dated": False}
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
    with pytest.raises(StoreError, match=r"something else \(places\)"):
        open_store(url(path))
    assert path.read_bytes() == before
