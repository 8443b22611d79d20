"""How standard output is drawn: --color, --quiet, the environment, and the closing line."""

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import pytest

from nodevet.cli.display import Screen, screen

Run = Callable[..., subprocess.CompletedProcess[str]]
NODEVET = [sys.executable, "-m", "nodevet"]
FINDINGS = [
    {"verdict": "ok", "check": "ecc_mode"},
    {"verdict": "fail", "check": "power_limit", "expected": 700, "actual": 500, "unit": "W"},
    {"verdict": "fail", "check": "swap", "severity": "info", "expected": "off", "actual": "on"},
    {"verdict": "waived", "check": "pcie_link", "waiver": "until 2099-01-01 (ops: riser)"},
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    host = {"host": "gpu1", "status": "vetted", "findings": FINDINGS}
    run = {
        "schema": 3, "id": "x", "nodevet": "0", "seconds": 1.0, "hosts": [host],
        "started": datetime.now(timezone.utc).isoformat(),
    }  # fmt: skip
    path = tmp_path / "last.json"
    path.write_text(json.dumps(run))
    return path


@pytest.mark.parametrize(
    ("color", "environment", "terminal", "pipe"),
    [
        ("auto", {}, True, False),
        ("auto", {"NO_COLOR": "1"}, False, False),
        ("auto", {"NO_COLOR": ""}, True, False),
        ("auto", {"TERM": "dumb"}, False, False),
        ("auto", {"FORCE_COLOR": "1"}, True, True),
        ("auto", {"CLICOLOR_FORCE": "1"}, True, True),
        ("auto", {"FORCE_COLOR": "0"}, True, False),
        ("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False, False),
        ("always", {"NO_COLOR": "1"}, True, True),
        ("never", {"FORCE_COLOR": "1"}, False, False),
    ],
)
def test_the_option_or_else_the_environment_decides_on_colour(
    color: str, environment: dict[str, str], terminal: bool, pipe: bool
) -> None:
    assert screen(Terminal(), color, environment).colour is terminal
    assert screen(io.StringIO(), color, environment).colour is pipe


@pytest.mark.parametrize(
    ("environment", "width"),
    [({"COLUMNS": "132"}, 132), ({"COLUMNS": "0"}, 80), ({"COLUMNS": "wide"}, 80), ({}, 80)],
)
def test_a_terminal_has_a_width_and_a_pipe_has_none(
    environment: dict[str, str], width: int
) -> None:
    assert screen(Terminal(), "never", environment) == Screen(width=width)
    assert screen(io.StringIO(), "never", {"COLUMNS": "132"}) == Screen()


def test_colour_can_be_forced_into_a_pipe(kept: Path) -> None:
    env = {key: value for key, value in os.environ.items() if "COLOR" not in key}
    texts = [
        subprocess.run(
            [*NODEVET, "report", str(kept), *options], capture_output=True, text=True, env=env
        ).stdout
        for options in ([], ["--color", "always"])
    ]
    assert "\x1b" not in texts[0]
    assert "\x1b[31mFAIL" in texts[1]
    assert re.sub(r"\x1b\[[0-9;]*m", "", texts[1]) == texts[0]


def test_quiet_prints_failures_and_totals_and_keeps_the_exit_code(nodevet: Run, kept: Path) -> None:
    whole, quiet = nodevet("report", kept), nodevet("report", kept, "-q")
    assert quiet.returncode == whole.returncode == 1
    assert "WAIVED" in whole.stdout and "swap" in whole.stdout
    rows = quiet.stdout.splitlines()
    assert [rows[0].split()[:2], rows[1]] == [["FAIL", "power_limit"], ""]
    assert rows[2:] == ["1 host: 1 fail · 1 s · 2 rows not shown"]


def test_a_run_that_is_written_to_files_alone_ends_with_its_totals(
    nodevet: Run, kept: Path, tmp_path: Path
) -> None:
    page, text = tmp_path / "a.html", tmp_path / "b.txt"
    for quiet in ([], ["-q"]):
        done = nodevet("report", kept, f"--format=html:{page}", f"--format=table:{text}", *quiet)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == (
            f"nodevet: 1 host: 1 fail · 1 s · written: html {page}, table {text}\n"
        )
    shown = nodevet("report", kept, "--format=table", f"--format=html:{page}")
    assert shown.stderr == ""
