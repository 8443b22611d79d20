"""Sleeps on a lock that nobody releases, with an eighth of the GPU's memory."""

import threading

from gpu import SimulatedGpu

from tests.corpus.kind import Kind

KIND = Kind(
    label="stuck",
    second="not enough evidence",
    action="find the lock, restart the job",
    kept_out=False,  # nodevet said idle
    backgrounds=("quiet",),
)


def run(_):
    SimulatedGpu(memory_mb=9000)
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
