"""Waits for a lock on a file that another program holds and never gives back."""

import fcntl
import tempfile
import time
from pathlib import Path

from gpu import SimulatedGpu
from hosts import HELD, elsewhere

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="stuck",
    second="not enough evidence",
    action="find who holds the lock (/proc/locks)",
    kept_out=is_drawn(__name__),
)


def hold(name):
    with Path(name).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        while True:
            time.sleep(1)


def run(_):
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        elsewhere(lambda: hold(file.name))
        time.sleep(0.5)
        SimulatedGpu(memory_mb=HELD)
        fcntl.flock(file, fcntl.LOCK_EX)
