"""Whoever measures a loader on a host and is killed leaves nothing running there."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nodevet_sim.sshd import KeyPair, Sshd, write_inventory, write_known_hosts


def running(words: bytes) -> list[int]:
    """The processes with just these words."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if place.read_bytes() == words:
                found.append(int(place.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_loader_ends_when_the_nodevet_that_measures_it_is_killed(
    how: signal.Signals, tmp_path: Path, sshd: Callable[..., Sshd], key: KeyPair
) -> None:
    node, seconds = sshd(), f"1000.{os.getpid()}{int(how)}"
    write_inventory(tmp_path / "fleet.yaml", {"gpu1": node}, key)
    write_known_hosts(tmp_path / "known_hosts", [node])
    loader = f"sleep\0{seconds}\0".encode()
    command = [sys.executable, "-m", "nodevet", "feed", "--measure", "--on", "gpu1"]
    reach = ["-i", str(tmp_path / "fleet.yaml"), "--known-hosts", str(tmp_path / "known_hosts")]
    local = subprocess.Popen(
        [*command, *reach, "--for", "900s", "--", "sh", "-c", f"sleep {seconds} & wait"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        end = time.monotonic() + 90
        while not running(loader):
            assert local.poll() is None, local.communicate()
            assert time.monotonic() < end, "it does not start"
            time.sleep(0.05)
    finally:
        os.killpg(local.pid, how)
        local.communicate()
    end = time.monotonic() + 60
    while left := running(loader):
        assert time.monotonic() < end, f"{left} go on"
        time.sleep(0.05)
