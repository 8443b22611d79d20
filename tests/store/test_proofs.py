"""What a run of fixes proved is no visit: no night sees it, and what it proved to be over ends."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace
from recorded import MACHINE, ended, finding, record, report, run, unreachable

from nodevet.model import HostReport, Severity
from nodevet.model.changes import FindingNews, HostNews, News
from nodevet.past.fixed_by import fixed_since
from nodevet.past.listing import run_lines
from nodevet.store import Store
from nodevet.store.records.model import FixHost, FixProof, RecordedFixRun, SpanEnd
from nodevet.store.records.retention import Retention
from nodevet.store.records.spans import OFTEN

FIX_RUN = RecordedFixRun(
    id="20261101T120000.000Z-5f1c00aa-1",
    kind="apply",
    plan="5f1c00aa",
    digest="5f" * 32,
    author="ann",
    folder="/srv/runs/5f1c00aa-1",
    started="2026-11-01T12:00:00+00:00",
    seconds=3.5,
    exit_code=0,
    hosts=(FixHost(host="gpu001", outcome="changed"),),
)
PROOF = FixProof(
    run=FIX_RUN.id,
    plan=FIX_RUN.plan,
    host="gpu001",
    check="governor",
    baseline="site",
    machine_id=MACHINE,
    asked="2026-11-01T12:00:02+00:00",
    at="2026-11-01T12:00:03+00:00",
    keys=("governor/node",),
    subjects=("",),
)
BACK = replace(
    FIX_RUN, id="later", kind="rollback", plan="5f1c00aa", started="2026-11-01T13:00:00+00:00"
)


def failing(night: int, host: str = "gpu001", **rest: Any) -> HostReport:
    return report(host, {"governor": "fail"}, night=night, **rest)


def proved(store: Store, proof: FixProof = PROOF, fix_run: RecordedFixRun = FIX_RUN) -> None:
    store.record_fix_run(fix_run, (), (proof,))


def news(told: list[HostNews]) -> list[FindingNews]:
    return [each for host in told for each in host.findings]


def everything(store: Store) -> Mapping[str, Any]:
    """What the nights have to say."""
    names = [each.id for each in store.runs()]
    spans = list(store.spans())
    return {
        "runs": store.runs(),
        "lines": run_lines(store.runs(), names, spans),
        "visits": [visit for name in names for visit in store.visits(name)],
        "newest": store.runs(limit=1),
        "reported": (store.last_reported(before=""), store.reported_visits(["gpu001"])),
        "spans": [replace(span, ended_visit=None) for span in spans],
        "standing": store.standing_verdicts("governor", names),
        "judged": [dict(store.check_verdicts(name, "gpu001")) for name in names],
        "passed": [store.passed_hosts(name, "governor", ["gpu001"]) for name in names],
        "begun": store.begun_together(["governor"]),
        "prunable": store.count_prunable(Retention(daily=0)),
    }


def test_e19_a_proof_that_is_recorded_again_replaces_the_earlier_record(store: Store) -> None:
    record(store, 0, failing(0))
    for _ in range(2):
        proved(store)
    kept = replace(PROOF, visit=1)
    assert store.proofs() == [kept] == store.proofs("gpu001")
    assert store.proofs("gpu002") == []
    later = replace(PROOF, run=BACK.id, at=BACK.started, asked=BACK.started, keys=(), subjects=())
    proved(store, later, BACK)
    assert store.proofs() == [kept, replace(later, visit=1)]
    proved(store, replace(PROOF, keys=("governor/node", "odd\0/\ud800")))
    assert store.proofs()[0].keys == ("governor/node", "odd\\x00/\\ud800")


def test_e19_a_proof_of_another_machine_is_not_of_this_host(store: Store) -> None:
    record(store, 0, failing(0))
    proved(store, replace(PROOF, machine_id="another"))
    assert store.proofs("gpu001") == []
    assert news(record(store, 1, failing(1)))[0].news is News.STILL


@pytest.mark.parametrize("after", [(), ({"governor": "ok"},)])
def test_e19_a_proof_does_not_change_the_history_of_earlier_nights(
    store: Store, after: tuple[dict[str, str], ...]
) -> None:
    record(store, 0, failing(0), failing(0, "gpu002"))
    for night, said in enumerate(after, 1):
        record(store, night, report(findings=said, night=night))
    before = everything(store)
    proved(store)
    assert everything(store) == before


def test_e19_the_next_night_reports_a_proven_fix_as_fixed(store: Store) -> None:
    record(store, 0, failing(0))
    proved(store)
    (told,) = news(record(store, 1, report(night=1)))
    assert (told.news, told.after_plan) == (News.FIXED, "")
    (span,) = store.spans()
    assert span.end is SpanEnd.OK and span.ended and span.ended.run == run(1).id


def test_e19_a_failure_after_a_proven_fix_is_new_and_names_the_plan(store: Store) -> None:
    record(store, 0, failing(0))
    proved(store)
    (told,) = news(record(store, 1, failing(1)))
    assert (told.news, told.after_plan, told.began) == (News.NEW, "5f1c00aa", 0)
    assert told.since == "2026-11-02T04:00:30+00:00"
    old, new = store.spans()
    assert (old.end, old.last.run) == (SpanEnd.CAME_BACK, run(0).id)
    assert old.ended and old.ended.run == run(1).id
    assert (new.first.run, new.since, new.after_plan) == (run(1).id, new.first, "5f1c00aa")
    lines = run_lines(store.runs(), [], store.spans())
    assert [(line.new, line.fixed) for line in lines] == [(1, 0), (1, 0)]
    standing = store.standing_verdicts("governor", [run(0).id, run(1).id])
    assert [each[0] for each in standing] == [run(0).id, run(1).id]
    (told,) = news(record(store, 2, failing(2, actual="schedutil")))
    assert (told.news, told.after_plan, told.since[:10]) == (
        News.CHANGED,
        "5f1c00aa",
        "2026-11-02",
    )
    (told,) = news(record(store, 3, failing(3, actual="schedutil")))
    assert (told.news, told.after_plan, told.since[:10]) == (News.STILL, "5f1c00aa", "2026-11-02")


def test_e19_a_failure_that_is_fixed_every_night_is_not_flapping(store: Store) -> None:
    for night in range(OFTEN + 3):
        (told,) = news(record(store, night, failing(night)))
        assert (told.news, told.began) == (News.NEW, 0)
        day = f"2026-11-{night + 1:02d}T12:00"
        proof = replace(PROOF, run=f"run {night}", asked=f"{day}:02+00:00", at=f"{day}:03+00:00")
        proved(store, proof, replace(FIX_RUN, id=f"run {night}", started=f"{day}:00+00:00"))


def test_e19_a_failure_came_back_even_if_the_host_was_not_judged_in_between(store: Store) -> None:
    record(store, 0, failing(0))
    proved(store)
    record(store, 1, unreachable(arrived="2026-11-02T04:00:30+00:00"))
    record(store, 2, replace(failing(2), baseline="other"))
    told = [each for each in news(record(store, 3, failing(3))) if each.key]
    assert [(each.news, each.after_plan) for each in told if each.news is News.NEW] == [
        (News.NEW, "5f1c00aa")
    ]


@pytest.mark.parametrize(
    "other",
    [
        {"asked": "2026-11-01T04:00:30+00:00"},  # with the visit, which may have been later
        {"at": "2026-11-02T04:00:29+00:00"},  # while the next visit read
        {"check": "power_limit"},
        {"baseline": "other"},
        {"host": "gpu002"},
        {"keys": ("governor/cpufreq/0",), "subjects": ("cpufreq 0",)},
        {"keys": (), "subjects": ()},
    ],
    ids=str,
)
def test_e19_a_failure_without_proof_remains(store: Store, other: dict[str, Any]) -> None:
    record(store, 0, failing(0), failing(0, "gpu002"))
    proved(store, replace(PROOF, **other))
    (told,) = news(record(store, 1, failing(1)))
    assert (told.news, told.after_plan) == (News.STILL, "")
    assert [span.end for span in store.spans(host="gpu001")] == [None]


def test_e19_a_proof_for_another_gpu_with_the_same_index_does_not_count(store: Store) -> None:
    said = report(findings={"xid/GPU-1": "fail"})
    record(store, 0, said)
    label = said.findings[0].subject.label
    proved(store, replace(PROOF, check="xid", keys=("xid/gpu/GPU-2",), subjects=(label,)))
    again = report(findings={"xid/GPU-1": "fail"}, night=1)
    assert news(record(store, 1, again))[0].news is News.STILL


def test_e19_visits_and_proofs_are_ordered_by_recording_not_by_clock(
    store: Store,
) -> None:
    """The controller that fixes is a day ahead of the one that sweeps."""
    record(store, 0, failing(0))
    proof = replace(PROOF, asked="2026-11-02T12:00:02+00:00", at="2026-11-02T12:00:03+00:00")
    proved(store, proof)
    assert news(record(store, 1, failing(1)))[0].news is News.STILL
    proved(store, proof)  # recorded again, as a rollback of its run does
    assert [each.visit for each in store.proofs()] == [1]
    (span,) = store.spans()
    assert span.last_visit == 2 and fixed_since(span, store.proofs()) is None
    assert news(record(store, 2, failing(2)))[0].news is News.STILL


@pytest.mark.parametrize("kind", ["rollback", "apply"])
def test_e19_a_later_run_without_proof_withdraws_the_proof(store: Store, kind: str) -> None:
    record(store, 0, failing(0))
    later = replace(PROOF, run=BACK.id, at=BACK.started, asked=BACK.started, keys=(), subjects=())
    proved(store, later, replace(BACK, kind=kind))
    proved(store)  # recorded later, and older
    assert news(record(store, 1, failing(1)))[0].news is News.STILL


def test_e19_an_unknown_check_after_a_proof_is_not_a_failure_that_came_back(store: Store) -> None:
    record(store, 0, failing(0))
    proved(store)
    (told,) = news(record(store, 1, report(findings={"governor": "unknown"}, night=1)))
    assert (told.news, told.after_plan) == (News.NEW, "")
    assert [span.end for span in store.spans()] == [SpanEnd.UNKNOWN, None]


def test_e19_a_proof_ends_only_the_failure_of_its_own_key(store: Store) -> None:
    both = {"xid/GPU-1": "fail", "xid/GPU-2": "fail"}
    record(store, 0, report(findings=both))
    proved(store, replace(PROOF, check="xid", keys=("xid/gpu/GPU-1",), subjects=()))
    told = news(record(store, 1, report(findings=both, night=1)))
    assert {each.key: each.news for each in told} == {
        "xid/gpu/GPU-1": News.NEW,
        "xid/gpu/GPU-2": News.STILL,
    }


def test_e19_a_passing_second_try_withdraws_that_the_failure_came_back(store: Store) -> None:
    record(store, 0, failing(0))
    proved(store)
    begun = run(1)
    recorder = store.begin(begun)
    assert recorder.take(failing(1), None).findings[0].after_plan == "5f1c00aa"
    (told,) = recorder.take(report(night=1), None).findings
    recorder.finish(ended(begun, hosts=1))
    assert recorder.broken is None and told.news is News.FIXED
    assert [span.end for span in store.spans()] == [SpanEnd.OK]


def test_e19_a_failure_that_returns_with_a_higher_severity_came_back_too(store: Store) -> None:
    mild = replace(finding("fail", "governor", "powersave"), severity=Severity.WARNING)
    record(store, 0, replace(report(), findings=(mild,)))
    proved(store)
    severe = replace(mild, severity=Severity.CRITICAL)
    (told,) = news(record(store, 1, replace(report(night=1), findings=(severe,))))
    assert (told.news, told.after_plan) == (News.NEW, "5f1c00aa")
