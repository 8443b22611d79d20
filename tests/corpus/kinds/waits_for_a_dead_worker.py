"""Waits at the pipe of a worker that is stuck itself."""

import os
import threading

from gpu import SimulatedGpu
from hosts import HELD

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="stuck",
    second="not enough evidence",
    action="look at the worker, restart the job",
    kept_out=is_drawn(__name__),
)


def run(_):
    read, write = os.pipe()
    if os.fork() == 0:
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
        os.write(write, b"1")
    SimulatedGpu(memory_mb=HELD)
    os.read(read, 1)
