"""Evidence is thinned out, daily, weekly, monthly; what was found stays."""

import json
import multiprocessing
import os
import signal
from datetime import datetime, timezone
from pathlib import Path

import pytest
from recorded import document, ended, report, run

from nodevet.store import Store, database, open_store, pruning
from nodevet.store.records.retention import DAY, Retention, visits_to_thin

NOW = datetime(2026, 11, 22, tzinfo=timezone.utc).timestamp()


def test_the_first_visit_of_each_week_and_month_is_kept():
    policy = Retention(daily=7, weekly=4, monthly=3)
    visits = [(day, NOW - day * DAY) for day in range(150)]
    gone = set(visits_to_thin(visits, policy, NOW))
    kept = [day for day in range(150) if day not in gone]
    assert kept == [*range(7), 13, 20, 27, 34, 52, 82, 113, 124]
    assert list(visits_to_thin([(1, 0.0)], policy, NOW)) == [], "the last of a host always stays"


def test_pruning_keeps_what_is_reported(store: Store):
    for night in range(20):
        begun = run(night)
        recorder = store.begin(begun)
        said = {"governor": "fail" if night > 10 else "ok"}
        noise = [f"{night}-{number}" for number in range(3000)]
        evidence = document(sysctl={"a": noise}, host={"hostname": "gpu001", "uptime_s": night})
        recorder.take(report(findings=said, night=night), evidence)
        recorder.finish(ended(begun))
        assert recorder.broken is None
    spans, before = list(store.spans()), store.size()
    judged = [store.check_verdicts(each.id, "gpu001") for each in store.runs()]
    done = store.prune(Retention(daily=5, weekly=52, monthly=0), NOW)
    assert done.thinned == 12 and done.blobs >= 12
    if store.name.endswith(".sqlite"):  # 12 of 20 nights went, each of about the same size
        assert store.size() < before * 0.6
        assert done.freed_b == before - store.size()
    assert list(store.spans()) == spans
    assert [store.check_verdicts(each.id, "gpu001") for each in store.runs()] == judged
    visits = store.visits_of("gpu001")
    kept = [int(visit.run[6:8]) for visit in visits if visit.evidence]
    assert kept == [20, 19, 18, 17, 16, 9, 2, 1]
    assert all(visit.thinned != visit.evidence for visit in visits)
    for visit in visits:
        ((_, text),) = store.evidence(visit.run)
        assert (text is not None) == visit.evidence
        if text:
            assert (
                json.loads(text)["sections"]["host"]["data"]["uptime_s"] == int(visit.run[6:8]) - 1
            )
    again = store.prune(Retention(daily=5, weekly=52, monthly=0), NOW)
    assert (again.thinned, again.blobs) == (0, 0)
    begun = run(20)
    recorder = store.begin(begun)
    recorder.take(report(findings={"governor": "fail"}, night=20), evidence)
    recorder.finish(ended(begun))
    assert recorder.broken is None
    ((_, text),) = store.evidence("last")
    assert text is not None


def test_deleted_space_is_freed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "FREED_AT_ONCE", 100)  # pages
    file = tmp_path / "history.sqlite"
    with open_store(f"sqlite:///{file}") as store:
        engine = store._database.engine
        with engine.begin() as connection:
            connection.exec_driver_sql("create table junk (x blob)")
            connection.exec_driver_sql(
                "with recursive n(i) as (select 1 union select i + 1 from n where i < 3000) "
                "insert into junk select zeroblob(4000) from n"
            )
        store._database.give_back()
        before = file.stat().st_size
        with engine.begin() as connection:
            connection.exec_driver_sql("delete from junk")
        store._database.give_back()
        with engine.connect() as connection:
            assert connection.exec_driver_sql("pragma freelist_count").scalar() == 0
    assert file.stat().st_size < before - 3000 * 4000 * 0.95


HOSTS = tuple(f"gpu{number:03d}" for number in range(10))
SHORT = Retention(daily=3, weekly=0, monthly=0)


def nights(url: str, first: int, last: int) -> None:
    """Ten hosts, some of whose sections are those of an earlier night again."""
    with open_store(url) as store:
        for night in range(first, last):
            begun = run(night, len(HOSTS))
            recorder = store.begin(begun)
            for host in HOSTS:
                recorder.take(report(host, night=night), said_in(host, night))
            recorder.finish(ended(begun))
            assert recorder.broken is None


def said_in(host: str, night: int) -> bytes:
    again = {"a": [f"{night % 4}-{number}" for number in range(30)]}
    return document(sysctl=again, kernel={"b": night}, host={"hostname": host, "uptime_s": night})


def is_whole(store: Store) -> int:
    """How many visits have their evidence, each of which says what was read."""
    kept = 0
    for each in store.runs():
        night = int(each.id[6:8]) - 1
        for visit, text in store.evidence(each.id):
            assert (text is not None) == visit.evidence == (not visit.thinned)
            if text is not None:
                kept += 1
                assert json.loads(text) == json.loads(said_in(visit.host, night))
    return kept


def test_a_sweep_can_record_while_the_store_is_pruned(url: str, monkeypatch: pytest.MonkeyPatch):
    """Portions of a few, so that nights are recorded between them, some of whose sections are
    what would go."""
    monkeypatch.setattr(pruning, "CHUNK", 5)
    monkeypatch.setattr(pruning, "MOST", 5)
    monkeypatch.setattr("nodevet.store.database.PAUSE", 0.005)
    monkeypatch.setattr(pruning._chunks, "__defaults__", (5,))
    nights(url, 0, 12)
    recorder = multiprocessing.get_context("fork").Process(target=nights, args=(url, 12, 18))
    recorder.start()
    with open_store(url) as store:
        while recorder.is_alive():
            store.prune(SHORT, NOW)
        recorder.join()
        assert recorder.exitcode == 0
        assert is_whole(store) >= len(HOSTS)
        assert all(each.visited == len(HOSTS) for each in store.runs())
        nights(url, 18, 21)
        store.prune(SHORT, NOW)
        assert is_whole(store) == 3 * len(HOSTS)
        assert store.prune(SHORT, NOW).blobs == 0


def killed_after(url: str, portions: int) -> None:
    """Prune in a process that ends itself in the middle of a portion."""
    left = [portions]

    def die(*asked: object, **rest: object) -> int:
        left[0] -= 1
        done = asked[0](*asked[1:], **rest)  # type: ignore[operator]
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return int(done)

    thin, sweep = pruning.thin, pruning.sweep
    pruning.thin = lambda *asked, **rest: die(thin, *asked, **rest)
    pruning.sweep = lambda *asked: die(sweep, *asked)
    pruning._chunks.__defaults__ = (15,)
    pruning.portions = lambda found: pruning._chunks(found.blobs, 15)
    with open_store(url) as store:
        store.prune(SHORT, NOW)


def test_a_prune_killed_midway_leaves_the_store_consistent(url: str):
    nights(url, 0, 21)
    for portions in (1, 4, 9):
        child = multiprocessing.get_context("fork").Process(
            target=killed_after, args=(url, portions)
        )
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGKILL
        with open_store(url) as store:
            assert is_whole(store) >= 3 * len(HOSTS)
    with open_store(url) as store:
        assert store.prune(SHORT, NOW).blobs > 0
        assert is_whole(store) == 3 * len(HOSTS)
        assert store.prune(SHORT, NOW).blobs == 0


def test_the_last_evidence_of_each_sweep_stays(store: Store):
    """The next sweep of that name judges by what came since."""
    for night, series in enumerate(("weekly", "nightly", "nightly", "nightly")):
        begun = run(night, series=series)
        recorder = store.begin(begun)
        recorder.take(report(night=night), document(host={"hostname": "gpu001", "uptime_s": night}))
        recorder.finish(ended(begun))
        assert recorder.broken is None
    store.prune(Retention(daily=1, weekly=0, monthly=0), NOW)
    for series, night in (("weekly", 0), ("nightly", 3)):
        found = store.last_evidence("gpu001", series=series, reported=True)
        assert found is not None and found[0].run == run(night).id
    assert [visit.evidence for visit in store.visits_of("gpu001")] == [True, False, False, True]
