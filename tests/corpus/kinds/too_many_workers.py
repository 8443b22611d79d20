"""Twelve workers share a quota of one and a half CPUs."""

import os

from gpu import SimulatedGpu
from load import workers

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="CPU quota used up",
    second="preprocessing-bound",
    action="raise the quota, or fewer workers",
    kept_out=is_drawn(__name__),
    backgrounds=("quota",),
)


def run(_):
    read, write = os.pipe()
    workers(12, write)
    gpu = SimulatedGpu()
    while os.read(read, 1):
        gpu.run(0.005)
