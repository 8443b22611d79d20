"""The command line as a user runs it: a process of its own, over real SSH to simulated nodes."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodevet_sim.nspawn.needs import missing
from nodevet_sim.nspawn.place import FleetFolder

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


class Sim:
    """A running fleet of simulated nodes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.inventory = FleetFolder(name).inventory

    def set(self, node: str, *changes: str) -> None:
        """Change a node while it runs."""
        self.run("set", "--fleet", self.name, node, *changes)

    def shell(self, node: str, command: str) -> None:
        """Run a command of root on a node."""
        self.run("ssh", "--fleet", self.name, node, "--", command)

    @staticmethod
    def run(*arguments: str) -> None:
        subprocess.run([*NODEVET, "sim", *arguments], check=True, timeout=300)


@pytest.fixture(scope="session")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sim]:
    """gpu1 is healthy; gpu2 is capped; gpu3 has a slow governor; gpu4 does not answer."""
    if missing():
        pytest.skip("; ".join(missing()))
    scenario = tmp_path_factory.mktemp("fleet") / "nodes.yaml"
    scenario.write_text(SCENARIO, encoding="utf-8")
    running = Sim(f"cli{os.getpid()}")
    running.run("up", str(scenario), "--name", running.name)
    try:
        yield running
    finally:
        running.run("down", running.name)


@pytest.fixture(scope="session")
def reach(fleet: Sim) -> list[str]:
    """The options that lead to the fleet, with time for two busy CPUs to play its nodes."""
    return ["-i", str(fleet.inventory), "--deadline", "150"]
