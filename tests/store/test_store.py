"""Nights are recorded and given back: runs, visits, evidence, findings as spans."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from recorded import document, ended, record, report, run, unreachable

from nodevet.model import HostOutcome, Status, Verdict
from nodevet.model.changes import News
from nodevet.store import Store, StoreError, database, open_store
from nodevet.store.records.model import RunState, SpanEnd


def test_a_run_is_found_by_id_prefix_position_and_day(store: Store):
    for night in range(3):
        record(store, night, report(night=night))
    newest, middle, oldest = store.runs()
    assert newest.state is RunState.COMPLETE and newest.visited == 1
    assert newest.outcomes == {HostOutcome.OK: 1} and newest.baselines == {"site": "0" * 64}
    assert store.run() == newest
    assert store.run("last~2") == oldest
    assert store.run("2026-11-02") == middle
    assert store.run(middle.id[:8]) == middle
    assert store.runs(limit=1, before=newest.id) == [middle]
    with pytest.raises(StoreError, match="the beginning of several runs"):
        store.run("2026")
    with pytest.raises(StoreError, match=r"no run 'last~3'.*nodevet runs"):
        store.run("last~3")


def test_a_visit_comes_back_as_it_was(store: Store):
    said = {"governor": "fail", "xid/GPU-1": "ok", "mig/GPU-1": "not_applicable"}
    record(store, 0, report(findings=said), unreachable("gpu002"))
    vetted, gone = store.visits("last")
    assert (vetted.host, vetted.status, vetted.outcome) == ("gpu001", Status.VETTED, "fail")
    assert (vetted.baseline, vetted.groups, vetted.boot_id) == ("site", ("rack1",), "b0")
    assert vetted.arrived == "2026-11-01T04:00:30+00:00"
    assert (gone.host, gone.why, gone.baseline) == ("gpu002", "connection refused", "")
    assert store.check_verdicts("last", "gpu001") == {
        "governor/node": Verdict.FAIL,
        "xid/gpu/GPU-1": Verdict.OK,
        "mig/gpu/GPU-1": Verdict.NOT_APPLICABLE,
    }
    assert store.check_verdicts("last", "gpu002") == {}


def test_evidence_comes_back_whole_or_by_section(store: Store):
    first = document(host={"hostname": "gpu001"}, sysctl={"a": 1})
    second = document(host={"hostname": "gpu001"}, sysctl={"a": 2})
    record(store, 0, report(), evidence=first)
    record(store, 1, report(night=1), evidence=second)
    ((visit, found),) = store.evidence("last")
    assert visit.evidence and found is not None and json.loads(found) == json.loads(second)
    ((_, part),) = store.evidence("last~1", sections=["sysctl"])
    assert part is not None and list(json.loads(part)["sections"]) == ["sysctl"]
    assert json.loads(part)["sections"]["sysctl"]["data"] == {"a": 1}
    last = store.last_evidence("gpu001", before_run=store.run().id)
    assert last is not None and json.loads(last[1]) == json.loads(first)
    assert store.last_evidence("gpu009") is None


def test_a_finding_is_a_span(store: Store):
    record(store, 0, report(findings={"governor": "ok"}))
    (news,) = record(store, 1, report(findings={"governor": "fail"}, night=1))
    assert [each.news for each in news.findings] == [News.NEW]
    (news,) = record(store, 2, report(findings={"governor": "fail"}, night=2))
    assert [each.news for each in news.findings] == [News.STILL]
    assert news.findings[0].since == "2026-11-02T04:00:30+00:00"
    (span,) = store.spans()
    assert (span.first.run[:8], span.last.run[:8], span.end) == ("20261102", "20261103", None)
    record(store, 3, unreachable(night=3))
    (news,) = record(store, 4, report(findings={"governor": "ok"}, night=4))
    assert {each.news for each in news.findings} == {News.FIXED}
    span, whole = store.spans(host="gpu001")
    assert (span.last.run[:8], span.end) == ("20261103", SpanEnd.OK)
    assert (whole.check, whole.why) == ("", "unreachable: connection refused")
    assert (whole.first.run[:8], whole.last.run[:8], whole.end) == (*2 * ("20261104",), "ok")


def test_another_machine_starts_a_new_history(store: Store):
    record(store, 0, report(findings={"governor": "fail"}))
    (news,) = record(store, 1, report(findings={"governor": "fail"}, night=1, machine_id="other"))
    assert news.replaced and news.new_findings[0].since[:10] == "2026-11-02"
    old, new = store.spans()
    assert (old.end, new.end, new.since) == (SpanEnd.REPLACED, None, None)


def test_a_second_try_replaces_the_first(store: Store):
    record(store, 0, report(findings={"governor": "fail"}))
    begun = run(1)
    recorder = store.begin(begun)
    recorder.take(unreachable(night=1), None)
    news = recorder.take(report(findings={"governor": "fail"}, night=1), document(host={}))
    recorder.finish(ended(begun))
    assert recorder.broken is None
    assert [each.news for each in news.findings] == [News.STILL]
    (visit,) = store.visits("last")
    assert visit.status is Status.VETTED and visit.evidence
    assert store.run().outcomes == {HostOutcome.FAIL: 1}
    (span,) = store.spans()
    assert span.end is None


def test_the_next_page_is_read_only_when_the_previous_one_ends(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(database, "PAGE", 3)
    names, said = [f"gpu{host:03d}" for host in range(8)], {"governor": "fail"}
    begun = run(0, len(names))
    recorder = store.begin(begun)
    for name in names[:7]:
        recorder.take(report(name, said, machine_id=name), document(host={"hostname": name}))
    recorder.finish(ended(begun, state=RunState.INCOMPLETE))
    assert [visit.host for visit in store.visits(begun.id)] == names[:7]
    assert [span.host for span in store.spans()] == names[:7]
    read = [str(document) for _, document in store.evidence(begun.id)]
    assert len(read) == 7 and all(map(str.__contains__, read, names))
    slow = store.visits(begun.id)
    next(slow)
    again, _ = store.resume(begun.id)
    again.take(report(names[7], said, machine_id=names[7]), None)
    again.finish(ended(begun))
    assert [visit.host for visit in slow] == names[1:], "the last came after the first page"


def test_a_run_is_resumed(store: Store):
    begun = run(0, 3)
    recorder = store.begin(begun)
    recorder.take(report("gpu001"), None)
    with pytest.raises(StoreError, match="still being recorded"):
        store.resume(begun.id)
    recorder.finish(ended(begun, state=RunState.INCOMPLETE))
    again, done = store.resume(begun.id)
    assert done == {"gpu001"}
    again.take(report("gpu002"), None)
    again.finish(ended(begun))
    assert store.run().visited == 2
    with pytest.raises(StoreError, match="is complete"):
        store.resume("last")


def test_only_the_owner_can_read_a_store(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/state/history.sqlite"
    with open_store(url) as store:
        record(store, 0, report())
        files = sorted((tmp_path / "state").iterdir())
        assert {stat.S_IMODE(each.stat().st_mode) for each in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    with pytest.raises(StoreError, match="no store yet"):
        open_store(f"sqlite:///{tmp_path}/none", create=False)


def test_a_store_that_is_current_needs_neither_alembic_nor_postgresql(tmp_path):
    code = (
        "import sys; from nodevet.store import open_store\n"
        f"open_store('sqlite:///{tmp_path}/history.sqlite').close()\n"
        "print(*(name for name in sys.modules if name in "
        "('alembic', 'sqlalchemy.orm', 'sqlalchemy.dialects.postgresql')))"
    )
    new, current = (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(2)
    )
    assert "alembic" in new.stdout.split()
    assert current.stdout.split() == []
