"""Training whose GPU waits for a twentieth of the time."""

import time

from gpu import SimulatedGpu

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="GPU-bound",
    second="not enough evidence",
    action="profile the kernels",
    kept_out=is_drawn(__name__),
)


def run(_):
    gpu = SimulatedGpu()
    while True:
        gpu.run(0.19)
        gpu.wait()
        time.sleep(0.01)
