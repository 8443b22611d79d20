"""Writes a line after each step, and waits until the disk has it."""

import os
import tempfile

from gpu import SimulatedGpu

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="storage-bound",
    second="not enough evidence",
    action="do not flush at each step",
    kept_out=is_drawn(__name__),
)


def run(_):
    gpu = SimulatedGpu()
    with tempfile.TemporaryFile(dir="/var/tmp") as file:
        while True:
            os.write(file.fileno(), b"step done, loss 0.123\n")
            os.fsync(file.fileno())
            gpu.run(0.0002)
