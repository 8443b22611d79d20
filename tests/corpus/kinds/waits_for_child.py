"""Its input comes from a child that sleeps most of the time."""

import os
import time

from gpu import SimulatedGpu

from tests.corpus.kind import Kind

KIND = Kind(
    label="not enough evidence",
    second="waiting for requests",
    action="trace it",
    kept_out=True,
)


def run(_):
    read, write = os.pipe()
    if os.fork() == 0:
        while True:
            time.sleep(0.08)
            os.write(write, b"1")
    gpu = SimulatedGpu()
    while os.read(read, 1):
        gpu.run(0.02)
