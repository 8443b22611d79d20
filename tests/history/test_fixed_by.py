"""What fixed a finding is told only if it is certain."""

from pathlib import Path
from typing import Any

import five_nights
import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from recorded import document, record, report

from nodevet.cli import nodevet
from nodevet.history.fixed_by import fixed_by, fixed_since
from nodevet.history.model import FindingSpan, Moment, SpanEnd
from nodevet.model import Finding, Severity, Subject, Verdict
from nodevet.store import open_store

_, (ACTION,) = five_nights.fix_of_the_governor()
SPAN = FindingSpan(
    host="a100-02",
    baseline="site-a100",
    key="cpu_governor",
    check="cpu_governor",
    verdict=Verdict.FAIL,
    severity=Severity.WARNING,
    finding=Finding(verdict=Verdict.FAIL, subject=Subject(kind="cpufreq", id="0-31")),
    first=Moment(at="2026-11-16T02:00:00+00:00", run="1"),
    last=Moment(at="2026-11-18T02:00:00+00:00", run="3"),
    end=SpanEnd.OK,
    since_visit=1,
    ended=Moment(at="2026-11-19T02:00:00+00:00", run="4"),
)


def test_the_last_change_by_the_checks_own_fix_fixed_it() -> None:
    again = replace(ACTION, at="2026-11-18T20:00:00+00:00", run="later")
    assert fixed_by(SPAN, [ACTION]) == ACTION
    assert fixed_by(SPAN, [again, ACTION]) == again


@pytest.mark.parametrize(
    "other",
    [
        {"host": "a100-03"},
        {"fix": "power_limit"},
        {"subjects": ("cpufreq 32-63",)},
        {"outcome": "failed_and_rolled_back"},
        {"outcome": "pending"},
        {"outcome": "unknown"},
        {"at": "2026-11-18T01:59:00+00:00"},
        {"at": "2026-11-19T02:00:01+00:00"},
    ],
    ids=str,
)
def test_any_other_change_is_not_said_to_have(other: dict[str, Any]) -> None:
    assert fixed_by(SPAN, [replace(ACTION, **other)]) is None


@pytest.mark.parametrize("kind", ["rollback", "apply"])
def test_nor_is_one_that_was_rolled_back_or_in_doubt_since(kind: str) -> None:
    outcome = "rolled_back" if kind == "rollback" else "unknown"
    since = replace(ACTION, kind=kind, outcome=outcome, at="2026-11-18T21:00:00+00:00")
    assert fixed_by(SPAN, [ACTION, since]) is None


@pytest.mark.parametrize("end", [SpanEnd.GONE, SpanEnd.WAIVED, SpanEnd.REPLACED, None])
def test_nor_of_what_the_check_does_not_say_is_ok(end: SpanEnd | None) -> None:
    assert fixed_by(replace(SPAN, end=end), [ACTION]) is None


BAD = Finding(verdict=Verdict.FAIL, expected=700, actual=[500])
STANDING = replace(SPAN, end=None, ended=None)


def test_e19_what_an_apply_fixed_and_verified_since_the_last_visit_is_not_wrong_now() -> None:
    assert fixed_since(STANDING, [ACTION]) == ACTION
    assert fixed_since(SPAN, [ACTION]) is None, "a visit has seen it"


@pytest.mark.parametrize(
    "other",
    [
        {"host": "a100-03"},
        {"fix": "power_limit"},
        {"subjects": ("cpufreq 32-63",)},
        {"outcome": "failed_and_rolled_back"},
        {"outcome": "pending"},
        {"outcome": "unknown"},
        {"at": "2026-11-18T01:59:00+00:00"},
    ],
    ids=str,
)
def test_e19_what_no_apply_verified_since_is_wrong_still(other: dict[str, Any]) -> None:
    assert fixed_since(STANDING, [replace(ACTION, **other)]) is None


@pytest.mark.parametrize("kind", ["rollback", "apply"])
def test_e19_what_was_rolled_back_since_is_wrong_still(kind: str) -> None:
    outcome = "rolled_back" if kind == "rollback" else "unknown"
    since = replace(ACTION, kind=kind, outcome=outcome, at="2026-11-18T21:00:00+00:00")
    assert fixed_since(STANDING, [ACTION, since]) is None


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: Any, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'history.sqlite'}"
    found: str = request.getfixturevalue("postgres").database()
    return found


def test_e19_history_and_passport_say_fixed_and_not_vetted_since(url: str) -> None:
    """A fix after the last night; the other finding of the host is wrong still."""
    gpu = {"kind": "gpu", "id": "4", "uuid": "GPU-1", "bus_id": "0000:19:00.0"}
    bad = tuple(
        Finding(
            verdict=Verdict.FAIL, check=check, subject=Subject(**gpu), expected=700, actual=[500]
        )
        for check in ("power_limit", "gpu_clocks")
    )
    read = document(gpu={"gpus": [{"index": 4, "uuid": "GPU-1", "bus_id": gpu["bus_id"]}]})
    action = replace(
        ACTION,
        host="gpu001",
        fix="power_limit",
        subjects=("GPU 4",),
        at="2026-11-01T09:00:00+00:00",
    )
    fix_run, _ = five_nights.fix_of_the_governor()
    with open_store(url) as store:
        record(store, 0, replace(report(), findings=bad), evidence=read)
        store.record_fix_run(fix_run, [action])
    shown = {
        words: CliRunner().invoke(nodevet, [*words.split(), "--store", url]).stdout
        for words in ("history gpu001", "passport GPU-1")
    }
    for text in shown.values():
        assert f"ixed by plan {action.plan} at" in text and "not vetted since" in text
    wrong = shown["history gpu001"].partition("What is wrong now")[2].partition("Fixed by")[0]
    assert "gpu_clocks" in wrong and "power_limit" not in wrong
    (fixed,) = [row for row in shown["passport GPU-1"].splitlines() if "not vetted since" in row]
    assert "power_limit" in fixed or "fixed by" in fixed
    with open_store(url) as store:  # the next night has seen it
        record(store, 1, replace(report(night=1), findings=bad), evidence=read)
    again = CliRunner().invoke(nodevet, ["history", "gpu001", "--store", url]).stdout
    assert "not vetted since" not in again
