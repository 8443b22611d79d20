"""A GPU that waits for a tenth of the time."""

import time

from gpu import SimulatedGpu

from tests.corpus.kind import Kind

KIND = Kind(
    label="GPU-bound",
    second="not enough evidence",
    action="profile the kernels",
    kept_out=True,
)


def run(_):
    gpu = SimulatedGpu()
    while True:
        gpu.run(0.09)
        gpu.wait()
        time.sleep(0.01)
