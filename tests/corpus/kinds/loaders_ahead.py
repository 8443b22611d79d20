"""Two workers are hot, and still ahead of a GPU that never waits."""

import os

from gpu import SimulatedGpu
from load import burn

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="GPU-bound",
    second="busy or spinning",
    action="profile the kernels",
    kept_out=is_drawn(__name__),
)


def run(_):
    for _worker in range(2):
        if os.fork() == 0:
            while True:
                burn(0.05)
    gpu = SimulatedGpu()
    while True:
        gpu.run(0.2)
        gpu.wait(ahead=0.6)
