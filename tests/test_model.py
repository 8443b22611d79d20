"""Verdicts and exit codes: what may be called ok."""

import itertools
from datetime import datetime, timedelta, timezone

import pytest
from msgspec.structs import replace

from nodevet.model import (
    KEY_PART,
    NODE,
    Finding,
    HostOutcome,
    HostReport,
    Severity,
    Status,
    Subject,
    Verdict,
    compare,
    show,
    unknown,
)
from nodevet.model.run import Run, exit_code, new_run_id


def host(*findings: tuple[Verdict, Severity], status: Status = Status.VETTED) -> HostReport:
    made = tuple(Finding(verdict=verdict, severity=severity) for verdict, severity in findings)
    return HostReport(host="n1", status=status, findings=made)


OK, FAIL, UNKNOWN, NOT_APPLICABLE, WAIVED = Verdict
SHADOW, INFO, WARNING, CRITICAL = Severity


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
    assert Run(id="", nodevet="0", started="", seconds=0).exit_code == 3


def test_an_interrupted_run_is_not_ok() -> None:
    whole = Run(id="", nodevet="0", started="", seconds=0, hosts=(host((OK, CRITICAL)),))
    assert whole.exit_code == 0
    assert replace(whole, interrupted=True).exit_code == 3


def test_a_failure_outranks_a_host_that_could_not_be_judged() -> None:
    hosts = [host((OK, CRITICAL)), host(status=Status.TIMEOUT), host((FAIL, CRITICAL))]
    for order in itertools.permutations(hosts):
        assert exit_code(order, WARNING) == 1


def test_fail_on_sets_the_severity_that_fails_a_run() -> None:
    report = host((OK, CRITICAL), (FAIL, INFO))
    assert [exit_code([report], bar) for bar in Severity] == [1, 1, 0, 0]


@pytest.mark.parametrize("verdicts", list(itertools.product(Verdict, repeat=2)))
def test_the_verdict_of_a_host_is_its_worst_finding(verdicts: tuple[Verdict, Verdict]) -> None:
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


GPU = Subject(kind="gpu", id="3", uuid="GPU-5f1c", bus_id="0000:5d:00.0")


@pytest.mark.parametrize(
    ("subject", "key"),
    [
        (NODE, "power_limit/node"),
        (GPU, "power_limit/gpu/GPU-5f1c"),
        (replace(GPU, uuid=None), "power_limit/gpu/0000:5d:00.0"),
        (replace(GPU, uuid=None, bus_id=None), "power_limit/gpu/3"),
        (Subject(kind="sysctl", id="vm.swappiness"), "power_limit/sysctl/vm.swappiness"),
        (Subject(kind="filesystem", id="/var/log"), "power_limit/filesystem/%2Fvar%2Flog"),
        (
            Subject(kind="unit", id="a b\n\x1b[1m\u202eé"),
            "power_limit/unit/a%20b%0A%1B%5B1m%E2%80%AE%C3%A9",
        ),
    ],
)
def test_a_finding_is_known_by_its_check_and_the_stablest_name_of_its_subject(
    subject: Subject, key: str
) -> None:
    assert Finding(verdict=FAIL, subject=subject, check="power_limit").key == key


def test_a_gpu_keeps_its_key_when_its_index_and_its_verdict_change() -> None:
    before = Finding(verdict=FAIL, subject=GPU, check="power_limit", actual=490)
    after = Finding(verdict=OK, subject=replace(GPU, id="2"), check="power_limit", actual=700)
    assert before.key == after.key


def test_subjects_with_unusual_names_have_different_keys() -> None:
    names = ("a/b", "a%2Fb", "a", "a" * 5000, "a" * 5001, "\udcff", "\\udcff", "~", " ")
    keys = {Finding(verdict=OK, subject=Subject(kind="x", id=n), check="c").key for n in names}
    assert len(keys) == len(names) - 1  # a lone surrogate reads as its own escape
    assert all(key.isascii() and key.isprintable() and " " not in key for key in keys)
    assert max(map(len, keys)) <= len("c/x/") + KEY_PART


def test_run_ids_sort_by_time_and_are_never_the_same() -> None:
    first = datetime(2026, 7, 14, 2, 0, 5, 999_000, tzinfo=timezone(timedelta(hours=2)))
    times = [first + timedelta(milliseconds=step) for step in range(3)]
    ids = [new_run_id(at.astimezone(timezone.utc) if step else at) for step, at in enumerate(times)]
    assert ids == sorted(ids)
    assert ids[0].startswith("20260714T000005.999Z-")
    assert len({new_run_id(first) for _ in range(100)}) == 100
    with pytest.raises(ValueError, match="time zone"):
        new_run_id(first.replace(tzinfo=None))


@pytest.mark.parametrize(
    ("report", "outcome", "unjudged"),
    [
        (host((OK, INFO)), HostOutcome.OK, ""),
        (host((OK, INFO), (FAIL, INFO)), HostOutcome.FAIL, ""),
        (host((OK, INFO), (UNKNOWN, INFO)), HostOutcome.UNKNOWN, ""),
        (host((OK, INFO), (WAIVED, INFO)), HostOutcome.WAIVED, ""),
        (host(), HostOutcome.UNKNOWN, "nothing was judged: no expectations"),
        (
            host((NOT_APPLICABLE, INFO)),
            HostOutcome.UNKNOWN,
            "nothing was judged: every check is not applicable",
        ),
        (host((OK, INFO), status=Status.TIMEOUT), HostOutcome.TIMEOUT, "no reason was recorded"),
        (
            replace(host(status=Status.UNREACHABLE), why="refused"),
            HostOutcome.UNREACHABLE,
            "refused",
        ),
    ],
)
def test_every_host_has_one_outcome(
    report: HostReport, outcome: HostOutcome, unjudged: str
) -> None:
    assert report.outcome is outcome
    assert report.unjudged == unjudged


def test_every_way_a_visit_ends_is_an_outcome() -> None:
    for status in Status:
        assert host(status=status).outcome.words
    assert HostOutcome.PROBE_FAILED.words == "probe failed"


def test_an_errno_in_a_reason_is_reported_in_words() -> None:
    """Only where it is the whole of a clause, and one that the kernel has."""
    said = {
        "ENOENT": "no such file or directory (ENOENT)",
        "PCI: EIO; /dev: EACCES": "PCI: input/output error (EIO); /dev: permission denied (EACCES)",
        "EPERM: /dev/kmsg": "EPERM: /dev/kmsg",
        "ECC: ENOSUCH": "ECC: ENOSUCH",
        "NVML: NVML_ERROR_UNKNOWN": "NVML: NVML_ERROR_UNKNOWN",
    }
    assert {why: unknown(why=why).why for why in said} == said
