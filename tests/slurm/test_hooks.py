"""Prolog, Epilog and HealthCheckProgram as a real slurmd runs them."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from far_processes import wait_for
from one_machine_slurm import Slurm

from tests.slurm.conftest import FAIL, PASS, reason, shown

pytestmark = pytest.mark.timeout(300)
HOOK = """#!/bin/sh
[ -e {folder}/paused.{name} ] && exit 0
export XDG_STATE_HOME={folder}/state SLURM_CONF={conf}
exec >> {folder}/{name}.out 2>> {folder}/{name}.err
{python} -m nodevet slurm {name} -b {folder}/site.yaml
"""
HOOKS = {"health": "HealthCheckProgram", "prolog": "Prolog", "epilog": "Epilog"}
OURS = re.compile(r"nodevet:local disk_space .+, expected .*")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the hooks lie, and what they read and write."""
    return tmp_path_factory.mktemp("hooks")


@pytest.fixture(scope="module")
def more(folder: Path) -> str:
    lines = [f"{key}={folder}/{name}" for name, key in HOOKS.items()]
    return "\n".join([*lines, "HealthCheckInterval=1", ""])


@pytest.fixture
def hooks(slurm: Slurm, folder: Path) -> Iterator[Path]:
    """Writes the hooks; the health check is paused."""
    (folder / "paused.health").touch()
    for name in HOOKS:
        words = {"folder": folder, "conf": slurm.conf, "python": sys.executable, "name": name}
        (folder / name).write_text(HOOK.format(**words))
        (folder / name).chmod(0o755)
    yield folder
    for name in HOOKS:
        (folder / name).unlink()


@pytest.mark.other_slurm
def test_a_failing_prolog_stops_the_job_and_health_sets_the_reason(
    slurm: Slurm, hooks: Path
) -> None:
    (hooks / "site.yaml").write_text(FAIL)
    slurm.says("sbatch", "-o", os.devnull, "--wrap", f"touch {hooks}/began")
    wait_for(lambda: reason(slurm) == "Prolog error")
    assert not (hooks / "began").exists()
    assert "print nodevet: " in (hooks / "prolog.out").read_text()
    told = (hooks / "prolog.err").read_text()
    assert re.search(r"nodevet: job \d+ does not start here: nodevet:local disk_space ", told)
    (hooks / "site.yaml").write_text(PASS)  # it fails no more, and why it failed is still told
    (hooks / "paused.health").unlink()
    wait_for(lambda: OURS.fullmatch(reason(slurm)))
    assert "IDLE+DRAIN" in shown(slurm)
    assert not (hooks / "state/nodevet/slurm/prolog").exists()


def test_a_mistake_in_a_hook_stops_no_job(slurm: Slurm, hooks: Path) -> None:
    (hooks / "site.yaml").unlink(missing_ok=True)
    slurm.says("sbatch", "-W", "-o", os.devnull, "--wrap", f"touch {hooks}/ran")
    assert (hooks / "ran").exists()
    wait_for(lambda: "did not vet the node" in (hooks / "epilog.err").read_text())
    assert reason(slurm) == ""


def test_an_epilog_knows_when_its_job_began(slurm: Slurm, hooks: Path) -> None:
    (hooks / "site.yaml").write_text(PASS)
    notes = hooks / "state/nodevet/slurm"
    wrap = f"ls {notes}/job-$SLURM_JOB_ID > {hooks}/note"
    slurm.says("sbatch", "-W", "-o", os.devnull, "--wrap", wrap)
    note = Path((hooks / "note").read_text().strip())
    assert note.parent == notes
    wait_for(lambda: not note.exists())
    assert (reason(slurm), (hooks / "epilog.out").read_text()) == ("", "")
