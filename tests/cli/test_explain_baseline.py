"""`nodevet explain BASELINE`: which hosts it is for, what it extends, what it expects and why."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from nodevet.baseline import available
from nodevet.baseline.notes import remarks

Run = Callable[..., subprocess.CompletedProcess[str]]
BASE = """\
nodevet: 1
title: All of ours
expect:
  # measured in March,
  # on gpu001
  disk_space: 5%
  swap: none # kubelet refuses it
  power_limit: default
"""
SITE = """\
nodevet: 1
title: Training nodes
extends: base
applies: {hosts: "gpu[001-004]", groups: [training], gpu: {device: "10de:2330", count: 8}}
expect:
  power_limit:
    watts: 500 # the old racks
  swap: ~
severity: {disk_space: info}
waivers:
  - {check: power_limit, subject: GPU 3, accepts: 400 W, owner: ops, reason: PSU, until: 2099-01-01}
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("explained")
    (folder / "baselines").mkdir()
    (folder / "baselines/base.yaml").write_text(BASE)
    (folder / "baselines/site.yaml").write_text(SITE)
    return folder


def test_explain_shows_a_baseline_of_the_project_with_its_sources(
    nodevet: Run, project: Path
) -> None:
    done = nodevet("explain", "site", cwd=project)
    assert (done.returncode, done.stderr) == (0, "")
    for told in (
        "site (baselines/site.yaml)\nTraining nodes\n",
        "hosts named gpu[001-004], of the group training, whose GPUs are all 10de:2330.",
        "\n  baselines/base.yaml: All of ours\n",
        "It has 2 checks.",
        "  power_limit  critical\n    Every GPU has the expected power limit.\n"
        "    watts: 500  ← baselines/site.yaml:7\n    # the old racks\n",
        "← baselines/base.yaml:6\n    severity: info  ← baselines/site.yaml:9\n"
        "    # measured in March, on gpu001\n",
        "It removes these inherited checks:\n  swap  ← baselines/site.yaml:8\n",
        "  power_limit of GPU 3: 400 W, until 2099-01-01 (ops: PSU)",
    ):
        assert told in done.stdout, (told, done.stdout)
    assert "default" not in done.stdout and "kubelet" not in done.stdout  # what no longer stands


def test_explain_prints_the_same_for_a_baseline_name_a_file_and_option_b(
    nodevet: Run, project: Path
) -> None:
    named = nodevet("explain", "site", cwd=project).stdout
    assert nodevet("explain", "baselines/site.yaml", cwd=project).stdout == named
    assert nodevet("explain", "-b", "site", cwd=project).stdout == named
    both = nodevet("explain", "-b", "site", "-b", "base", cwd=project).stdout
    assert both.startswith(named) and "nodevet never chooses it by itself" in both


@pytest.mark.parametrize("name", [name for name, _ in available([])])
def test_a_shipped_baseline_fits_the_columns(name: str, nodevet: Run) -> None:
    done = nodevet("explain", name)
    assert done.returncode == 0 and done.stdout.startswith(f"{name} ("), done
    assert not [line for line in done.stdout.splitlines() if len(line) > 100 and "←" not in line]


def test_explain_without_an_argument_asks_for_one(nodevet: Run, project: Path) -> None:
    done = nodevet("explain", cwd=project)
    assert done.returncode == 2
    assert "name a check, a baseline or a host" in done.stderr


def test_explain_reports_the_mistake_in_an_invalid_baseline(nodevet: Run, project: Path) -> None:
    (project / "bad.yaml").write_text("nodevet: 1\nexpect: {swop: none}\n")
    done = nodevet("explain", "./bad.yaml", cwd=project)
    assert done.returncode == 2
    assert "bad.yaml:2:10: expect.swop: no check has this name; did you mean swap?" in done.stderr


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a: 1\n", {}),
        ("a: '#1' # one\n", {1: "one"}),
        ("# of nothing\n\na: 1\n", {}),
        ("a: |\n  # text\n  more # text\nb: 2 # two\n", {4: "two"}),
        ("a: [1, # one\n    2] # both\n", {1: "one", 2: "both"}),
    ],
)
def test_comments_are_distinguished_from_text(text: str, found: dict[int, str]) -> None:
    assert remarks(text) == found
