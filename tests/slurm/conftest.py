"""nodevet beside a real Slurm, which the tests of one module share: the one of this machine.

The mark `other_slurm` runs a test also beside the Slurm of another Debian: see other_slurm.py in
tests/rigs. NODEVET_SLURM_ROOT runs all tests beside that one alone.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import other_slurm
import pytest
from far_processes import wait_for
from one_machine_slurm import Slurm, running_slurm

NODEVET = [sys.executable, "-m", "nodevet"]
PASS = "nodevet: 1\nexpect: {disk_space: 1%}\n"
FAIL = "nodevet: 1\nexpect: {disk_space: 99.9%}\n"
Nodevet = Callable[..., "subprocess.CompletedProcess[str]"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Two runs of a test with the mark `other_slurm`."""
    if other_slurm.NAMED:
        chosen = ["other"]
    else:
        is_both = metafunc.definition.get_closest_marker("other_slurm")
        chosen = ["own", "other"] if is_both else ["own"]
    if "is_other" in metafunc.fixturenames and chosen != ["own"]:
        metafunc.parametrize("is_other", chosen, indirect=True, scope="module")


@pytest.fixture(scope="module", autouse=True)
def is_other(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[bool]:
    """Whether it is the Slurm of another Debian; its programs are the first of PATH then."""
    if getattr(request, "param", "own") == "own":
        yield False
        return
    if why := other_slurm.missing():
        pytest.skip(f"this machine starts no Slurm of another Debian: {why}")
    folder = tmp_path_factory.mktemp("programs")
    other_slurm.write_programs(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        yield True


@pytest.fixture(scope="module")
def more() -> str:
    """Further lines of slurm.conf."""
    return ""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, more: str, is_other: bool) -> Iterator[Slurm]:
    with running_slurm(tmp_path_factory.mktemp("slurm"), more, must=is_other) as slurm:
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
def nodevet(running: Slurm, is_other: bool, tmp_path: Path) -> Nodevet:
    """Runs a command as slurmd does, with a state of its own."""

    def run(*words: str | Path, **variables: str) -> "subprocess.CompletedProcess[str]":
        env = {
            "SLURM_CONF": str(running.conf),
            "SLURMD_NODENAME": running.node,
            "XDG_STATE_HOME": str(tmp_path / "state"),
            **({"PATH": os.environ["PATH"]} if is_other else {}),
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
