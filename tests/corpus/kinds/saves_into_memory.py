"""After each step its only thread copies a checkpoint into a file in memory."""

import os
import tempfile
import time

from gpu import SimulatedGpu

from tests.corpus.kind import Kind

KIND = Kind(
    label="not enough evidence",
    second="preprocessing-bound",
    action="save less often, or in another process",
    kept_out=False,  # nodevet said submission-bound
    backgrounds=("quiet",),
)


def run(_):
    data = bytes(64 << 20)
    gpu = SimulatedGpu()
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        while True:
            began = time.monotonic()
            os.ftruncate(file.fileno(), 0)
            os.pwrite(file.fileno(), data, 0)
            gpu.run((time.monotonic() - began) / 3)  # however quick the machine's memory is
