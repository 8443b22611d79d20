"""Whatever the nights bring: the spans say who failed what in which run, and what was news."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from recorded import finding, record, report, run, unreachable

from nodevet.model import Status, Verdict
from nodevet.model.changes import FindingNews, HostNews, News
from nodevet.store import Store, open_store
from nodevet.store.records.model import SpanEnd

KEYS = ("governor", "xid/GPU-1", "xid/GPU-2")
SAID = st.dictionaries(
    st.sampled_from(KEYS),
    st.tuples(st.sampled_from([verdict.value for verdict in Verdict]), st.sampled_from("ab")),
)
NIGHT = st.fixed_dictionaries(
    {
        "how": st.sampled_from(["vetted"] * 4 + ["unreachable", "interrupted", "away"]),
        "why": st.sampled_from(["refused", "no route"]),
        "machine": st.sampled_from(["one"] * 6 + ["two"]),
        "baseline": st.sampled_from(["site"] * 4 + ["other"]),
        "said": SAID,
        "again": st.booleans(),
    }
)
SPANNING = ("fail", "unknown", "waived")
TROUBLE = ("fail", "unknown")


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("empty") / "h.sqlite"
    open_store(f"sqlite:///{path}").close()
    return path


def said_by(night: Mapping[str, Any]) -> Any:
    return tuple(finding(said, key, actual) for key, (said, actual) in night["said"].items())


@given(st.lists(NIGHT, min_size=1, max_size=8))
@settings(max_examples=15, deadline=None)
def test_spans_and_news_are_right_for_any_sequence_of_nights(
    empty: Path, nights: list[dict[str, Any]]
):
    path = empty.with_name("one.sqlite")
    for each in empty.parent.glob("one.sqlite*"):
        each.unlink()
    shutil.copy(empty, path)
    with open_store(f"sqlite:///{path}") as store:
        last: dict[str, dict[str, tuple[str, str]]] = {}  # by baseline
        machine = None
        for number, night in enumerate(nights):
            if night["how"] == "away":
                continue
            if night["how"] != "vetted":
                status = Status(night["how"])
                record(store, number, unreachable(night=number, status=status, why=night["why"]))
                continue
            made = report(
                night=number,
                findings={},
                machine_id=night["machine"],
                baseline=night["baseline"],
            )
            made = replace(made, findings=said_by(night))
            tries = [unreachable(night=number), made] if night["again"] else [made]
            *_, news = record(store, number, *tries)
            if machine not in (None, night["machine"]):
                last.clear()
            machine = night["machine"]
            before = last.get(night["baseline"], {})
            expected = {
                key_of(key): told(before.get(key), now)
                for key, now in night["said"].items()
                if now[0] in TROUBLE
            }
            found = {
                each.key: each.news
                for each in news.findings
                if each.news in (News.NEW, News.CHANGED, News.STILL)
            }
            assert found == expected
            fixed = {
                key_of(key)
                for key, was in before.items()
                if was[0] in TROUBLE and night["said"].get(key, ("",))[0] == "ok"
            }
            assert {each.key for each in news.findings_of(News.FIXED) if each.check} == fixed
            last[night["baseline"]] = night["said"]
        are_given_back(store, nights)


def key_of(key: str) -> str:
    return finding("ok", key).key


def told(was: tuple[str, str] | None, now: tuple[str, str]) -> News:
    if was is None or was[0] != now[0]:
        return News.NEW
    return News.STILL if was == now else News.CHANGED


def are_given_back(store: Store, nights: list[dict[str, Any]]) -> None:
    for number, night in enumerate(nights):
        if night["how"] == "away":
            continue
        spans = list(store.spans(run=run(number).id))
        if night["how"] == "vetted":
            assert sorted(
                (span.key, span.verdict.value, span.finding.actual)
                for span in spans
                if span.finding
            ) == sorted(
                (key_of(key), said, actual)
                for key, (said, actual) in night["said"].items()
                if said in SPANNING
            )
            assert all(span.check for span in spans)
        elif night["how"] == "unreachable":
            assert [span.why for span in spans] == [f"unreachable: {night['why']}"]
        else:
            assert spans == []


def flapping(news: HostNews) -> list[FindingNews]:
    return [finding for finding in news.findings if finding.began]


def test_a_failure_that_begins_three_times_in_ten_visits_is_flapping(store: Store):
    for night, said in enumerate(["fail", "ok", "fail", "ok", "fail", "fail"]):
        (news,) = record(store, night, report(findings={"governor": said}, night=night))
        assert bool(flapping(news)) == (night >= 4)
    assert flapping(news)[0].began == 3
    for night in range(6, 12):
        (news,) = record(store, night, report(findings={"governor": "fail"}, night=night))
    assert not flapping(news)
    (news,) = record(store, 12, report(findings={"governor": "ok"}, night=12))
    (news,) = record(store, 13, report(findings={"governor": "fail"}, night=13, machine_id="new"))
    assert not flapping(news)


def test_a_host_that_is_lost_three_times_in_ten_visits_is_flapping(store: Store):
    for night in range(7):
        made = unreachable(night=night) if night % 2 else report(night=night)
        (news,) = record(store, night, made)
        assert [(each.key, each.began) for each in flapping(news)] == [("", 3)] * (night >= 5)
    for night in range(7, 15):
        (news,) = record(store, night, report(night=night))
        assert not flapping(news)
    (news,) = record(store, 15, unreachable(night=15))
    assert news.findings and not flapping(news), "the other times are more than ten visits ago"


def test_a_failure_with_a_changed_value_keeps_its_since_date(store: Store):
    for night, actual in enumerate(["a", "b", "c"]):
        made = report(findings={"governor": "fail"}, night=night, actual=actual)
        (news,) = record(store, night, made)
    (changed,) = news.findings_of(News.CHANGED)
    assert changed.since[:10] == "2026-11-01" and changed.before is not None
    assert changed.before.actual == "b"
    first, second, third = store.spans()
    assert (first.end, second.end, third.end) == (SpanEnd.CHANGED, SpanEnd.CHANGED, None)
    assert third.since == first.first and first.since is None
