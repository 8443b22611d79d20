"""What fixed a finding is told only if it is certain."""

import json
from typing import Any

import five_nights
import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from recorded import document, record, report

from nodevet.cli import nodevet
from nodevet.model import Finding, Severity, Subject, Verdict
from nodevet.past.fixed_by import find_proof, fixed_by, fixed_since
from nodevet.store import open_store
from nodevet.store.records.model import FindingSpan, FixHost, FixProof, Moment, SpanEnd

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
def test_a_change_of_another_host_fix_or_outcome_did_not_fix_it(other: dict[str, Any]) -> None:
    assert fixed_by(SPAN, [replace(ACTION, **other)]) is None


@pytest.mark.parametrize("kind", ["rollback", "apply"])
def test_a_change_later_rolled_back_or_unknown_did_not_fix_a_finding(kind: str) -> None:
    outcome = "rolled_back" if kind == "rollback" else "unknown"
    since = replace(ACTION, kind=kind, outcome=outcome, at="2026-11-18T21:00:00+00:00")
    assert fixed_by(SPAN, [ACTION, since]) is None


@pytest.mark.parametrize("end", [SpanEnd.GONE, SpanEnd.WAIVED, SpanEnd.REPLACED, None])
def test_a_finding_that_did_not_become_ok_was_not_fixed(end: SpanEnd | None) -> None:
    assert fixed_by(replace(SPAN, end=end), [ACTION]) is None


STANDING = replace(SPAN, end=None, ended=None)
PROOF = FixProof(
    run=ACTION.run,
    plan=ACTION.plan,
    host="a100-02",
    check="cpu_governor",
    baseline="site-a100",
    asked="2026-11-18T14:10:05+00:00",
    at="2026-11-18T14:10:06+00:00",
    keys=("cpu_governor/cpufreq/0-63",),
    subjects=("cpufreq 0-31",),
)


def test_e19_a_finding_that_an_apply_fixed_and_verified_since_the_last_visit_is_fixed() -> None:
    assert fixed_since(STANDING, [PROOF]) == PROOF
    by_key = replace(PROOF, keys=(SPAN.key,), subjects=())
    assert fixed_since(STANDING, [by_key]) == by_key
    assert fixed_since(SPAN, [PROOF]) is None, "a visit has seen it"
    assert find_proof(SPAN, [PROOF]) == PROOF, "before that visit"


@pytest.mark.parametrize(
    "other",
    [
        {"host": "a100-03"},
        {"check": "power_limit"},
        {"baseline": "site-h100"},
        {"subjects": ("cpufreq 32-63",)},
        {"keys": (), "subjects": ()},
        {"asked": "2026-11-18T01:59:00+00:00"},
        {"asked": "2026-11-18T02:00:00+00:00"},
    ],
    ids=str,
)
def test_e19_a_finding_that_no_later_apply_verified_still_fails(other: dict[str, Any]) -> None:
    assert fixed_since(STANDING, [replace(PROOF, **other)]) is None


@pytest.mark.parametrize(
    "other", [{"keys": (), "subjects": ()}, {"baseline": "site-h100"}], ids=str
)
def test_e19_a_finding_that_a_later_run_changed_without_proof_still_fails(
    other: dict[str, Any],
) -> None:
    later = "2026-11-18T21:00:00+00:00"
    since = replace(PROOF, run="later", asked=later, at=later, **other)
    assert fixed_since(STANDING, [PROOF, since]) is None


def test_e19_a_gpu_index_does_not_identify_a_fixed_gpu() -> None:
    subject = Subject(kind="gpu", id="4", uuid="GPU-1")
    span = replace(STANDING, finding=Finding(verdict=Verdict.FAIL, subject=subject))
    assert fixed_since(span, [replace(PROOF, subjects=("GPU 4",))]) is None


GPU = {"kind": "gpu", "id": "4", "uuid": "GPU-1", "bus_id": "0000:19:00.0"}
BAD = tuple(
    Finding(verdict=Verdict.FAIL, check=check, subject=Subject(**GPU), expected=700, actual=[500])
    for check in ("power_limit", "gpu_clocks")
)
READ = document(gpu={"gpus": [{"index": 4, "uuid": "GPU-1", "bus_id": GPU["bus_id"]}]})


def fixed(url: str) -> None:
    """A night in which two checks fail, and a fix of one of them at nine o'clock."""
    fix_run, _ = five_nights.fix_of_the_governor()
    proof = replace(
        PROOF,
        run=fix_run.id,
        host="gpu001",
        check="power_limit",
        baseline="site",
        asked="2026-11-01T09:00:00+00:00",
        at="2026-11-01T09:00:01+00:00",
        keys=("power_limit/gpu/GPU-1",),
        subjects=("GPU 4",),
    )
    with open_store(url) as store:
        record(store, 0, replace(report(), findings=BAD), evidence=READ)
        came = (FixHost(host=proof.host, outcome="changed"),)
        store.record_fix_run(replace(fix_run, hosts=came), (), (proof,))


def shown(url: str, words: str) -> str:
    done = CliRunner().invoke(nodevet, [*words.split(), "--store", url], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_e19_history_and_passport_report_a_fix_that_no_visit_has_seen_yet(url: str) -> None:
    """A fix after the last night; the other finding of the host is wrong still."""
    fixed(url)
    told = {words: shown(url, words) for words in ("history gpu001", "part GPU-1")}
    for text in told.values():
        assert f"ixed by plan {PROOF.plan} at" in text and "not vetted since" in text
    wrong = told["history gpu001"].partition("What is wrong now")[2].partition("Fixed by")[0]
    assert "gpu_clocks" in wrong and "power_limit" not in wrong
    (row,) = [row for row in told["part GPU-1"].splitlines() if "not vetted since" in row]
    assert "power_limit" in row or "fixed by" in row


def events(url: str) -> list[tuple[str, str, str]]:
    told = json.loads(shown(url, "history gpu001 --format json"))
    return [
        (each["kind"], each["at"][:13], each.get("after_plan", ""))
        for each in told["events"]
        if (each["finding"] or {}).get("check") == "power_limit"
    ]


def test_e19_the_history_reports_when_a_finding_was_fixed_and_came_back(url: str) -> None:
    fixed(url)
    began, over = ("fails", "2026-11-01T04", ""), ("fixed", "2026-11-01T09", "")
    assert events(url) == [began, over]
    with open_store(url) as store:
        record(store, 1, replace(report(night=1), findings=BAD), evidence=READ)
    text = " ".join(shown(url, "history gpu001").split())
    assert "not vetted since" not in text
    assert f"by plan {PROOF.plan}, which verified it" in text
    assert f"came back after the fix by plan {PROOF.plan}" in text
    assert events(url) == [began, over, ("fails", "2026-11-02T04", PROOF.plan)]
    redacted = shown(url, "history gpu001 --redact --format json")
    assert PROOF.plan not in redacted and PROOF.run not in redacted


def test_e19_the_next_night_confirms_that_the_plan_fixed_the_finding(url: str) -> None:
    fixed(url)
    good = (replace(BAD[0], verdict=Verdict.OK, actual=700), BAD[1])
    with open_store(url) as store:
        record(store, 1, replace(report(night=1), findings=good), evidence=READ)
    assert events(url) == [("fails", "2026-11-01T04", ""), ("fixed", "2026-11-01T09", "")]
    assert "not vetted since" not in shown(url, "history gpu001")


def test_e19_a_finding_whose_part_is_renamed_by_the_fix_counts_as_fixed(url: str) -> None:
    """As groups of CPUs are: the next night says nothing of the old one."""
    fixed(url)
    with open_store(url) as store:
        record(store, 1, replace(report(night=1), findings=BAD[1:]), evidence=READ)
    assert events(url) == [("fails", "2026-11-01T04", ""), ("fixed", "2026-11-01T09", "")]
