"""A tool of metrics holds a little memory, and wakes ten times a second."""

import time

from gpu import SimulatedGpu

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="idle",
    second="not enough evidence",
    action="nothing",
    kept_out=is_drawn(__name__),
)


def run(_):
    SimulatedGpu(memory_mb=400)
    while True:
        time.sleep(0.1)
