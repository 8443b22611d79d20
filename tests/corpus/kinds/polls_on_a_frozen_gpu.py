"""Its host thread spins, and its GPU does nothing."""

import os

from gpu import SimulatedGpu

from tests.corpus.kind import WITHOUT_QUOTA, Kind

KIND = Kind(
    label="stuck",
    second="submission-bound",
    action="look at the driver and the other ranks",
    backgrounds=WITHOUT_QUOTA,
    kept_out=False,  # since it missed, stuck beside another cause has low confidence
)


def run(_):
    SimulatedGpu(memory_mb=70000)
    while True:
        os.sched_yield()
