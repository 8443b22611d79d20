"""nodevet beside a real Slurm of this machine, which the tests of one module share."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import slurm_of_root
from far_processes import wait_for
from one_machine_slurm import Slurm, running_slurm

NODEVET = [sys.executable, "-m", "nodevet"]
PASS = "nodevet: 1\nexpect: {disk_space: 1%}\n"
FAIL = "nodevet: 1\nexpect: {disk_space: 99.9%}\n"
Nodevet = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session", autouse=True)
def _slurm_of_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Put the programs of NODEVET_SLURM_ROOT first."""
    with pytest.MonkeyPatch.context() as patch:
        if path := slurm_of_root.programs(tmp_path_factory.mktemp("programs")):
            patch.setenv("PATH", path)
        yield


@pytest.fixture(scope="module")
def more() -> str:
    """Further lines of slurm.conf."""
    return ""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, more: str) -> Iterator[Slurm]:
    with running_slurm(tmp_path_factory.mktemp("slurm"), more) as slurm:
        yield slurm


@pytest.fixture
def slurm(running: Slurm) -> Slurm:
    """Slurm with an idle node that nobody drained."""
    running.says("scancel", "--user", "root")
    wait_for(lambda: not running.jobs)
    if "DRAIN" in shown(running):
        running.says("scontrol", "update", f"NodeName={running.node}", "State=RESUME")
    wait_for(lambda: "State=IDLE " in shown(running))
    return running


@pytest.fixture
def nodevet(running: Slurm, tmp_path: Path) -> Nodevet:
    """Runs a command as slurmd does, with a state of its own."""

    def run(*words: str | Path, **variables: str) -> "subprocess.CompletedProcess[str]":
        env = {
            "SLURM_CONF": str(running.conf),
            "SLURMD_NODENAME": running.node,
            "XDG_STATE_HOME": str(tmp_path / "state"),
            **({"PATH": os.environ["PATH"]} if slurm_of_root.ROOT else {}),
            **variables,
        }
        return subprocess.run(
            [*NODEVET, *map(str, words)],
            capture_output=True,
            text=True,
            env=env,
            cwd=tmp_path,
            timeout=120,
        )

    return run


def shown(slurm: Slurm) -> str:
    """The node as Slurm shows it."""
    return slurm.says("scontrol", "show", "node", "-o", slurm.node)


def reason(slurm: Slurm) -> str:
    """Why the node is drained, without who said so; empty if it is not."""
    text = shown(slurm)
    return text.partition(" Reason=")[2].partition(" [")[0] if "DRAIN" in text else ""


def drain(slurm: Slurm, text: str) -> None:
    slurm.says("scontrol", "update", f"NodeName={slurm.node}", "State=DRAIN", f"Reason={text}")


def is_root() -> bool:
    return os.geteuid() == 0
