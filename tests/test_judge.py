"""The judge: stamps findings, survives broken checks, applies waivers."""

import itertools
import json
from datetime import date
from pathlib import Path

import pytest

from nodevet.checking.catalog import Catalog
from nodevet.checking.judge import LATE, MOST, judge
from nodevet.evidence.document import Evidence, decode
from nodevet.model import MORE, CheckParams, Finding, HostReport, Severity, Status, Verdict
from nodevet.model.baseline import Baseline, Expectation, Waiver
from nodevet.model.run import exit_code

CHECK = """
from nodevet.model import Check, CheckParams, fail, ok, Subject

def judge(evidence, params):
    {body}

CHECK = Check(params=CheckParams, reads=(), judge=judge)
"""
TODAY = date(2026, 11, 20)


def evidence() -> Evidence:
    return decode(json.dumps({"schema": 1, "probe": "test", "sections": {}}))


def ask(
    folder: Path, body: str, *waivers: Waiver, host: str = "gpu001", severities: str = "{}"
) -> tuple[Finding, ...]:
    own = f"judge=judge, severities=lambda params: {severities})"
    (folder / "site.py").write_text(CHECK.format(body=body).replace("judge=judge)", own))
    wish = Expectation(
        check="site", params=CheckParams(), severity=Severity.INFO, origin="b.yaml:3"
    )
    baseline = Baseline(name="b", path="b.yaml", expectations=(wish,), waivers=waivers)
    return judge(evidence(), baseline, Catalog([folder]), host=host, today=TODAY)


WRONG_GPU = "yield fail(Subject(kind='gpu', id='4', uuid='GPU-1', bus_id='0000:19:00.0'))"


def waiver(**changes: object) -> Waiver:
    known: dict[str, object] = {
        "check": "site",
        "owner": "ops",
        "reason": "riser on order",
        "until": TODAY,
        "any": True,
    }
    return Waiver(**{**known, **changes})  # type: ignore[arg-type]


def test_a_finding_names_its_check_and_the_baseline_line_that_expects_it(tmp_path: Path) -> None:
    (finding,) = ask(tmp_path, "yield ok()")
    assert (finding.check, finding.severity, finding.origin) == ("site", Severity.INFO, "b.yaml:3")
    assert finding.verdict is Verdict.OK


def test_a_check_that_raises_keeps_its_earlier_findings_and_is_unknown(tmp_path: Path) -> None:
    first, second = ask(tmp_path, "yield ok(); raise ValueError('no such bank')")
    assert first.verdict is Verdict.OK
    assert second.verdict is Verdict.UNKNOWN
    assert second.why == "the check itself failed: ValueError: no such bank"


SEVERITIES = "yield fail(Subject(kind='rule', id='a')); yield fail(Subject(kind='rule', id='b'))"


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ("{'a': 'critical'}", [("a", "critical", ""), ("b", "info", "")]),
        ("{'a': 'grave'}", [("", "info", "Invalid enum value 'grave'")]),
        ("None.x", [("", "info", "AttributeError")]),
    ],
)
def test_a_subject_may_have_a_severity_of_its_own(
    tmp_path: Path, told: str, found: list[tuple[str, str, str]]
) -> None:
    findings = ask(tmp_path, SEVERITIES, severities=told)
    assert [(each.subject.id, each.severity.value) for each in findings] == [
        (subject, severity) for subject, severity, _ in found
    ]
    assert all(words in each.why for each, (_, _, words) in zip(findings, found, strict=True))


def test_unlisted_findings_have_the_highest_severity_of_their_kind(tmp_path: Path) -> None:
    body = f"yield from (ok(Subject(kind='rule', id=str(n))) for n in range({MOST + 2}))"
    findings = ask(tmp_path, body, severities=f"{{'{MOST}': 'critical'}}")
    assert (findings[-1].subject, findings[-1].severity) == (MORE, Severity.CRITICAL)
    assert findings[-2].severity is Severity.INFO


def test_a_silent_check_is_unknown(tmp_path: Path) -> None:
    (finding,) = ask(tmp_path, "return iter(())")
    assert (finding.verdict, finding.why) == (Verdict.UNKNOWN, "the check returned no finding")


def test_a_check_that_cannot_be_loaded_is_unknown(tmp_path: Path) -> None:
    wish = Expectation(
        check="gone", params=CheckParams(), severity=Severity.INFO, origin="b.yaml:3"
    )
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
    assert (finding.verdict, finding.waiver) == (Verdict.FAIL, "")


def test_a_finding_with_an_expired_waiver_fails_and_says_so(tmp_path: Path) -> None:
    (finding,) = ask(tmp_path, WRONG_GPU, waiver(until=date(2026, 11, 19)))
    assert finding.verdict is Verdict.FAIL
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


CROWD = """
    for number in range(1000):
        subject = Subject(kind='gpu', id=str(number))
        yield (fail if number % 2 else ok)(subject, why='x' * number * 10)
"""


def test_d1_findings_of_one_check_and_host_are_limited_to_a_readable_number(
    tmp_path: Path,
) -> None:
    found = ask(tmp_path, CROWD.strip())
    listed = [finding for finding in found if finding.subject != MORE]
    assert len(listed) == MOST and {each.verdict for each in listed} == {Verdict.FAIL}
    assert [each.subject.id for each in listed[:2]] == ["1", "3"]
    assert max(len(each.why) for each in listed) <= 4096
    more = [(each.verdict, each.why, each.check, each.origin) for each in found[MOST:]]
    assert more == [
        (Verdict.FAIL, "244 more fail, not listed", "site", "b.yaml:3"),
        (Verdict.OK, "500 more ok, not listed", "site", "b.yaml:3"),
    ]
    assert found[MOST].severity is Severity.INFO


def test_e06_failures_are_listed_before_waived_findings_if_the_list_is_cut(tmp_path: Path) -> None:
    body = "for _ in range(1000): yield fail(expected=1, actual=2)\n    "
    found = ask(tmp_path, f"{body}yield fail(expected=1, actual=3)", limited(2))
    assert [each.actual for each in found if each.verdict is Verdict.FAIL] == [3]
    assert found[MOST].why == "745 more waived, not listed"


@pytest.mark.parametrize("worst", ["fail", "unknown", "not_applicable"])
def test_d1_the_worst_of_what_is_not_listed_is_still_the_hosts_verdict(
    tmp_path: Path, worst: str
) -> None:
    """At the end of many that are worth less, or more."""
    last = f"yield Finding(verdict=Verdict('{worst}'), why='the last')"
    body = f"for number in range({MOST + 9}): yield ok()\n    {last}"
    text = CHECK.replace("import Check", "import Check, Finding, Verdict")
    (tmp_path / "site.py").write_text(text.format(body=body))
    wish = Expectation(
        check="site", params=CheckParams(), severity=Severity.CRITICAL, origin="b.yaml:3"
    )
    baseline = Baseline(name="b", path="b.yaml", expectations=(wish,))
    found = judge(evidence(), baseline, Catalog([tmp_path]), host="n", today=TODAY)
    report = HostReport(host="n", status=Status.VETTED, findings=found)
    assert report.verdict is Verdict(worst) or worst == "not_applicable"
    assert (
        exit_code([report], Severity.WARNING)
        == {"fail": 1, "unknown": 3, "not_applicable": 0}[worst]
    )
    assert len(found) <= MOST + 2


def test_d1_judging_that_takes_too_long_is_ended_and_the_rest_is_unknown(tmp_path: Path) -> None:
    """A check that never ends, between two that do."""
    for name, body in {"first": "yield ok()", "endless": "while True: yield ok()"}.items():
        (tmp_path / f"{name}.py").write_text(CHECK.format(body=body))
    wishes = tuple(
        Expectation(check=name, params=CheckParams(), severity=Severity.CRITICAL, origin="b.yaml:3")
        for name in ("first", "endless", "first")
    )
    baseline = Baseline(name="b", path="b.yaml", expectations=wishes)
    asked = itertools.count()
    first, *middle, last = judge(
        evidence(),
        baseline,
        Catalog([tmp_path]),
        host="n",
        today=TODAY,
        late=lambda: next(asked) > 1000,
    )
    assert (first.check, first.verdict) == ("first", Verdict.OK)
    assert {each.check for each in middle} == {"endless"} and len(middle) == MOST + 1
    assert [(each.verdict, each.why) for each in (middle[-2], last)] == [
        (Verdict.UNKNOWN, LATE),
        (Verdict.UNKNOWN, LATE),
    ]
    assert middle[-1].subject == MORE and last.check == "first"


def limited(accepts: object, **changes: object) -> Waiver:
    return waiver(any=False, accepts=accepts, **changes)


ACCEPTED = [
    ("expected='x16', actual='x8'", "x8"),
    ("expected=8, actual=7", 7),
    ("expected=8, actual=7", "7"),
    ("expected=700, actual=490, unit='W'", "490 W"),
    ("expected=700, actual=490.0, unit='W'", 490),
    ("expected=True, actual=False", False),
    ("expected=True, actual=False", "off"),
    ("expected=[], actual=[48, 79]", [79, 48]),
    ("expected={'a': 0, 'b': 1}, actual={'a': 2, 'b': 1}", {"a": 2}),
    ("expected=8, actual={'NVML': 7, '/dev': 8}", {"NVML": 7}),
    ("expected='/dev/nvidia4', actual=None", "none"),
    ("why='SXid 10003'", "SXid 10003"),
]
OTHER = [
    ("expected='x16', actual='Gen1 x1'", "x8"),
    ("expected=8, actual=2", 7),
    ("expected=8, actual={'NVML': 7, '/dev': 6}", 7),
    ("expected=8, actual={'NVML': 7, '/dev': 6}", {"NVML": 7}),
    ("expected=700, actual=300, unit='W'", "490 W"),
    ("expected=1, actual=2", True),
    ("expected=[], actual=[48, 79]", [79]),
    ("expected=[], actual=[79, 79]", [79]),
    ("expected={'a': 0, 'b': 1}, actual={'a': 2, 'b': 3}", {"a": 2}),
    ("expected={'a': 0, 'b': True}, actual={'a': 2, 'b': 1}", {"a": 2}),
    ("expected={'a': 'x'}, actual={'a': ['y', 'y']}", {"a": "y"}),
    ("expected='/dev/nvidia4', actual=None", "SXid 10003"),
    ("why='SXid 20034'", "SXid 10003"),
    ("why='SXid 20034'", "none"),
]


@pytest.mark.parametrize(("said", "accepts"), ACCEPTED)
def test_d12_a_waiver_covers_the_value_that_was_accepted(
    tmp_path: Path, said: str, accepts: object
) -> None:
    (finding,) = ask(tmp_path, f"yield fail({said})", limited(accepts))
    assert finding.verdict is Verdict.WAIVED


def test_e06_a_waiver_for_a_value_does_not_match_a_reason_that_was_cut(tmp_path: Path) -> None:
    (told,) = ask(tmp_path, "yield fail(why='x' * 5000)")
    (finding,) = ask(tmp_path, "yield fail(why='x' * 4999 + 'y')", limited(told.why))
    assert finding.verdict is Verdict.FAIL
    (finding,) = ask(tmp_path, "yield fail(why='x' * 5000)", waiver())
    assert finding.verdict is Verdict.WAIVED


@pytest.mark.parametrize(("said", "accepts"), OTHER)
def test_d12_another_value_fails_and_says_what_the_waiver_covered(
    tmp_path: Path, said: str, accepts: object
) -> None:
    (finding,) = ask(tmp_path, f"yield fail({said})", limited(accepts))
    assert finding.verdict is Verdict.FAIL
    covered = finding.text(accepts)
    assert finding.waiver == (
        f"waiver covers {covered}, not this; until 2026-11-20 (ops: riser on order)"
    )
    report = HostReport(host="gpu001", status=Status.VETTED, findings=(finding,))
    assert exit_code([report], Severity.INFO) == 1


def test_d12_the_waiver_for_the_value_counts_among_several(tmp_path: Path) -> None:
    old, new = limited("x8"), limited("x4", until=date(2027, 1, 1))
    (finding,) = ask(tmp_path, "yield fail(expected='x16', actual='x8')", new, old)
    assert finding.waiver == "until 2026-11-20 (ops: riser on order)"
    past = limited("x8", until=date(2026, 1, 1))
    (finding,) = ask(tmp_path, "yield fail(expected='x16', actual='x8')", new, past)
    assert (finding.verdict, finding.waiver[:18]) == (Verdict.FAIL, "expired 2026-01-01")


def test_d12_a_waiver_that_says_no_value_covers_nothing(tmp_path: Path) -> None:
    (finding,) = ask(tmp_path, "yield fail(expected=1)", limited(None))
    assert finding.verdict is Verdict.FAIL


GPUS = "gpus = [Subject(kind='gpu', id=str(at)) for at in range(3)]"


def test_a_failure_is_caused_by_the_failure_of_a_check_it_follows_on_one_part(
    tmp_path: Path,
) -> None:
    first = CHECK.format(body=f"{GPUS}\n    yield fail(gpus[0])\n    yield ok(gpus[1])")
    said = "yield fail(gpus[0])\n    yield fail(gpus[1])\n    yield unknown(gpus[0], why='EIO')"
    body = CHECK.format(body=f"{GPUS}\n    {said}").replace("fail, ok", "fail, ok, unknown")
    (tmp_path / "first.py").write_text(first)
    (tmp_path / "then.py").write_text(body.replace("reads=()", "reads=(), follows=('first',)"))
    wishes = tuple(
        Expectation(check=name, params=CheckParams(), severity=Severity.INFO, origin="b.yaml:3")
        for name in ("then", "first")
    )
    baseline = Baseline(name="b", path="b.yaml", expectations=wishes)
    found = judge(evidence(), baseline, Catalog([tmp_path]), host="gpu001", today=TODAY)
    assert [(each.check, each.subject.id, each.verdict.value) for each in found if each.cause] == [
        ("then", "0", "fail")
    ]
    assert found[0].cause == "first"


AT_WORK = "the package manager is at work"


def judged_in(sections: dict[str, object], *, why: str, folder: Path) -> Finding:
    document = {"schema": 1, "probe": "test", "sections": sections}
    body = f"from nodevet.model import unknown; yield unknown(why={why!r})"
    (folder / "site.py").write_text(CHECK.format(body=body))
    wish = Expectation(check="site", params=CheckParams(), severity=Severity.INFO, origin="b:1")
    baseline = Baseline(name="b", path="b.yaml", expectations=(wish,))
    known = decode(json.dumps(document))
    (found,) = judge(known, baseline, Catalog([folder]), host="gpu001", today=TODAY)
    return found


@pytest.mark.parametrize("transient", [True, False])
@pytest.mark.parametrize("why", [f"installed: {AT_WORK}", "another reason"])
def test_e14_an_unknown_finding_in_a_transient_state_says_so(
    tmp_path: Path, transient: bool, why: str
) -> None:
    section = {"status": "error", "why": AT_WORK, "transient": transient}
    found = judged_in({"installed": section}, why=why, folder=tmp_path)
    passes = transient and AT_WORK in why
    assert found.transient is passes
    assert found.why == (f"{why}, which passes by itself" if passes else why)


@pytest.mark.parametrize(("uptime", "passes"), [(40.0, True), (300.0, False), (None, False)])
def test_e14_just_after_boot_every_unknown_finding_is_transient(
    tmp_path: Path, uptime: float | None, passes: bool
) -> None:
    host = {"status": "ok", "data": {"uptime_s": uptime}}
    found = judged_in({"host": host}, why="EIO", folder=tmp_path)
    assert (found.transient, "just booted" in found.why) == (passes, passes)


def test_e14_text_of_a_node_does_not_make_a_finding_pass(tmp_path: Path) -> None:
    name = f'{AT_WORK} "transient": true'
    section = {"status": "error", "why": name}
    assert not judged_in({"installed": section}, why=name, folder=tmp_path).transient
