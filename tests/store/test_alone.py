"""One run of a sweep at a time, whoever begins it, and how long a dead one is waited for."""

import os
import time
import warnings
from pathlib import Path

import pytest
from recorded import ended, report, run
from sqlalchemy import text

from nodevet.model.run import Run
from nodevet.store import Store, StoreHeldError, open_store, runs
from nodevet.vet.terminal.output import Sinks
from nodevet.vet.terminal.progress import watched
from nodevet.vet.use import recording
from nodevet.vet.use.listener import VetListener

MANY = 6


def begins_when_told(url: str, night: int, told: int, over: int) -> int:
    """A process that begins a sweep when it is told to, and ends with 7 if another one has it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        code = 1
        try:
            with open_store(url) as store:
                os.read(told, 1)
                store.begin(run(night), alone=True)
                code = 0
                os.read(over, 1)
        except StoreHeldError:
            code = 7
        finally:
            os._exit(code)
    return child


def test_only_one_of_several_sweeps_that_start_at_once_runs(url: str) -> None:
    open_store(url).close()
    (told, tell), (over, end) = os.pipe(), os.pipe()
    children = {begins_when_told(url, night, told, over) for night in range(MANY)}
    time.sleep(0.5)  # so that most have opened the store
    os.write(tell, b"." * MANY)
    codes = {}
    while len(codes) < MANY - 1:  # the one that has begun goes on
        child, status = os.waitpid(-1, 0)
        if child in children:
            codes[child] = os.waitstatus_to_exitcode(status)
    os.write(end, b".")
    (last,) = children - codes.keys()
    assert os.waitstatus_to_exitcode(os.waitpid(last, 0)[1]) == 0
    assert set(codes.values()) == {7}
    for each in (told, tell, over, end):
        os.close(each)


def changed(store: Store, what: str) -> None:
    with store._database.engine.begin() as connection:
        connection.execute(text(f"update run set {what}"))


def test_a_run_of_another_machine_blocks_others_until_5_minutes_without_heartbeat(
    store: Store,
) -> None:
    recorder = store.begin(run(0), alone=True)
    with pytest.raises(StoreHeldError, match=f"swept by process {os.getpid()} on"):
        store.begin(run(1), alone=True)
    store.begin(run(1, series="other"), alone=True)
    store.begin(run(2))  # it did not ask to be alone
    changed(store, "state = 'complete' where id > 1")
    changed(store, "owner = 'far 1 1'")
    changed(store, f"touched = touched - {runs.QUIET - 60}")
    with pytest.raises(StoreHeldError, match=r"process 1 on far, .* wait 5 minutes, or: --no-lock"):
        store.require_free("nightly")
    changed(store, "touched = touched - 61")
    store.require_free("nightly")
    recorder.beat()
    with pytest.raises(StoreHeldError):
        store.begin(run(3), alone=True)
    changed(store, f"touched = touched - {runs.QUIET + 1}")
    recorder.finish(ended(store.run(run(0).id)))
    store.begin(run(3), alone=True)


def test_a_run_sends_heartbeats_while_its_hosts_are_slow(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "BEAT", 0.02)
    seen = run(0)
    goes = Run(id=seen.id, nodevet="0", started=seen.started, seconds=0.0)
    with recording.Recording(store, VetListener(), series="nightly", alone=True) as going:
        going.began(goes, ("gpu001",))
        changed(store, "owner = 'far 1 1', touched = 0")
        end = time.monotonic() + 120
        while time.monotonic() < end:
            try:
                store.require_free("nightly")
            except StoreHeldError:
                break
            time.sleep(0.02)
        else:
            pytest.fail("there was no sign of life")
        going.took(report("gpu001"))
        going.ended(goes)
    store.require_free("nightly")


def test_a_host_is_written_while_another_one_takes_its_time(store: Store) -> None:
    recorder = store.begin(run(0))
    recorder.take(report("gpu001"), None)
    assert list(store.visits("last")) == []
    recorder.beat()
    assert [visit.host for visit in store.visits("last")] == ["gpu001"]
    recorder.take(report("gpu002"), None)
    recorder.finish(ended(store.run(run(0).id)))
    assert [visit.host for visit in store.visits("last")] == ["gpu001", "gpu002"]


def test_a_refused_run_keeps_the_report_of_the_running_one(store: Store, tmp_path: Path) -> None:
    file, seen = tmp_path / "hosts.jsonl", run(1)
    file.write_text("theirs\n")
    goes = Run(id=seen.id, nodevet="0", started=seen.started, seconds=0.0)
    store.begin(run(0), alone=True)
    with watched(1, Sinks([f"jsonl:{file}"])) as listener:
        mine = recording.Recording(store, listener, series="nightly", alone=True)
        with mine, pytest.raises(StoreHeldError):
            mine.began(goes, ("gpu001",))
        assert file.read_text() == "theirs\n"
        listener.took(report("gpu001"))
        listener.took(report("gpu002"))
    assert len(file.read_text().splitlines()) == 2 and "theirs" not in file.read_text()
