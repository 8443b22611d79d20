"""The command line as a user runs it: a process of its own, over real SSH to pretended nodes."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nodevet.sim.fleet import Fleet, Node
from nodevet.sim.machine import hgx

Run = Callable[..., subprocess.CompletedProcess[str]]
NODEVET = [sys.executable, "-m", "nodevet"]


@pytest.fixture(scope="session")
def nodevet(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a command in an empty folder with an empty home; returns it with text output."""
    empty = tmp_path_factory.mktemp("elsewhere")

    def run(
        *arguments: str | Path, cwd: Path = empty, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*NODEVET, *map(str, arguments)],
            cwd=cwd,
            env={**os.environ, "HOME": str(empty), "COLUMNS": "100"},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """gpu1 is healthy; gpu2 is capped; gpu3 has a slow governor; gpu4 does not answer."""
    nodes = [
        Node(hgx("gpu1"), "h100-sxm"),
        Node(hgx("gpu2"), "h100-sxm", {"gpu.*.power_limit_mw": 500000}),
        Node(replace(hgx("gpu3"), governor="powersave"), "h100-sxm"),
        Node(hgx("gpu4"), "h100-sxm", listens=False),
    ]
    with Fleet(tmp_path_factory.mktemp("fleet"), nodes) as running:
        yield running


@pytest.fixture(scope="session")
def reach(fleet: Fleet) -> list[str]:
    """The options that lead to the fleet."""
    return ["-i", str(fleet.inventory), "--known-hosts", str(fleet.known_hosts)]
