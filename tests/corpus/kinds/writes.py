"""Writes a checkpoint, and waits for the disk."""

import os
import tempfile
import time

from gpu import SimulatedGpu

from tests.corpus.kind import Kind

KIND = Kind(
    label="storage-bound",
    second="preprocessing-bound",
    action="write less often, or beside the step",
    kept_out=False,  # since it missed, looks cannot show more waits than the time it was asleep
    by_background={"loaded": ("CPUs taken by others", "storage-bound")},
)


def run(path):
    gpu = SimulatedGpu()
    data = os.urandom(1 << 22)
    with tempfile.TemporaryFile(dir="/var/tmp") as file:
        while True:
            began = time.monotonic()
            file.seek(0)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            gpu.run((time.monotonic() - began) / 3)  # however quick the machine's disk is
