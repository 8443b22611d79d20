"""Its input comes over a pipe from a program that is none of its children, and is hot."""

import os

from gpu import SimulatedGpu
from hosts import elsewhere
from load import burn

from tests.corpus.kind import OUTSIDE, Kind, is_drawn

KIND = Kind(
    label="not enough evidence",
    second="preprocessing-bound",
    action="speed up the program at the other end of the pipe",
    kept_out=is_drawn(__name__),
    backgrounds=OUTSIDE,
)


def produce(write):
    while True:
        burn(0.02)
        os.write(write, b"1")


def run(_):
    read, write = os.pipe()
    elsewhere(lambda: produce(write))
    gpu = SimulatedGpu()
    while os.read(read, 1):
        gpu.run(0.004)
