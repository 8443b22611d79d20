"""What fixed a finding is told only if it is certain."""

from typing import Any

import five_nights
import pytest
from msgspec.structs import replace

from nodevet.history.fixed_by import fixed_by
from nodevet.history.model import FindingSpan, Moment, SpanEnd
from nodevet.model import Finding, Severity, Subject, Verdict

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
