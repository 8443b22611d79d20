"""`nodevet lint` as it is typed: what it prints where, and its exit code."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nodevet.author.use.lint import SKIPPED

Run = Callable[..., subprocess.CompletedProcess[str]]
WRONG = "nodevet: 1\nexpect: {gpu_cout: 8}\n"
ODD = "nodevet: 1\nexpect: {xid: {}, gpu_count: 8}\nfix: [xid]\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "baselines").mkdir()
    (tmp_path / "baselines/a.yaml").write_text(WRONG)
    (tmp_path / "fleet.yaml").write_text("nodevet: 1\nhosts: gpu1\n")
    return tmp_path


def test_lint_lists_the_files_that_it_read(nodevet: Run, project: Path) -> None:
    done = nodevet("lint", cwd=project)
    assert done.returncode == 2
    assert done.stdout == (
        "baselines/a.yaml:2:10: expect.gpu_cout: no check has this name; did you mean gpu_count?\n"
        "    2 | expect: {gpu_cout: 8}\n"
        "      |          ^\n"
    )
    assert done.stderr == (
        "baseline   baselines/a.yaml\ninventory  fleet.yaml\n2 files: 1 error, 0 warnings\n"
    )


@pytest.mark.parametrize(
    ("form", "begins"), [("json", "{"), ("github", "::error "), ("sarif", "{")]
)
def test_lint_prints_json_github_and_sarif(
    nodevet: Run, project: Path, form: str, begins: str
) -> None:
    done = nodevet("lint", "--format", form, cwd=project)
    assert done.returncode == 2
    assert done.stdout.startswith(begins)
    if begins == "{":
        assert json.loads(done.stdout)


def test_lint_prints_colour_if_color_is_always(nodevet: Run, project: Path) -> None:
    assert "\x1b[31m^\x1b[0m" in nodevet("lint", "--color", "always", cwd=project).stdout


def test_strict_exits_2_on_warnings(nodevet: Run, project: Path) -> None:
    (project / "baselines/a.yaml").write_text(ODD)
    assert nodevet("lint", cwd=project).returncode == 0
    strict = nodevet("lint", "--strict", cwd=project)
    assert strict.returncode == 2
    assert strict.stderr.endswith("2 files: 0 errors, 1 warning\n")


def test_lint_skips_files_that_are_not_nodevets(nodevet: Run, project: Path) -> None:
    (project / "ci.yml").write_text("on: push\n")
    done = nodevet("lint", "ci.yml", "fleet.yaml", cwd=project)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == (f"ci.yml: skipped: {SKIPPED}\n1 inventory: 0 errors, 0 warnings\n")
