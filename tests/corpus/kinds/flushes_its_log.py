"""Writes a line after each step, and waits until the disk has it."""

import os
import tempfile
import time

from gpu import SimulatedGpu

from tests.corpus.kind import Kind

KIND = Kind(
    label="storage-bound",
    second="not enough evidence",
    action="do not flush at each step",
    # beside four programs that compute it waits for a CPU 95 % of the time, and the disk is idle
    by_background={"loaded": ("CPUs taken by others", "storage-bound")},
    kept_out=False,  # the rules follow it since it was taken for submission-bound
)


def run(_):
    gpu = SimulatedGpu()
    with tempfile.TemporaryFile(dir="/var/tmp") as file:
        while True:
            began = time.monotonic()
            os.write(file.fileno(), b"step done, loss 0.123\n")
            os.fsync(file.fileno())
            gpu.run((time.monotonic() - began) / 3)  # however quick the machine's disk is
