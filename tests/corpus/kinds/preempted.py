"""Another program of higher priority computes on the CPU to which the job is bound."""

import os

from gpu import SimulatedGpu
from hosts import elsewhere
from load import burn

from tests.corpus.kind import OUTSIDE, Kind, is_drawn

KIND = Kind(
    label="CPUs taken by others",
    second="not enough evidence",
    action="other CPUs for the job, or for the other program",
    kept_out=is_drawn(__name__),
    backgrounds=OUTSIDE,
)


def hog():
    os.setpriority(os.PRIO_PROCESS, 0, -5)
    while True:
        pass


def run(_):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    elsewhere(hog)
    gpu = SimulatedGpu()
    while True:
        burn(0.005)
        gpu.run(0.01)
