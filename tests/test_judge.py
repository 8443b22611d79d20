"""The judge: stamps findings, survives broken checks, applies waivers."""

import json
from datetime import date
from pathlib import Path

import pytest

from nodevet.catalog import Catalog
from nodevet.evidence import Evidence, decode
from nodevet.judge import judge
from nodevet.model import Baseline, Expectation, Finding, Severity, Verdict, Waiver, Want

CHECK = """
from nodevet.model import Check, Want, wrong, ok, Subject

def judge(evidence, want):
    {body}

CHECK = Check(wants=Want, reads=(), judge=judge)
"""
TODAY = date(2026, 11, 20)


def evidence() -> Evidence:
    return decode(json.dumps({"schema": 1, "probe": "test", "sections": {}}))


def ask(folder: Path, body: str, *waivers: Waiver, host: str = "gpu001") -> tuple[Finding, ...]:
    (folder / "site.py").write_text(CHECK.format(body=body))
    wish = Expectation(check="site", want=Want(), severity=Severity.INFO, origin="b.yaml:3")
    baseline = Baseline(name="b", path="b.yaml", expectations=(wish,), waivers=waivers)
    return judge(evidence(), baseline, Catalog([folder]), host=host, today=TODAY)


WRONG_GPU = "yield wrong(Subject(kind='gpu', id='4', uuid='GPU-1', bus_id='0000:19:00.0'))"


def waiver(**changes: object) -> Waiver:
    known: dict[str, object] = {
        "check": "site",
        "owner": "ops",
        "reason": "riser on order",
        "until": TODAY,
    }
    return Waiver(**{**known, **changes})  # type: ignore[arg-type]


def test_a_finding_says_which_check_and_where_it_was_wanted(tmp_path: Path) -> None:
    (finding,) = ask(tmp_path, "yield ok()")
    assert (finding.check, finding.severity, finding.origin) == ("site", Severity.INFO, "b.yaml:3")
    assert finding.verdict is Verdict.OK


def test_a_check_that_fails_keeps_what_it_said_and_is_unknown(tmp_path: Path) -> None:
    first, second = ask(tmp_path, "yield ok(); raise ValueError('no such bank')")
    assert first.verdict is Verdict.OK
    assert second.verdict is Verdict.UNKNOWN
    assert second.why == "the check itself failed: ValueError: no such bank"


def test_a_silent_check_is_unknown(tmp_path: Path) -> None:
    (finding,) = ask(tmp_path, "return iter(())")
    assert (finding.verdict, finding.why) == (Verdict.UNKNOWN, "the check said nothing")


def test_a_check_that_cannot_be_loaded_is_unknown(tmp_path: Path) -> None:
    wish = Expectation(check="gone", want=Want(), severity=Severity.INFO, origin="b.yaml:3")
    baseline = Baseline(name="b", path="b.yaml", expectations=(wish,))
    (finding,) = judge(evidence(), baseline, Catalog([tmp_path]), host="n", today=TODAY)
    assert finding.verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"hosts": frozenset({"gpu001"})},
        {"subject": "GPU 4"},
        {"subject": "GPU-1"},
        {"subject": "0000:19:00.0"},
    ],
)
def test_a_waiver_in_force(tmp_path: Path, changes: dict[str, object]) -> None:
    (finding,) = ask(tmp_path, WRONG_GPU, waiver(**changes))
    assert finding.verdict is Verdict.WAIVED
    assert finding.waiver == "until 2026-11-20 (ops: riser on order)"


@pytest.mark.parametrize(
    "changes",
    [
        {"hosts": frozenset({"gpu002"})},
        {"subject": "GPU 5"},
        {"check": "other"},
        {"hosts": frozenset()},
    ],
)
def test_a_waiver_of_something_else(tmp_path: Path, changes: dict[str, object]) -> None:
    (finding,) = ask(tmp_path, WRONG_GPU, waiver(**changes))
    assert (finding.verdict, finding.waiver) == (Verdict.WRONG, "")


def test_an_expired_waiver_is_wrong_and_says_so(tmp_path: Path) -> None:
    (finding,) = ask(tmp_path, WRONG_GPU, waiver(until=date(2026, 11, 19)))
    assert finding.verdict is Verdict.WRONG
    assert finding.waiver == "expired 2026-11-19 (ops: riser on order)"


def test_the_latest_of_several_waivers_counts(tmp_path: Path) -> None:
    old, new = waiver(until=date(2026, 1, 1)), waiver(until=date(2027, 1, 1))
    (finding,) = ask(tmp_path, WRONG_GPU, new, old)
    assert finding.verdict is Verdict.WAIVED


def test_a_waiver_never_touches_what_is_ok(tmp_path: Path) -> None:
    (finding,) = ask(tmp_path, "yield ok()", waiver())
    assert (finding.verdict, finding.waiver) == (Verdict.OK, "")


def test_a_waiver_does_not_cover_unknown(tmp_path: Path) -> None:
    (finding,) = ask(tmp_path, "raise ValueError('x')", waiver())
    assert (finding.verdict, finding.waiver) == (Verdict.UNKNOWN, "")
