"""Verdicts and exit codes: what may be called ok."""

import itertools

import pytest
from msgspec.structs import replace

from nodevet.model import (
    NODE,
    Finding,
    HostReport,
    Run,
    Severity,
    Status,
    Subject,
    Verdict,
    compare,
    exit_code,
    show,
)


def host(*findings: tuple[Verdict, Severity], status: Status = Status.VETTED) -> HostReport:
    made = tuple(Finding(verdict=verdict, severity=severity) for verdict, severity in findings)
    return HostReport(host="n1", status=status, findings=made)


OK, FAIL, UNKNOWN, NOT_APPLICABLE, WAIVED = Verdict
INFO, WARNING, CRITICAL = Severity


@pytest.mark.parametrize(
    ("report", "code"),
    [
        (host((OK, CRITICAL)), 0),
        (host((OK, CRITICAL), (NOT_APPLICABLE, CRITICAL)), 0),
        (host((OK, CRITICAL), (WAIVED, CRITICAL)), 0),
        (host((OK, CRITICAL), (FAIL, WARNING)), 1),
        (host((OK, CRITICAL), (FAIL, INFO)), 0),
        (host((OK, CRITICAL), (UNKNOWN, WARNING)), 3),
        (host((FAIL, CRITICAL), (UNKNOWN, CRITICAL)), 1),
        (host(), 3),
        (host((NOT_APPLICABLE, CRITICAL)), 3),
        (host((UNKNOWN, INFO)), 3),
        (host((OK, CRITICAL), status=Status.UNREACHABLE), 3),
        (host((OK, CRITICAL), status=Status.TIMEOUT), 3),
        (host((OK, CRITICAL), status=Status.PROBE_FAILED), 3),
        (host((OK, CRITICAL), status=Status.INTERRUPTED), 3),
    ],
)
def test_exit_code_of_one_host(report: HostReport, code: int) -> None:
    assert exit_code([report], WARNING) == code


def test_a_run_over_no_host_is_not_ok() -> None:
    assert Run(nodevet="0", started="", seconds=0).exit_code == 3


def test_an_interrupted_run_is_not_ok() -> None:
    whole = Run(nodevet="0", started="", seconds=0, hosts=(host((OK, CRITICAL)),))
    assert whole.exit_code == 0
    assert replace(whole, interrupted=True).exit_code == 3


def test_wrong_wins_over_what_could_not_be_judged() -> None:
    hosts = [host((OK, CRITICAL)), host(status=Status.TIMEOUT), host((FAIL, CRITICAL))]
    for order in itertools.permutations(hosts):
        assert exit_code(order, WARNING) == 1


def test_fail_on_moves_the_bar() -> None:
    report = host((OK, CRITICAL), (FAIL, INFO))
    assert [exit_code([report], bar) for bar in Severity] == [1, 0, 0]


@pytest.mark.parametrize("verdicts", list(itertools.product(Verdict, repeat=2)))
def test_a_host_is_as_its_worst_finding(verdicts: tuple[Verdict, Verdict]) -> None:
    verdict = host(*((one, CRITICAL) for one in verdicts)).verdict
    for worst in (FAIL, UNKNOWN, WAIVED, OK):
        if worst in verdicts:
            assert verdict is worst
            return
    assert verdict is UNKNOWN


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.VETTED])
def test_a_host_that_was_not_vetted_is_never_ok(status: Status) -> None:
    assert host((OK, CRITICAL), status=status).verdict is UNKNOWN


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (True, "on"),
        (False, "off"),
        (8, "8"),
        (32.0, "32"),
        (2.5, "2.5"),
        (1234567.0, "1234567"),
        ("performance", "performance"),
        ((1, 2), "1, 2"),
        ([], "none"),
        ({"x": 1, "y": True}, "x: 1, y: on"),
    ],
)
def test_values_as_people_read_them(value: object, text: str) -> None:
    assert show(value) == text


def test_compare_carries_the_unit() -> None:
    finding = compare(NODE, expected=700, actual=500, unit="W")
    assert finding.verdict is FAIL
    assert finding.text(finding.actual) == "500 W"


def test_labels() -> None:
    assert Subject(kind="gpu", id="4").label == "GPU 4"
    assert Subject(kind="cpufreq", id="0-63").label == "cpufreq 0-63"
    assert NODE.label == ""
