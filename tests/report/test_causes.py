"""One fault is one line, one failure, one hunk: what follows is told with it, and counted."""

from xml.etree import ElementTree

import msgspec
import pytest

from nodevet.model import NODE, Severity, Subject, Verdict, fail, unknown
from nodevet.model.changes import Marks
from nodevet.vet import formats
from nodevet.vet.findings import fold
from nodevet.vet.findings.causes import causes_of, follows_from
from nodevet.vet.findings.totals import totals
from nodevet.vet.formats import diff

DRIVER = Subject(kind="module", id="nvidia")
WHY = "NVML: NVML_ERROR_DRIVER_NOT_LOADED"
GPU = Subject(kind="gpu", id="6")
UNIT = Subject(kind="unit", id="nvidia-fabricmanager.service")


def without_a_driver():
    """What a node shows whose driver is not loaded."""
    cause = "kernel_modules module nvidia"
    return (
        unknown(check="ecc_mode", why=WHY),
        unknown(check="power_limit", why=WHY),
        fail(check="gpu_count", expected=8, actual=0, cause=cause),
        fail(DRIVER, check="kernel_modules", expected="loaded", actual="not loaded", why=WHY),
        fail(UNIT, check="services", expected="running", actual="failed", cause=cause),
        fail(GPU, check="fabric", actual="NOT_STARTED", cause=f"services unit {UNIT.id}"),
        fail(GPU, check="nvlink", expected=18, actual=0, cause="fabric"),
    )


def test_findings_that_follow_from_a_missing_driver_share_its_line(make):
    run = make.run_of(make.vetted("gpu1", without_a_driver()))
    (line,) = fold.lines(run)
    assert (line.check, line.subjects, line.what) == (
        "kernel_modules", "module nvidia", "not loaded, expected loaded",
    )  # fmt: skip
    told = "with fabric, gpu_count, nvlink, services, 2 checks unknown"
    assert line.remark == f"{WHY}; {told}"


def test_findings_that_follow_from_another_still_count_in_totals(make):
    run = make.run_of(make.vetted("gpu1", without_a_driver()))
    found = totals(run).findings
    assert (found[Verdict.FAIL], found[Verdict.UNKNOWN], run.exit_code) == (5, 2, 1)
    only_unknown = without_a_driver()[:2]
    assert make.run_of(make.vetted("gpu1", only_unknown)).exit_code == 3
    assert len(fold.lines(make.run_of(make.vetted("gpu1", only_unknown)))) == 1


def test_junit_has_one_failure_for_a_fault_and_skips_what_follows_from_it(make):
    run = make.run_of(make.vetted("gpu1", without_a_driver()))
    suite = ElementTree.fromstring(formats.render("junit", run)).find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("7", "1", "0")
    told = [each.get("message") for each in suite.iter("skipped")]
    assert f"follows from kernel_modules module nvidia: unknown: {WHY}" in told
    assert len(told) == 6


def test_a_diff_has_one_hunk_for_one_fault(make):
    host = make.vetted("gpu1", without_a_driver())
    rows = list(diff.hunks(host))
    assert sum(row.startswith("@@") for row in rows) == 1
    said = " ".join(row[1:].strip() for row in rows if row.startswith("+"))
    assert "with fabric, gpu_count, nvlink, services; unknown: ecc_mode, power_limit" in said


@pytest.mark.parametrize(("form", "times"), [("table", 1), ("nagios", 1), ("markdown", 2)])
def test_other_reports_name_a_missing_driver_once(make, form, times):
    """Markdown in its table and in its diff."""
    run = make.run_of(make.vetted("gpu1", without_a_driver()))
    assert formats.render(form, run).count("NVML_ERROR_DRIVER_NOT_LOADED") == times


def test_json_keeps_every_finding_and_names_causes(make):
    run = make.run_of(make.vetted("gpu1", without_a_driver()))
    (host,) = msgspec.json.decode(formats.render("json", run))["hosts"]
    assert len(host["findings"]) == 7
    assert [each.get("cause") for each in host["findings"]].count(None) == 3


def test_the_reason_of_one_gpu_explains_no_finding_of_another(make):
    other = Subject(kind="gpu", id="5")
    told = fail(GPU, check="gpu_lost", expected="usable", actual="NVML_ERROR_GPU_IS_LOST")
    found = (unknown(other, check="ecc_mode", why="NVML: NVML_ERROR_GPU_IS_LOST"), told)
    assert follows_from(make.vetted("gpu1", found), Severity.WARNING) == {}


def test_a_reason_that_no_failure_has_explains_no_finding(make):
    found = (*without_a_driver()[:2], fail(DRIVER, check="kernel_modules", why="NVML: timed out"))
    assert follows_from(make.vetted("gpu1", found), Severity.WARNING) == {}


def test_a_cause_that_names_a_part_matches_only_that_part(make):
    found = list(without_a_driver())
    found[3] = msgspec.structs.replace(
        found[3], subject=Subject(kind="module", id="gdrdrv"), why=""
    )
    causes = follows_from(make.vetted("gpu1", found), Severity.WARNING)
    assert causes == {5: f"services unit {UNIT.id}", 6: f"services unit {UNIT.id}"}


def test_findings_that_cause_each_other_all_have_a_line(make):
    found = (
        fail(GPU, check="a", actual=1, cause="b"),
        fail(GPU, check="b", actual=1, cause="a"),
        fail(NODE, check="c", actual=1, cause="c"),
    )
    host = make.vetted("gpu1", found)
    assert causes_of(host, Severity.WARNING, Marks()) == {}
    assert len(fold.lines(make.run_of(host))) == 3
