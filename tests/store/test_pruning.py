"""Evidence is thinned out, daily, weekly, monthly; what was found stays."""

import json
from datetime import datetime, timezone

from recorded import document, ended, report, run

from nodevet.history.retention import DAY, Retention, thinned
from nodevet.store import Store

NOW = datetime(2026, 11, 22, tzinfo=timezone.utc).timestamp()


def test_of_a_week_and_of_a_month_the_first_visit_stays():
    policy = Retention(daily=7, weekly=4, monthly=3)
    visits = [(day, NOW - day * DAY) for day in range(150)]
    gone = set(thinned(visits, policy, NOW))
    kept = [day for day in range(150) if day not in gone]
    assert kept == [*range(7), 13, 20, 27, 34, 52, 82, 113, 124]
    assert list(thinned([(1, 0.0)], policy, NOW)) == [], "the last of a host always stays"


def test_pruning_keeps_what_is_told(store: Store):
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
    judged = [store.judged(each.id, "gpu001") for each in store.runs()]
    done = store.prune(Retention(daily=5, weekly=52, monthly=0), NOW)
    assert done.thinned == 12 and done.blobs >= 12
    assert store.size() < before or not store.name.endswith(".sqlite")
    assert list(store.spans()) == spans
    assert [store.judged(each.id, "gpu001") for each in store.runs()] == judged
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
