"""This machine, as its owner and its scheduler check it: a process of its own, no SSH."""

import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nodevet.base.last_verdict import FORGET_MARK

PASS = "nodevet: 1\nexpect: {disk_space: 1%}\n"
FAIL = "nodevet: 1\nexpect: {disk_space: 99.9%}\n"
AGED = "· verdict of "
Run = Callable[..., subprocess.CompletedProcess[str]]
Check = Callable[..., tuple[int, str, str]]


@pytest.fixture
def check(nodevet: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Check:
    """`nodevet check @local -b b.yaml` in a folder of its own, with a state of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "project").mkdir()

    def check(*options: str | Path) -> tuple[int, str, str]:
        done = nodevet("check", "@local", "-b", "b.yaml", *options, cwd=tmp_path / "project")
        return done.returncode, done.stdout, done.stderr

    return check


@pytest.fixture
def baseline(tmp_path: Path, check: Check) -> Callable[[str], None]:
    """Writes b.yaml, as if it had been there for an hour."""

    def write(text: str) -> None:
        (tmp_path / "project/b.yaml").write_text(text)
        time.sleep(2.2)  # what has just changed is not relied on

    return write


def test_a_recent_pass_is_reused_and_printed_with_its_age(
    check: Check, baseline: Callable[[str], None], tmp_path: Path
) -> None:
    baseline(PASS)
    code, first, _ = check("--max-age", "5m")
    assert (code, AGED in first) == (0, False)
    code, again, errors = check("--max-age", "5m")
    assert (code, errors) == (0, "")
    assert re.sub(r" · verdict of \d+ s ago", "", again) == first
    assert AGED in again
    assert AGED not in check()[1]
    assert AGED not in check("--max-age", "4m")[1]
    (tmp_path / "project/checks").mkdir()
    assert AGED not in check("--max-age", "5m")[1]


def test_a_failure_is_checked_again_each_time(
    check: Check, baseline: Callable[[str], None], tmp_path: Path
) -> None:
    baseline(FAIL)
    for _ in range(2):
        code, report, _ = check("--max-age", "5m")
        assert (code, AGED in report) == (1, False)
    passes = tmp_path / "state/nodevet/verdicts"
    kept = [path.name for path in passes.iterdir()]
    assert kept == [FORGET_MARK]


def test_a_nagios_warning_is_not_reused_as_a_pass(
    check: Check, baseline: Callable[[str], None]
) -> None:
    baseline(FAIL + "severity: {disk_space: warning}\n")
    given = ("--max-age", "5m", "--fail-on", "critical")
    assert check(*given)[0] == 0
    for _ in range(2):
        code, report, _ = check(*given, "--format", "nagios")
        assert (code, report[:15]) == (1, "NODEVET WARNING")


def test_a_pass_is_not_reused_after_a_check_of_the_machine_failed(
    check: Check, baseline: Callable[[str], None], tmp_path: Path
) -> None:
    baseline(PASS)
    assert check("--max-age", "5m")[0] == 0
    assert AGED in check("--max-age", "5m")[1]
    (tmp_path / "worse.yaml").write_text(FAIL)
    assert check("-b", str(tmp_path / "worse.yaml"))[0] in (1, 3)
    assert AGED not in check("--max-age", "5m")[1]


def test_a_pass_by_another_baseline_of_the_same_name_does_not_count(
    check: Check, baseline: Callable[[str], None]
) -> None:
    baseline(PASS)
    assert check("--max-age", "5m")[0] == 0
    baseline(FAIL)
    code, report, _ = check("--max-age", "5m")
    assert (code, AGED in report) == (1, False)


def test_a_new_file_with_the_name_of_an_extended_baseline_prevents_reuse(
    check: Check, baseline: Callable[[str], None], tmp_path: Path
) -> None:
    folder = tmp_path / "project"
    (folder / "base.yaml").write_text(PASS)
    baseline("nodevet: 1\nextends: base\n")
    assert check("--max-age", "5m")[0] == 0
    (folder / "notes.txt").write_text("")
    assert AGED in check("--max-age", "5m")[1]
    (folder / "base.yml").write_text(FAIL)
    assert check("--max-age", "5m")[0] == 2


def test_a_change_of_a_baseline_reached_through_a_symlink_prevents_reuse(
    check: Check, baseline: Callable[[str], None], tmp_path: Path
) -> None:
    (tmp_path / "elsewhere/inner").mkdir(parents=True)
    (tmp_path / "project/link").symlink_to("../elsewhere/inner")
    (tmp_path / "elsewhere/base.yaml").write_text(PASS)
    baseline("nodevet: 1\nextends: link/../base.yaml\n")
    assert check("--max-age", "5m")[0] == 0
    assert AGED in check("--max-age", "5m")[1]
    (tmp_path / "elsewhere/base.yaml").write_text(FAIL)
    code, report, _ = check("--max-age", "5m")
    assert (code, AGED in report) == (1, False)


def test_a_verdict_that_cannot_be_stored_is_printed_with_a_warning(
    check: Check, baseline: Callable[[str], None], tmp_path: Path
) -> None:
    baseline(PASS)
    (tmp_path / "state").write_text("a file")
    code, report, errors = check("--max-age", "5m")
    assert (code, "All ok" in report) == (0, True)
    assert "cannot be stored" in errors


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--max-age", "none"), "say how old a verdict may be"),
        (("--max-age", "5m", "--format", "json:run.json"), "writes no file"),
        (("--max-age", "5m", "--save", "evidence"), "writes no file"),
        (("--max-age", "5m", "-i", "b.yaml"), "reads no inventory"),
        (("--max-age", "5m", "--store", "sqlite:///s"), "writes no file"),
    ],
)
def test_options_that_do_not_go_with_a_stored_pass_are_refused(
    check: Check, baseline: Callable[[str], None], options: tuple[str, ...], said: str
) -> None:
    baseline(PASS)
    code, report, errors = check(*options)
    assert (code, report) == (2, "")
    assert said in errors


def test_a_pass_of_another_folder_is_not_reused(
    check: Check, nodevet: Run, baseline: Callable[[str], None], tmp_path: Path
) -> None:
    baseline(PASS)
    assert check("--max-age", "5m")[0] == 0
    other = tmp_path / "other"
    other.mkdir()
    (other / "b.yaml").write_text(FAIL)
    done = nodevet("check", "@local", "-b", "b.yaml", "--max-age", "5m", cwd=other)
    assert done.returncode == 1


def test_all_shows_the_checks_that_passed(check: Check, baseline: Callable[[str], None]) -> None:
    baseline(PASS)
    _, report, _ = check()
    assert "disk_space" not in report
    assert re.match(rf"machine +.*\nsystem +.*{re.escape(os.uname().release)}", report)
    assert re.search(r"OK +disk_space +access: read-write, free: ", check("--all")[1])
