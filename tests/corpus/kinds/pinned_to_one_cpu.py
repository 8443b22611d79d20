"""Three workers, all of them bound to one CPU."""

import os

from gpu import SimulatedGpu
from load import workers

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="preprocessing-bound",
    second="CPUs taken by others",
    action="bind the job to more CPUs",
    kept_out=is_drawn(__name__),
    by_background={"loaded": ("CPUs taken by others", "preprocessing-bound")},
)


def run(_):
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    read, write = os.pipe()
    workers(3, write)
    gpu = SimulatedGpu()
    while os.read(read, 1):
        gpu.run(0.004)
