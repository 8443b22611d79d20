"""What changed baselines change: by two runs, and by the command on saved evidence."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from junitparser import JUnitXml

from nodevet.author.preview import VerdictChange, preview
from nodevet.author.preview_sheet import preview_junit, preview_sheet
from nodevet.model import Finding, HostReport, Severity, Status, Subject, Verdict
from nodevet.model.run import Run
from nodevet.sheet import render

GPU = Subject(kind="gpu", id="3")
BASELINE = "nodevet: 1\ntitle: t\nexpect: {{sysctl: {{kernel.ostype: {ostype}}}}}\n"
FAIL, OK, UNKNOWN = Verdict.FAIL, Verdict.OK, Verdict.UNKNOWN


def found(verdict: Verdict, check: str = "power_limit", **more: Any) -> Finding:
    return Finding(verdict=verdict, check=check, subject=GPU, **more)


def run_of(*findings: Finding, fail_on: Severity = Severity.WARNING, host: str = "gpu1") -> Run:
    status = Status.VETTED if findings else Status.PROBE_FAILED
    report = HostReport(host=host, status=status, findings=findings)
    return Run(id="r", nodevet="0", started="", seconds=0.0, hosts=(report,), fail_on=fail_on)


@pytest.mark.parametrize(
    ("old", "new", "change", "code"),
    [
        (OK, FAIL, VerdictChange.FAILS, 1),
        (UNKNOWN, FAIL, VerdictChange.FAILS, 1),
        (Verdict.NOT_APPLICABLE, FAIL, VerdictChange.FAILS, 1),
        (None, FAIL, VerdictChange.FAILS, 1),
        (OK, UNKNOWN, VerdictChange.UNKNOWN, 3),
        (None, UNKNOWN, VerdictChange.UNKNOWN, 3),
        (FAIL, OK, VerdictChange.PASSES, 0),
        (UNKNOWN, OK, VerdictChange.PASSES, 0),
        (FAIL, Verdict.WAIVED, VerdictChange.WAIVED, 0),
        (FAIL, Verdict.NOT_APPLICABLE, VerdictChange.NOT_JUDGED, 0),
        (FAIL, None, VerdictChange.NOT_JUDGED, 0),
        (UNKNOWN, None, VerdictChange.NOT_JUDGED, 0),
        (FAIL, FAIL, None, 0),
        (FAIL, UNKNOWN, None, 0),
        (OK, None, None, 0),
        (None, OK, None, 0),
    ],
)
def test_each_pair_of_verdicts(
    old: Verdict | None, new: Verdict | None, change: VerdictChange | None, code: int
) -> None:
    other = found(OK, "xid")
    before, after = (run_of(other, *([found(one)] if one else [])) for one in (old, new))
    result = preview(before, after)
    assert [one.change for one in result.changes] == ([change] if change else [])
    assert result.exit_code == code


def test_a_host_that_nothing_judges_is_unknown_and_never_passes() -> None:
    assert preview(run_of(found(OK)), run_of()).exit_code == 3
    nothing = preview(run_of(), run_of())
    assert (nothing.exit_code, nothing.changes, nothing.still) == (3, (), 1)
    assert "no baseline judges any of them" in preview_sheet(nothing).title
    assert preview(run_of(), run_of(found(FAIL))).exit_code == 1


def test_a_host_for_which_every_check_stops_applying_is_newly_unknown() -> None:
    absent = found(Verdict.NOT_APPLICABLE)
    assert preview(run_of(found(OK)), run_of(absent)).exit_code == 3
    assert preview(run_of(absent), run_of(absent)).judged == 0


@pytest.mark.parametrize("new", [None, Verdict.NOT_APPLICABLE, Verdict.WAIVED])
def test_junit_skips_a_check_that_is_waived_or_no_longer_judged(new: Verdict | None) -> None:
    other = found(OK, "xid")
    after = run_of(other, *([found(new)] if new else []))
    xml = JUnitXml.fromstring(preview_junit(preview(run_of(other, found(FAIL)), after)).encode())
    assert (xml.tests, xml.failures, xml.errors, xml.skipped) == (1, 0, 0, 1)


def test_ignored_findings_are_ok_and_the_worst_finding_of_a_part_counts() -> None:
    minor = found(FAIL, severity=Severity.WARNING)
    assert preview(run_of(found(OK)), run_of(minor, fail_on=Severity.CRITICAL)).changes == ()
    assert preview(run_of(found(OK)), run_of(found(FAIL, severity=Severity.SHADOW))).changes == ()
    assert preview(run_of(found(OK)), run_of(found(OK), minor)).exit_code == 1


def test_a_hostile_text_is_harmless_in_every_format() -> None:
    bad = found(FAIL, expected="\x1b[2J<b>|", actual="]]>\n", why="a|b")
    result = preview(run_of(found(OK)), run_of(bad))
    for form in ("table", "markdown", "html"):
        text = render(form, None, lambda: preview_sheet(result))
        assert "\x1b" not in text and (form != "html" or "<b>" not in text), form
    xml = JUnitXml.fromstring(preview_junit(result).encode())
    assert (xml.tests, xml.failures, xml.errors) == (1, 1, 0)


def preview_here(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nodevet", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=400)


def test_two_versions_of_a_project_judge_the_same_evidence(tmp_path: Path) -> None:
    for version, ostype in (("base", "Linux"), ("head", "Plan9")):
        folder = tmp_path / version / "baselines"
        folder.mkdir(parents=True)
        (folder / "site.yaml").write_text(BASELINE.format(ostype=ostype))
    saved = ("check", "@local", "-b", "baselines/site.yaml", "--save", "../evidence")
    assert preview_here(tmp_path / "base", *saved).returncode == 0
    words = ("preview", "../evidence", "--base")
    for name in ("site", "baselines/site.yaml"):
        done = preview_here(tmp_path / "head", *words, "../base", "-b", name)
        assert (done.returncode, done.stderr) == (1, ""), done
        assert "newly fails" in done.stdout and "Linux, expected Plan9" in done.stdout
    done = preview_here(tmp_path / "base", *words, "../head", "-b", "site")
    assert done.returncode == 0 and "newly passes" in done.stdout
    done = preview_here(tmp_path / "head", *words, "../base", "-b", "absent")
    assert done.returncode == 2 and "Traceback" not in done.stderr


def test_a_baseline_path_must_name_two_different_files_in_the_two_versions(
    tmp_path: Path,
) -> None:
    for version, ostype in (("base", "Linux"), ("head", "Plan9")):
        folder = tmp_path / version / "baselines"
        folder.mkdir(parents=True)
        (folder / "site.yaml").write_text(BASELINE.format(ostype=ostype))
    saved = ("check", "@local", "-b", "baselines/site.yaml", "--save", "../evidence")
    assert preview_here(tmp_path / "base", *saved).returncode == 0
    words = ("preview", "../evidence", "--base")
    whole = str(tmp_path / "head/baselines/site.yaml")
    done = preview_here(tmp_path / "head", *words, "../base", "-b", whole)
    assert (done.returncode, done.stderr) == (1, ""), done
    for outside in ("../head/baselines/site.yaml", str(tmp_path / "base/baselines/site.yaml")):
        done = preview_here(tmp_path / "head", *words, "../base", "-b", outside)
        assert done.returncode == 2 and "is the same file for both versions" in done.stderr, done
    done = preview_here(tmp_path / "head", *words, ".", "-b", "site")
    assert done.returncode == 2 and "the same folder" in done.stderr
    (tmp_path / "base/baselines/site.yaml").unlink()
    (tmp_path / "base/baselines/site.yaml").symlink_to(whole)
    done = preview_here(tmp_path / "head", *words, "../base", "-b", "baselines/site.yaml")
    assert done.returncode == 2 and "is the same file for both versions" in done.stderr
