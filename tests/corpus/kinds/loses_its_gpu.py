"""The GPU fell off the bus, and the job waits for it."""

import time

from gpu import SimulatedGpu

from tests.corpus.kind import Kind

KIND = Kind(
    label="lost",
    second="stuck",
    action="drain, reset the GPU",
    gpu={
        "lost": 1,
    },
)


def run(_):
    SimulatedGpu()
    while True:
        time.sleep(1)
