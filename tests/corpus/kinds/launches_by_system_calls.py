"""One thread launches with system calls, as with an old driver."""

import os

from gpu import SimulatedGpu

from tests.corpus.kind import WITHOUT_QUOTA, Kind

KIND = Kind(
    label="submission-bound",
    second="submission-bound",
    action="CUDA graphs, larger batches",
    backgrounds=WITHOUT_QUOTA,
    by_background={"loaded": ("CPUs taken by others", "submission-bound")},
)


def run(_):
    gpu = SimulatedGpu()
    null = os.open("/dev/zero", os.O_RDONLY)
    while True:
        for _ in range(400):
            os.pread(null, 32768, 0)
        gpu.run(0.0001)
