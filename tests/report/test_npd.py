"""What node-problem-detector reads of a custom plug-in: its exit code, and 80 bytes."""

import msgspec
import pytest

from nodevet.model import Finding, HostReport, Severity, Status, Subject, Verdict
from nodevet.model.run import RunNews, StandingTrouble
from nodevet.vet import formats
from nodevet.vet.formats import npd

CASES = ("healthy", "mixed", "one", "empty", "interrupted", "hostile")


def vetted(*findings: Finding) -> HostReport:
    return HostReport(host="gpu001", status=Status.VETTED, baseline="site", findings=findings)


def failed(check: str, **more: object) -> Finding:
    subject = Subject(kind="gpu", id="3")
    return Finding(verdict=Verdict.FAIL, check=check, subject=subject, **more)


@pytest.mark.parametrize("case", CASES)
def test_the_output_is_one_line_of_at_most_80_bytes(case, cases) -> None:
    text = formats.render("npd", cases[case])
    assert text.endswith("\n") and text.count("\n") == 1
    assert 0 < len(text.encode()) <= npd.ROOM + 1 and text.isascii()


def test_a_failure_is_a_problem_and_says_which(make) -> None:
    run = make.run_of(vetted(failed("power_limit", expected=700, actual=490, unit="W")))
    assert npd.exit_code(run) == 1
    assert formats.render("npd", run) == "power_limit 490 W, expected 700 W GPU 3\n"


def test_failures_that_do_not_fit_in_the_line_are_counted(make) -> None:
    long = failed("alpha", why="x" * 200)
    text = formats.render("npd", make.run_of(vetted(long, failed("beta", actual=1))))
    assert text.endswith("... +1\n") and len(text) == npd.ROOM + 1


def test_unknown_checks_and_unreachable_hosts_exit_2_for_unknown(make) -> None:
    unknown = Finding(verdict=Verdict.UNKNOWN, check="xid", why="denied")
    assert npd.exit_code(make.run_of(vetted(unknown))) == 2
    assert npd.exit_code(make.run_of()) == 2
    down = HostReport(host="gpu001", status=Status.UNREACHABLE, why="connection refused")
    assert npd.exit_code(make.run_of(down)) == 2
    assert "unreachable" in formats.render("npd", make.run_of(down))


def test_ok_needs_a_judged_host(make) -> None:
    run = make.run_of(vetted(Finding(verdict=Verdict.OK, check="xid")))
    assert npd.exit_code(run) == 0 and formats.render("npd", run).startswith("as ")


def test_a_warning_is_a_problem_only_if_it_fails_the_run(make) -> None:
    slow = failed("cpu_governor", severity=Severity.WARNING)
    assert npd.exit_code(make.run_of(vetted(slow))) == 1
    assert npd.exit_code(make.run_of(vetted(slow), fail_on=Severity.CRITICAL)) == 0


def test_a_failure_that_an_earlier_run_already_had_is_a_problem(make) -> None:
    run = make.run_of(vetted(failed("xid")))
    news = RunNews(since=run.started, standing=(StandingTrouble(host="gpu001", place=0),))
    known = msgspec.structs.replace(run, fail_on_new=True, news=news)
    assert known.exit_code == 0
    assert formats.exit_code("npd", known) == npd.PROBLEM
    assert formats.render("npd", known).startswith("xid")
