"""The prolog of docs/pass.md beside a real Slurm: a job starts only on a node with a pass."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from console_blocks import blocks
from far_processes import wait_for
from one_machine_slurm import Slurm

from nodevet.base.sshsig import sign
from nodevet.passes.document import NAMESPACE, text_of
from nodevet.passes.on_node import facts
from tests.slurm.conftest import reason, shown

pytestmark = pytest.mark.timeout(300)
PAGE = Path(__file__).parents[2] / "docs" / "pass.md"
PROGRAM = """#!/bin/sh
exec {python} -m nodevet "$@" --file {folder}/pass --allowed-signers {folder}/allowed
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's prolog, with a nodevet whose files lie here, and a key."""
    folder = tmp_path_factory.mktemp("pass")
    script = next(block.text for block in blocks(PAGE) if block.mark("file") == "prolog.sh")
    (folder / "prolog").write_text(script.replace("/opt/nodevet/bin/nodevet", f"{folder}/nodevet"))
    (folder / "nodevet").write_text(PROGRAM.format(python=sys.executable, folder=folder))
    for name in ("prolog", "nodevet"):
        (folder / name).chmod(0o755)
    key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "key")]
    subprocess.run(key, check=True)
    (folder / "allowed").write_text(f"c@example.com {(folder / 'key.pub').read_text()}")
    return folder


@pytest.fixture(scope="module")
def more(folder: Path) -> str:
    return f"Prolog={folder}/prolog\n"


def issue(folder: Path) -> None:
    """A pass for this machine as it is."""
    now = int(time.time())
    texts = {
        "host": "here",
        "machine": facts._line("/", "etc/machine-id"),
        "boot": facts._line("/", "proc/sys/kernel/random/boot_id"),
        "uptime": str(int(facts._uptime("/"))),
        "driver": facts._driver("/"),
        "baseline": "0 site",
        "evidence": "0",
        "vetted": str(now),
        "expires": str(now + 3600),
        "nodevet": "0",
    }
    text = text_of({**{name: [each] for name, each in texts.items()}, "gpu": facts.uuids("/")})
    signature = sign([text], folder / "key", NAMESPACE, option="--pass-key")[0]
    (folder / "pass").write_bytes(text + signature)


def test_without_a_pass_no_job_starts_and_with_one_it_does(slurm: Slurm, folder: Path) -> None:
    slurm.says("sbatch", "-o", os.devnull, "--wrap", f"touch {folder}/began")
    wait_for(lambda: reason(slurm) == "Prolog error")
    assert not (folder / "began").exists()
    issue(folder)
    slurm.says("scontrol", "update", f"NodeName={slurm.node}", "State=RESUME")
    wait_for(lambda: "State=IDLE " in shown(slurm))
    slurm.says("sbatch", "-W", "-o", os.devnull, "--wrap", f"touch {folder}/ran")
    assert (folder / "ran").exists() and reason(slurm) == ""


def test_an_uninstalled_nodevet_stops_no_job(slurm: Slurm, folder: Path) -> None:
    (folder / "pass").unlink(missing_ok=True)
    (folder / "nodevet").chmod(0o644)
    slurm.says("sbatch", "-W", "-o", os.devnull, "--wrap", f"touch {folder}/free")
    assert (folder / "free").exists() and reason(slurm) == ""
