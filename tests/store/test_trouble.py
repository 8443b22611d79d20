"""Killed, full, locked, cut off, of another schema: the store stays whole, and says why."""

import gc
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from postgres import Postgres
from recorded import document, ended, record, report, run

import nodevet.store.recorder
from nodevet.store import Store, StoreError, engine, open_store
from nodevet.store.blobs import unpack
from nodevet.store.records.model import RunState
from nodevet.vet.use.stores import open_history

HOSTS = 30
KILLS = int(os.environ.get("NODEVET_KILLS", "6"))


def fails(night: int, host: int) -> bool:
    return (night * 7 + host * 3) % 5 < 2


def take(recorder: Any, night: int, host: int) -> None:
    said = {"governor": "fail" if fails(night, host) else "ok"}
    name = f"gpu{host:03d}"
    evidence = document(
        host={"hostname": name, "uptime_s": night}, sysctl={"a": [str(night // 3)] * 200}
    )
    recorder.take(report(name, said, night=night, machine_id=name, boot_id=name), evidence)


def night_of(url: str, night: int) -> None:
    """Record one night, or what is left of it."""
    nodevet.store.recorder.BATCH = 4
    with open_store(url) as store:
        begun = run(night, HOSTS)
        if begun.id in {each.id for each in store.runs()}:
            recorder, done = store.resume(begun.id)
        else:
            recorder, done = store.begin(begun), frozenset()
        for host in range(HOSTS):
            if f"gpu{host:03d}" not in done:
                take(recorder, night, host)
        recorder.finish(ended(begun))
        if recorder.broken:
            raise recorder.broken


def forked() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def begun_when_told(url: str, night: int, told: int) -> int:
    """A process that records one night when it is told to; it ends with 0 if all went well."""
    child = forked()
    if not child:
        code = 1
        try:
            os.read(told, 1)
            night_of(url, night)
            code = 0
        finally:
            os._exit(code)
    return child


def in_a_child(url: str, night: int, seconds: float) -> bool:
    """Whether the night was over before the child was killed."""
    child = forked()
    if not child:
        try:
            night_of(url, night)
        finally:
            os._exit(0)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFEXITED(status)


def is_whole(store: Store, nights: range) -> None:
    """Every visit's evidence unpacks, no host is there twice, and spans say who failed when."""
    if store.name.endswith(".sqlite"):
        with sqlite3.connect(store.name) as raw:
            assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    for night in nights:
        begun = run(night)
        found = list(store.evidence(begun.id))
        assert all(text for _, text in found)
        hosts = [visit.host for visit, _ in found]
        assert len(set(hosts)) == len(hosts) == store.run(begun.id).visited
        failing = {name for name in hosts if fails(night, int(name[3:]))}
        assert {span.host for span in store.spans(run=begun.id)} == failing


@pytest.mark.timeout(600)
def test_a_run_killed_at_any_instant_leaves_the_store_consistent(url: str):
    draw, night, kills = random.Random(int(os.environ.get("NODEVET_KILLS_SEED", "1"))), 1, 0
    night_of(url, 0)
    begun = time.monotonic()
    night_of(url, 1)
    whole = time.monotonic() - begun
    while kills < KILLS:
        night += 1
        killed = False
        while kills < KILLS and not in_a_child(url, night, draw.uniform(0, whole)):
            killed, kills = True, kills + 1
            with open_store(url) as store:
                known = {each.id: each for each in store.runs()}
                if (one := known.get(run(night).id)) is not None:
                    is_whole(store, range(night - 1, night + 1))
                    if one.state is RunState.COMPLETE:  # killed after its last word
                        assert one.visited == HOSTS
                        break
                    assert one.state is RunState.INCOMPLETE
        if not killed:
            whole *= 0.9
        night_of_rest(url, night)
    with open_store(url) as store:
        is_whole(store, range(night + 1))
        assert all(each.visited == HOSTS for each in store.runs())


def night_of_rest(url: str, night: int) -> None:
    with open_store(url) as store:
        done = {each.id: each.state for each in store.runs()}
    if done.get(run(night).id) is not RunState.COMPLETE:
        night_of(url, night)


def test_a_full_disk_breaks_the_recording_and_not_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    url = f"sqlite:///{tmp_path}/h.sqlite"
    night_of(url, 0)
    with open_store(url) as store:
        recorder = store.begin(run(1, HOSTS))
        monkeypatch.setattr(nodevet.store.recorder, "BATCH", 4)
        used = max(each.stat().st_size for each in tmp_path.iterdir())
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (used + 20_000, limits[1]))
        try:
            for host in range(HOSTS):
                take(recorder, 1, host)
            recorder.finish(ended(run(1, HOSTS)))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert recorder.broken is not None
        assert "room" in str(recorder.broken)
    night_of_rest_of_a_dead(url)


def night_of_rest_of_a_dead(url: str) -> None:
    """The same process goes on: what it could not record, it takes up again."""
    with open_store(url) as store:
        is_whole(store, range(2))
        recorder, done = store.resume(run(1).id)
        for host in range(HOSTS):
            if f"gpu{host:03d}" not in done:
                take(recorder, 1, host)
        recorder.finish(ended(run(1)))
        assert recorder.broken is None
        is_whole(store, range(2))


def test_a_locked_store_is_reported_as_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine, "WAIT", 0.2)
    url = f"sqlite:///{tmp_path}/h.sqlite"
    with open_store(url) as store:
        recorder = store.begin(run(0))
        other = sqlite3.connect(f"{tmp_path}/h.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        take(recorder, 0, 0)
        recorder.finish(ended(run(0)))
        other.close()
        assert "another process has been writing to it for too long" in str(recorder.broken)


def test_a_file_that_is_not_a_store_is_reported_as_such(tmp_path: Path):
    (tmp_path / "text").write_text("no database at all, but a text of some length\n" * 40)
    with pytest.raises(StoreError, match=r"text: not a store of nodevet"):
        open_store(f"sqlite:///{tmp_path}/text")
    with sqlite3.connect(tmp_path / "other") as other:
        other.execute("CREATE TABLE run (speed INTEGER)")
    with pytest.raises(StoreError, match=r"tables of another program \(run\)"):
        open_store(f"sqlite:///{tmp_path}/other")
    with sqlite3.connect(tmp_path / "theirs") as theirs:
        theirs.execute("CREATE TABLE bookmarks (url TEXT)")
    with pytest.raises(StoreError, match=r"tables of another program \(bookmarks\)"):
        open_store(f"sqlite:///{tmp_path}/theirs", create=False)
    with sqlite3.connect(tmp_path / "theirs") as theirs:
        tables = theirs.execute("SELECT name FROM sqlite_master").fetchall()
        assert tables == [("bookmarks",)]
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        with pytest.raises(StoreError, match=f"{name}: not a regular file"):
            open_store(f"sqlite:///{tmp_path}/{name}")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot create the store"):
        open_store(f"sqlite:///{tmp_path}/file/h.sqlite")
    for url in ("mysql://u:secret@h/d", "sqlite://", "nonsense"):
        with pytest.raises(StoreError, match="sqlite:///") as told:
            open_store(url)
        assert "secret" not in str(told.value)


def test_a_server_that_is_not_there_is_reported_without_its_password():
    with pytest.raises(StoreError) as told:
        open_store("postgresql://nodevet:secret@127.0.0.1:1/none")
    assert "postgresql://nodevet:***@127.0.0.1:1/none" in str(told.value)


@pytest.fixture
def collected() -> Iterator[None]:
    """What a test leaves to the garbage collection is collected before the next one."""
    yield
    gc.collect()


@pytest.mark.usefixtures("collected")
def test_postgresql_restarted_in_the_middle(postgres: Postgres):
    url = postgres.database()
    with open_store(url) as store:
        recorder = store.begin(run(0, HOSTS))
        for host in range(5):
            take(recorder, 0, host)
        postgres.stop()
        postgres.start()
        for host in range(5, HOSTS):
            take(recorder, 0, host)
        recorder.finish(ended(run(0, HOSTS)))
        assert recorder.broken is not None
        assert store.run().state is RunState.INCOMPLETE
    night_of_rest(url, 0)
    with open_store(url) as store:
        is_whole(store, range(1))
        assert store.run().visited == HOSTS


def test_a_newer_schema_is_not_touched(url: str):
    from sqlalchemy import text

    with open_store(url) as store, store._database.engine.begin() as connection:
        connection.execute(text("UPDATE nodevet_schema SET version_num = '9999'"))
    with pytest.raises(StoreError, match="a newer nodevet has written it"):
        open_store(url)


def test_two_runs_can_write_at_once_while_a_reader_reads(url: str):
    with open_store(url) as one, open_store(url) as other:
        record(one, 0, *(report(f"gpu{host:03d}", machine_id=str(host)) for host in range(9)))
        reading = one.visits("last")
        next(reading)
        first, second = one.begin(run(1)), other.begin(run(2))
        for host in range(9):
            take(first, 1, host)
            take(second, 2, host)
        first.finish(ended(run(1)))
        second.finish(ended(run(2)))
        assert (first.broken, second.broken) == (None, None)
        assert len(list(reading)) == 8
        for night in (1, 2):
            failing = {f"gpu{host:03d}" for host in range(9) if fails(night, host)}
            assert {span.host for span in one.spans(run=run(night).id)} == failing


def test_prefetched_hosts_are_read_again_if_another_run_has_written(url: str):
    names = [f"gpu{host:03d}" for host in range(9)]
    with open_store(url) as store:
        first, second = store.begin(run(0, 9)), store.begin(run(1, 9))
        first.expect(names)
        take(first, 0, 0)  # the others are read with it: none was met before
        for host in reversed(range(9)):
            take(second, 1, host)
        second.finish(ended(run(1, 9)))
        for host in (8, *range(1, 8)):
            take(first, 0, host)
        first.finish(ended(run(0, 9)))
        assert (first.broken, second.broken) == (None, None)
        for night in (0, 1):
            failing = {names[host] for host in range(9) if fails(night, host)}
            assert {span.host for span in store.spans(run=run(night).id)} == failing
        assert len(list(store.evidence(run(0).id))) == 9


def test_two_processes_record_the_same_hosts_at_once(url: str):
    with open_store(url):
        pass
    told, tell = os.pipe()
    children = [begun_when_told(url, night, told) for night in range(2)]
    os.write(tell, b"go")
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    os.close(told)
    os.close(tell)
    assert codes == [0, 0]
    with open_store(url) as store:
        is_whole(store, range(2))
        assert [each.state for each in store.runs()] == [RunState.COMPLETE] * 2
        assert [each.visited for each in store.runs()] == [HOSTS] * 2
        for host in range(HOSTS):
            name = f"gpu{host:03d}"
            last, first = store.visits_of(name)
            assert {last.run, first.run} == {run(0).id, run(1).id}
            failing = fails(int(last.run[6:8]) - 1, host)
            assert sum(span.end is None for span in store.spans(host=name)) == failing


OPEN = """
import os, pwd, sys
from nodevet.store import StoreError, open_store

open_store(sys.argv[1]).close()  # all is imported while the code may be read
if os.geteuid() == 0:
    nobody = pwd.getpwnam("nobody")
    os.setgroups([])
    os.setgid(nobody.pw_gid)
    os.setuid(nobody.pw_uid)
try:
    open_store(sys.argv[2])
except StoreError as error:
    sys.exit(str(error))
"""


@pytest.fixture
def locked() -> Iterator[Path]:
    """A folder of an ordinary user's, which may not write there."""
    folder = Path(tempfile.mkdtemp(prefix="nodevet-locked-"))
    if os.geteuid() == 0:
        shutil.chown(folder, "nobody")
    folder.chmod(0o500)
    yield folder
    folder.chmod(0o700)
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", ["history.sqlite", "nodevet/history.sqlite"])
def test_a_folder_that_may_not_be_written_is_reported(locked: Path, name: str, tmp_path: Path):
    urls = (f"sqlite:///{tmp_path}/own.sqlite", f"sqlite:///{locked / name}")
    done = subprocess.run(
        [sys.executable, "-c", OPEN, *urls], capture_output=True, text=True, cwd="/"
    )
    told = f"{locked / name}: cannot create the store: Permission denied\n"
    assert (done.returncode, done.stderr) == (1, told)
    assert not list(locked.iterdir())


def test_a_folder_that_may_not_be_read_is_reported(tmp_path: Path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for place in (loop / "h.sqlite", tmp_path / ("x" * 300)):
        with pytest.raises(
            StoreError, match=r"cannot read the store: .*; check who owns its folder"
        ):
            open_store(f"sqlite:///{place}")
        with (
            pytest.raises(StoreError, match="cannot read the store"),
            open_history(f"sqlite:///{place}"),
        ):
            pytest.fail("there is none")


def test_a_damaged_piece_is_reported():
    with pytest.raises(StoreError, match="does not unpack"):
        unpack(b"nonsense", 100)
