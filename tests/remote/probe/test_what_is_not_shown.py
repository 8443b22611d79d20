"""Processes that the kernel shows in part, or not at all, and what fails or is far too large."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from far_processes import sleeps, wait_for
from slow_machine import slowness

from nodevet.remote.probe.children import gather
from nodevet.remote.probe.collectors import gpu_activity, host_activity
from tests.remote.probe.test_gpu_activity import library

NOBODY = 65534
AS_NOBODY = f"""
import json, os, sys
from nodevet.remote.probe.collectors import process_activity
gpus = [{{"index": 0, "processes": [{{"pid": int(sys.argv[1])}}]}}]
wish = {{"seconds": 0.5, "interval": 0.1}}
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
asked = {{"asks": {{"process_activity": [wish]}}, "found": {{"gpu": {{"data": {{"gpus": gpus}}}}}}}}
print(json.dumps(process_activity.collect("/", asked)))
"""
HIDDEN = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def of_root() -> Iterator[int]:
    """A process of root that sleeps."""
    if os.geteuid():
        pytest.skip("needs root and unshare, for mounts of its own")
    with subprocess.Popen(["sleep", "1000"]) as process:
        try:
            wait_for(lambda: sleeps(process.pid))
            yield process.pid
        finally:
            process.kill()


def as_nobody(pid: int, *before: str) -> dict[str, Any]:
    """What an ordinary user is told of a process."""
    command = [*before, sys.executable, "-c", AS_NOBODY, str(pid)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_process_that_hidepid_hides_is_reported_as_missing(of_root: int) -> None:
    hidden = as_nobody(of_root, "unshare", "--mount", "sh", "-c", HIDDEN, "sh")
    assert (hidden["processes"], hidden["complete"]) == ([], False)


def test_what_another_user_may_not_read_is_not_zero(of_root: int) -> None:
    (process,) = as_nobody(of_root)["processes"]
    for field in ("read_calls", "read_b", "storage_read_b", "storage_written_b", "pages", "stack"):
        assert process[field] is None, field
        assert process["errors"][field] in ("EACCES", "EPERM"), field
    (thread,) = process["threads"]
    assert thread["waits"] is None
    assert thread["errors"]["waits"] == "the kernel does not show this user where it sleeps"
    assert thread["user"] == [0, 0] and set(thread["states"]) <= {"S", "-"}


def test_a_gpu_call_that_hangs_does_not_affect_other_sections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hang(*_: Any) -> Any:
        time.sleep(600)

    found = library({"nvmlDeviceGetUtilizationRates": hang})
    found.nvmlDeviceGetCount = lambda: 1
    found.nvmlShutdown = lambda: None
    monkeypatch.setattr(gpu_activity, "load", lambda *_: found)
    sections = ["gpu_activity", "host_activity", "process_activity"]
    asks = {name: [{"seconds": 0.2, "interval": 0.1}] for name in sections}
    request = {"asks": asks, "found": {}, "whole_machine": True}
    answers = gather(sections, "/", request, 4.0 * slowness())
    assert {name: answers[name]["status"] for name in sections} == {
        "gpu_activity": "timeout",
        "host_activity": "ok",
        "process_activity": "ok",
    }
    assert "nvmlDeviceGetUtilizationRates" in answers["gpu_activity"]["why"]


def test_pressure_is_unread_if_the_kernel_was_booted_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """psi=0: the files are there, and cannot be read."""

    def refused(_: str, path: str) -> str:
        raise OSError(95, os.strerror(95), path)

    monkeypatch.setattr(host_activity, "read", refused)
    found, why = host_activity.pressure("/")
    assert found == {}
    assert set(why) == set(host_activity.pressure_fields())
    assert set(why.values()) <= {"EOPNOTSUPP", "ENOTSUP"}


def test_the_number_of_further_interfaces_is_reported(tmp_path: Path) -> None:
    for number in range(600):
        place = tmp_path / f"sys/class/net/eth{number}"
        (place / "device").mkdir(parents=True)
        (place / "statistics").mkdir()
        for name in ("rx_bytes", "tx_bytes", "rx_dropped", "tx_dropped"):
            (place / "statistics" / name).write_text("5\n")
    wish = {"asks": {"host_activity": [{"seconds": 0.1, "interval": 0.1}]}, "whole_machine": True}
    found = host_activity.collect(str(tmp_path.resolve()), wish)
    assert (len(found["networks"]), found["networks_left_out"]) == (512, 88)
