"""At each step it starts another program, and waits for its end."""

import ctypes

from gpu import SimulatedGpu

from tests.corpus.kind import Kind

KIND = Kind(
    label="not enough evidence",
    second="waiting for requests",
    action="trace it",
)


def run(_):
    gpu = SimulatedGpu()
    while True:
        ctypes.CDLL(None).system(b"sleep 0.2")
        gpu.run(0.05)
