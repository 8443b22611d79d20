"""A job that reads a loop device of its own, behind which each read takes 20 ms."""

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gpu_load import loaded_machine, slow_file, slow_program

pytestmark = pytest.mark.timeout(300)


@contextmanager
def loop_device(file: Path) -> Iterator[Path]:
    """A block device whose sectors are those of a file."""
    if os.geteuid():
        pytest.skip("this machine gives no loop device: it takes root")
    made = subprocess.run(
        ["losetup", "--find", "--show", "--read-only", file], capture_output=True, text=True
    )
    if made.returncode:
        pytest.skip(f"this machine gives no loop device: {made.stderr.strip()}")
    device = Path(made.stdout.strip())
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", device], check=True)


def test_a_job_on_a_slow_loop_device(nvml: Path, tmp_path: Path) -> None:
    with (
        loaded_machine(nvml) as machine,
        slow_file(slow_program(tmp_path / "slowfs"), tmp_path / "slow", 20_000) as data,
        loop_device(data) as device,
        machine.load("reads", device),
    ):
        gpu = machine.diagnose()["gpus"][0]
    assert gpu["cause"] == "storage-bound", gpu["sentence"]
    busy = {each["name"]: each for each in gpu["figures"]}["disk_busy"]
    told = re.fullmatch(rf"{device.name}, ([0-9.]+) ms a request", busy["note"])
    assert told and float(told[1]) >= 20 and busy["value"] > 50, busy
