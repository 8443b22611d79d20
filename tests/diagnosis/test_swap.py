"""A job that pages to a real swap file, in a cgroup that gives it less memory than it uses."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gpu_load import cgroup, loaded_machine

pytestmark = pytest.mark.timeout(300)
LIMIT = str(80 << 20)


@contextmanager
def swap_file(file: Path) -> Iterator[None]:
    """256 MiB of swap for as long as it is needed."""
    if os.geteuid():
        pytest.skip("this machine gives no swap: it takes root")
    with file.open("wb") as out:
        os.posix_fallocate(out.fileno(), 0, 256 << 20)
    file.chmod(0o600)
    subprocess.run(["mkswap", file], check=True, capture_output=True)
    done = subprocess.run(["swapon", file], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"this machine gives no swap: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["swapoff", file], check=True)


def test_a_job_that_swaps(nvml: Path, tmp_path: Path) -> None:
    with (
        loaded_machine(nvml) as machine,
        swap_file(tmp_path / "swap"),
        cgroup("memory", {"memory.limit_in_bytes": LIMIT}, {"memory.max": LIMIT}) as group,
        machine.load("swaps", group=group),
    ):
        gpu = machine.diagnose()["gpus"][0]
    # another program of this machine may take its CPUs
    assert set(gpu["causes"]) - {"CPUs taken by others"} == {"memory-pressure"}, gpu["sentence"]
    figures = {each["name"]: each["value"] for each in gpu["figures"]}
    assert figures["swapped_in"] > 100 and figures["job_major_faults"] > 50, figures
    held = {each["rule"] for each in gpu["rulings"] if each["holds"]}
    assert "the job's pages are read back from swap" in held
