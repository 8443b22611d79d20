"""Plans and runs of fixes are kept, each once, whatever hosts they are of."""

import time

from msgspec.structs import replace
from recorded import record, report

from nodevet.store import Store
from nodevet.store.records.model import FixHost, RecordedAction, RecordedFixRun, RecordedPlan
from nodevet.store.records.retention import Retention

PLAN = RecordedPlan(
    digest="ab" * 32,
    id="7f3a91c2",
    author="ann",
    created="2026-11-02T10:00:00+00:00",
    hosts={"gpu001": ("power_limit", "cpu_governor"), "gpu777": ("cpu_governor",)},
)
RUN = RecordedFixRun(
    id="20261102T101500.000Z-7f3a91c2-1",
    kind="apply",
    plan=PLAN.id,
    digest=PLAN.digest,
    author="ann",
    approvals=("bob", "eve\0"),
    by="ann@ctl1",
    folder="/srv/runs/7f3a91c2-1",
    started="2026-11-02T12:15:00+02:00",
    seconds=3.5,
    outcomes={"changed": 1, "refused": 1},
    hosts=(
        FixHost(host="gpu001", outcome="changed"),
        FixHost(host="gpu777", outcome="refused", why="in use by \ud800"),
    ),
)


def action(**changes: str) -> RecordedAction:
    found = RecordedAction(
        run=RUN.id,
        kind="apply",
        plan=PLAN.id,
        host="gpu001",
        step="gpu001/power_limit/1",
        fix="power_limit",
        subjects=("GPU 0",),
        resource="gpu GPU-1:power_limit_mw",
        before="500 W",
        after="700 W",
        outcome="changed",
        at="2026-11-02T10:15:02+00:00",
    )
    return replace(found, **changes)


def test_a_plan_is_kept_once_with_its_text(store: Store) -> None:
    store.record_plan(PLAN, b"plan")
    store.record_plan(PLAN, b"plan")
    assert store.plans() == [PLAN]
    assert store.plans("gpu777") == [replace(PLAN, hosts={"gpu777": ("cpu_governor",)})]
    assert store.plans("gpu002") == []
    store.prune(Retention(daily=1, weekly=0, monthly=0), time.time())
    assert store.plan_text(PLAN.digest) == b"plan" and store.plan_text("00") is None


def test_a_fix_run_that_is_recorded_again_replaces_the_earlier_record(store: Store) -> None:
    record(store, 0, report(findings={"governor": "fail"}))
    begun = replace(RUN, outcomes={}, hosts=())
    store.record_fix_run(begun, [])
    assert store.fix_runs() == [begun]
    for _ in range(2):
        store.record_fix_run(replace(RUN, exit_code=1), [action(), action(before="9\0 W")])
    (found,) = store.fix_runs()
    assert (found.exit_code, found.outcomes, found.started) == (1, RUN.outcomes, RUN.started)
    assert [each.host for each in found.hosts] == ["gpu001", "gpu777"]
    assert found.hosts[1].why == "in use by \\ud800"
    assert store.actions("gpu001") == [action(), action(before="9\\x00 W")]
    back = replace(RUN, id="20261103", kind="rollback", started="2026-11-03T10:00:00+00:00")
    undone = action(run=back.id, kind="rollback", before="700 W", after="500 W", at=back.started)
    store.record_fix_run(back, [undone])
    assert [each.id for each in store.fix_runs()] == [back.id, RUN.id]
    assert [each.id for each in store.fix_runs(after="2026-11-03")] == [back.id]
    assert [each.id for each in store.fix_runs(limit=1)] == [back.id]
    (host,) = store.fix_runs(host="gpu777")[0].hosts
    assert host.host == "gpu777" and store.fix_runs(host="gpu002") == []
    assert store.actions()[-1] == undone and len(store.actions()) == 3
