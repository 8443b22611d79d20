"""Writes its log to a pipe that nobody reads."""

import os

from gpu import SimulatedGpu
from hosts import HELD

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="stuck",
    second="not enough evidence",
    action="read the pipe",
    kept_out=is_drawn(__name__),
)


def run(_):
    read, write = os.pipe()
    SimulatedGpu(memory_mb=HELD)
    while read:
        os.write(write, b"step done\n" * 1000)
