"""A job on NFS. The statistics of the mounts were recorded, second by second, under Linux 6.1 with
its own server: a v4.2 mount read in pages of 4 KiB, a v4.1 mount of home folders and a v3 mount
read in pieces of 32 KiB, over a network that took 18 ms for the way there and back and was cut off
for three seconds. The job's waits are real: its file takes as long."""

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from gpu_load import LoadedMachine, loaded_machine, slow_file, slow_program
from live_machine import can_be_made

from nodevet.remote.probe.collectors import host_activity

pytestmark = pytest.mark.timeout(300)
RECORDED: list[str] = json.loads(
    gzip.decompress(Path(__file__).with_name("mountstats.json.gz").read_bytes())
)
CUT_OFF = range(8, 12)
"""The seconds in which no answer came."""


def grown(tmp_path: Path, first: int, last: int) -> dict[str, dict[str, dict[str, Any]]]:
    """{mount point: {operation: {counter: by how much}}}, as the collector reads it."""
    file = tmp_path / "proc/1/mountstats"
    file.parent.mkdir(parents=True, exist_ok=True)
    looks = []
    for second in (first, last):
        file.write_text(RECORDED[second])
        looks.append(host_activity.nfs(str(tmp_path), {"whole_machine": True}))
    before, after = looks
    told = [host_activity.nfs_of(key, before[key], after[key]) for key in sorted(after)]
    return {
        mount["point"]: {
            each["name"]: {
                name: pair[1] - pair[0] for name, pair in each.items() if isinstance(pair, list)
            }
            for each in mount["operations"]
        }
        for mount in told
    }


def test_each_mount_and_operation_of_the_recording_is_counted(tmp_path: Path) -> None:
    found = grown(tmp_path, 0, 20)
    assert list(found) == ["/mnt/data", "/mnt/home", "/mnt/scratch"]
    read = found["/mnt/data"]["READ"]
    assert (read["operations"], read["transmissions"], read["received_b"]) == (798, 798, 3351600)
    assert read["execute_ms"] == 20515 - 1446 and "WRITE" not in found["/mnt/data"]
    assert found["/mnt/home"]["WRITE"]["operations"] == 34 and "READ" not in found["/mnt/home"]


def test_retransmissions_are_counted_for_the_nfs_v3_mount(tmp_path: Path) -> None:
    cut = {point: each["READ"] for point, each in grown(tmp_path, 7, 13).items() if "READ" in each}
    again = {point: read["transmissions"] - read["operations"] for point, read in cut.items()}
    assert again == {"/mnt/data": 0, "/mnt/scratch": 2}


@contextmanager
def served(file: Path) -> Iterator[None]:
    """The recording from where answers come again, four seconds for each of its own: a job is
    watched for longer than that, wherever it starts."""
    ended = threading.Event()

    def serve() -> None:
        for text in RECORDED[CUT_OFF.stop :]:
            with file.open("r+") as out:
                out.write(text)
                out.truncate()
            if ended.wait(4):
                return

    file.write_text(RECORDED[CUT_OFF.stop])
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.fixture
def machine(nvml: Path) -> Iterator[LoadedMachine]:
    with loaded_machine(nvml) as found:
        yield found


@pytest.mark.skipif(not can_be_made(), reason="this machine has no mount namespaces to give")
def test_a_job_on_nfs(machine: LoadedMachine, tmp_path: Path) -> None:
    """The recording is read where the kernel has its own. The job maps its file, so that nothing
    shows on which mount it is."""
    file = tmp_path / "mountstats"
    over = 'mount --bind "$0" /proc/1/mountstats && exec "$@"'
    with (
        slow_file(slow_program(tmp_path / "slowfs"), tmp_path / "slow", 20_000) as data,
        machine.load("maps", data),
        served(file),
    ):
        host = machine.diagnose(before=["unshare", "--mount", "sh", "-c", over, str(file)])
    gpu = host["gpus"][0]
    assert gpu["cause"] == "storage-bound", gpu["sentence"]
    latency = {each["name"]: each for each in gpu["figures"]}["nfs_latency"]
    assert 17 < latency["value"] < 22, latency
    assert latency["note"] in ("/mnt/data", "/mnt/scratch")
    assert f"the slowest NFS mount takes {latency['value']:.0f} ms" in gpu["sentence"]
