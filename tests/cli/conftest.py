"""The command line as a user runs it: a process of its own, over real SSH to simulated nodes."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from simulated_fleet import Boot, SimulatedFleet

Run = Callable[..., subprocess.CompletedProcess[str]]
NODEVET = [sys.executable, "-m", "nodevet"]


@pytest.fixture(scope="session")
def nodevet(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a command in an empty folder with an empty home; returns it with text output."""
    empty = tmp_path_factory.mktemp("elsewhere")

    def run(
        *arguments: str | Path, cwd: Path = empty, stdin: str = "", seconds: float = 400
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*NODEVET, *map(str, arguments)],
            cwd=cwd,
            env={**os.environ, "HOME": str(empty), "COLUMNS": "100"},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


SCENARIO = """\
sim: 1
templates:
  h100: {gpus: h100-sxm, cores: 8}
nodes:
  gpu1: {template: h100}
  gpu2: {template: h100, nvml: {"gpu.*.power_limit_mw": "500000"}}
  gpu3: {template: h100, governor: powersave}
  gpu4: {template: h100, faults: [sshd-stopped]}
"""


@pytest.fixture(scope="session")
def fleet(boot_once: Boot) -> SimulatedFleet:
    """gpu1 is healthy; gpu2 is capped; gpu3 has a slow governor; gpu4 does not answer."""
    return boot_once("cli", SCENARIO)


@pytest.fixture(scope="session")
def reach(fleet: SimulatedFleet) -> list[str]:
    """The options that lead to the fleet, with time for two busy CPUs to play its nodes."""
    return ["-i", str(fleet.place.inventory), "--deadline", "150"]
