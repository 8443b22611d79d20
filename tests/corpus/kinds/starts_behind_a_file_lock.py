"""Holds a context only: before it loads its model it waits for a file lock of another program."""

import fcntl
import tempfile
import threading
from pathlib import Path

from gpu import SimulatedGpu
from hosts import elsewhere

from tests.corpus.kind import Kind

KIND = Kind(
    label="stuck",
    second="not enough evidence",
    action="find who holds the lock (/proc/locks)",
    kept_out=False,  # nodevet said idle
    backgrounds=("quiet",),
)


def run(_):
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        elsewhere(threading.Event().wait)  # it has the same lock
        SimulatedGpu(memory_mb=600)
        with Path(file.name).open("rb") as again:
            fcntl.flock(again, fcntl.LOCK_EX)
