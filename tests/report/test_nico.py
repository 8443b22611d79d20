"""What infra-controller accepts as the result of a plug-in: contract v1, and its bounds."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from nodevet.model import Finding, HostReport, Severity, Status, Subject, Verdict
from nodevet.model.run import RunNews, StandingTrouble
from nodevet.vet import formats

CASES = ("healthy", "mixed", "one", "empty", "interrupted", "hostile")


class NamedFinding(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    message: str


class Result(msgspec.Struct, forbid_unknown_fields=True):
    """The fields that the reader of contract v1 knows."""

    contractVersion: str
    kind: str
    outcome: str
    summary: str
    severity: str | None = None
    findings: list[NamedFinding] = []


def accepted(text: str) -> Result:
    """The result, if the reader would accept it."""
    assert len(text.encode()) <= 64 * 1024
    result = msgspec.json.decode(text, type=Result)
    assert (result.contractVersion, result.kind) == ("v1", "MachineValidationPluginResult")
    assert result.outcome in ("pass", "fail", "error")
    assert result.severity in (None, "info", "warning", "critical", "unknown")
    assert len(result.summary.encode()) <= 4096 and len(result.findings) <= 100
    assert all(one.name and len(one.message.encode()) <= 4096 for one in result.findings)
    return result


def vetted(*findings: Finding, host: str = "gpu001") -> HostReport:
    return HostReport(host=host, status=Status.VETTED, baseline="site", findings=findings)


def failed(check: str, **more: object) -> Finding:
    return Finding(verdict=Verdict.FAIL, check=check, subject=Subject(kind="gpu", id="3"), **more)


def result_of(run) -> Result:
    return accepted(formats.render("nico", run))


@pytest.mark.parametrize("case", CASES)
def test_the_reader_of_infra_controller_accepts_every_case(case, cases) -> None:
    result_of(cases[case])


def test_a_failure_names_its_finding_and_the_worst_severity(make) -> None:
    slow = failed("cpu_governor", severity=Severity.WARNING)
    assert result_of(make.run_of(vetted(slow))).severity == "warning"
    power = failed("power_limit", expected=700, actual=490, unit="W", severity=Severity.CRITICAL)
    result = result_of(make.run_of(vetted(slow, power)))
    assert (result.outcome, result.severity) == ("fail", "critical")
    assert result.findings[0].name == "power_limit"
    assert result.findings[0].message.startswith("490 W, expected 700 W GPU 3 gpu001")


def test_an_unknown_finding_is_an_error_and_not_a_pass(make) -> None:
    unknown = Finding(verdict=Verdict.UNKNOWN, check="xid", why="denied")
    down = HostReport(host="gpu001", status=Status.UNREACHABLE, why="connection refused")
    for run in (make.run_of(vetted(unknown)), make.run_of(down), make.run_of()):
        result = result_of(run)
        assert (result.outcome, result.severity) == ("error", "unknown")
    assert result_of(make.run_of(down)).findings[0].name == "visit"
    passed = make.run_of(vetted(Finding(verdict=Verdict.OK, check="xid")))
    assert result_of(passed).outcome == "pass"
    interrupted = msgspec.structs.replace(passed, interrupted=True)
    assert result_of(interrupted).outcome == "error"


def test_a_failure_known_from_before_still_fails(make) -> None:
    """--fail-on-new is about the exit code of nodevet, and not about the machine."""
    run = make.run_of(vetted(failed("xid", severity=Severity.CRITICAL)))
    news = RunNews(since=run.started, standing=(StandingTrouble(host="gpu001", place=0),))
    known = msgspec.structs.replace(run, fail_on_new=True, news=news)
    assert known.exit_code == 0
    result = result_of(known)
    assert (result.outcome, result.severity) == ("fail", "critical")
    assert result.findings[0].name == "xid"


def test_more_than_the_file_has_room_for_is_counted(make) -> None:
    short = [failed(f"check_{number}", actual=number) for number in range(150)]
    result = result_of(make.run_of(vetted(*short)))
    assert len(result.findings) == 100 and result.summary.endswith("; 50 further findings left out")
    long = [failed(f"check_{number}", why="w", advice='"\\ü' * 900) for number in range(60)]
    result = result_of(make.run_of(vetted(*long)))
    assert 0 < len(result.findings) < 60 and "left out" in result.summary


def test_the_exit_code_is_0_for_every_verdict_that_was_printed(make) -> None:
    for run in (make.run_of(vetted(failed("xid"))), make.run_of()):
        assert run.exit_code and formats.exit_code("nico", run) == 0


BASELINE = """\
nodevet: 1
title: one value
expect: {{sysctl: {{kernel.ostype: {ostype}}}}}
"""


def run_here(
    folder: Path, *words: str, before: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    command = [*before, sys.executable, "-m", "nodevet", *words, "@local", "-b", "site.yaml"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=400)


@pytest.mark.parametrize("command", [("check",), ("gate", "--wait", "0", "--settle", "0")])
@pytest.mark.parametrize(("ostype", "outcome"), [("Linux", "pass"), ("Plan9", "fail")])
def test_commands_exit_with_0_only_if_the_result_is_printed(
    command: tuple[str, ...], ostype: str, outcome: str, tmp_path: Path
) -> None:
    (tmp_path / "site.yaml").write_text(BASELINE.format(ostype=ostype))
    printed = run_here(tmp_path, *command, "--format", "nico")
    assert printed.returncode == 0, printed.stderr
    assert accepted(printed.stdout).outcome == outcome
    closed = run_here(tmp_path, *command, "--format", "nico", before=("sh", "-c", '"$@" >&-', "sh"))
    assert (closed.returncode, "standard output is closed" in closed.stderr) == (2, True)
    if outcome == "fail":
        written = run_here(tmp_path, *command, "--format", "nico:result.json")
        assert written.returncode == 1
        assert accepted((tmp_path / "result.json").read_text()).outcome == "fail"
