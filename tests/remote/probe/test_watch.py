"""When a watched node is looked at: clocks, deadlines and what looking may cost."""

import time
from typing import Any

import pytest

from nodevet.remote.probe import watch
from nodevet.remote.probe.collectors import host_activity, process_activity
from nodevet.remote.probe.files import Absent, Reading, SectionError


class Clock:
    """Time that passes only when somebody sleeps or works."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ahead: float = 0.0) -> None:
        self.now = 1000.0
        self.used = 0.0
        self.ahead = ahead
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "time", lambda: self.now + 1e9 + self.ahead)
        monkeypatch.setattr(time, "sleep", self.sleep)
        monkeypatch.setattr(watch, "cpu_s", lambda: self.used)

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += seconds

    def work(self, seconds: float) -> None:
        self.now += seconds
        self.used += seconds


def asked(wish: Any, **more: Any) -> dict[str, Any]:
    return {"asks": {"s": [wish]}, "deadline": 700.0, **more}


@pytest.mark.parametrize("cost", [0.0, 0.0001, 0.002, 0.05, 0.4])
def test_samples_of_a_watch_stay_within_their_share_of_cpu_time(
    monkeypatch: pytest.MonkeyPatch, cost: float
) -> None:
    clock = Clock(monkeypatch)
    found = watch.Watch("s", "/", asked({"seconds": 60, "interval": 0.5}))
    looks = 0
    for at in found.looks():
        if looks > 1 and not found.is_last:
            assert cost * (looks - 1) <= watch.SHARE * at + 1e-9
        looks += 1
        clock.work(cost)
    assert found.times[0] == 0.0
    assert found.times[-1] >= 60.0
    assert found.times == sorted(set(found.times))
    assert found.look()["cost_s"] == pytest.approx(cost * looks, abs=1e-4)
    budget_s = (
        watch.budget_s(watch.SHARE, 60) + cost
    )  # of one look more: its cost is not known before
    assert cost * looks <= max(budget_s, 2 * cost) + 1e-9
    if cost == 0.0:
        assert looks == 121


@pytest.mark.parametrize(("seconds", "used_s"), [(5, 0.045), (10, 0.09), (30, 0.09), (60, 0.36)])
def test_samples_of_a_longer_watch_leave_cpu_time_for_its_start(
    seconds: float, used_s: float
) -> None:
    """From 30 s on, 0.21 s are left for the login and all sections within 1 % of a core."""
    shares = (watch.SHARE, host_activity.SHARE, process_activity.SHARE)
    assert sum(watch.budget_s(share, seconds) for share in shares) == pytest.approx(used_s)


def test_a_watch_takes_at_most_the_samples_that_evidence_can_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Clock(monkeypatch)
    found = watch.Watch("s", "/", asked({"seconds": 600, "interval": 0.1}), 5)
    assert len(list(found.looks())) <= watch.LOOKS == 2048


def test_an_earlier_deadline_ends_a_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    found = watch.Watch("s", "/", asked({"seconds": 60}, end=clock.now + 11.0))
    list(found.looks())
    assert found.times[-1] == pytest.approx(10.0)
    late = watch.Watch("s", "/", asked({"seconds": 60}, end=clock.now - 5.0))
    assert list(late.looks()) == [0.0]


@pytest.mark.parametrize("ahead", [-3600.0, -2.0, 0.0, 2.0, 3600.0])
def test_the_start_of_a_watch_is_a_time_of_the_controllers_clock(
    monkeypatch: pytest.MonkeyPatch, ahead: float
) -> None:
    clock = Clock(monkeypatch, ahead)
    here = 1e9 + clock.now
    stamps = {"asked_s": here, "arrived_s": here + ahead}
    found = watch.Watch("s", "/", asked({"seconds": 5, "at_s": here + 7}, **stamps))
    list(found.looks())
    assert found.began_s == pytest.approx(here + ahead + 7)


def test_a_moment_that_is_past_or_far_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    for far in (-100, 10_000):
        wish = {"seconds": 5, "at_s": 1e9 + clock.now + far}
        start = clock.now
        found = watch.Watch("s", "/", asked(wish))
        list(found.looks())
        assert found.began_s == pytest.approx(1e9 + start)


@pytest.mark.parametrize(
    "wish", [{"seconds": 0}, {"seconds": 601}, {"interval": "1"}, {"seconds": True}, {"at_s": -1}]
)
def test_an_invalid_request_for_a_watch_is_refused(wish: dict[str, Any]) -> None:
    with pytest.raises(SectionError):
        watch.Watch("s", "/", asked(wish))


def test_the_tree_of_another_machine_cannot_be_watched(tmp_path: Any) -> None:
    with pytest.raises(Absent):
        watch.Watch("s", str(tmp_path), {})


def test_an_unread_counter_is_not_zero() -> None:
    series = watch.Series(("a", "b", "c"))
    series.take({"a": 1}, {"b": "EACCES"})
    series.take({"a": None, "c": 3})
    record = Reading()
    series.into(record)
    assert (record["a"], record["b"], record["c"]) == ([1, None], None, [None, 3])
    assert record["errors"] == {"b": "EACCES"}
    watch.put_counts(record, ("d", "e", "f"), {"d": 5, "e": 5}, {"d": 4, "e": 6, "f": 1})
    assert (record["d"], record["e"], record["f"]) == (None, [5, 6], None)
    assert record["errors"]["d"] == "it went back from 5 to 4"
