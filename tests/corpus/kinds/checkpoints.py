"""After each step it writes a checkpoint, and waits until the disk has it."""

import os
import tempfile
import time

from gpu import SimulatedGpu

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="storage-bound",
    second="not enough evidence",
    action="write less often, and beside the steps",
    kept_out=is_drawn(__name__),
    # beside four programs that compute it waits for a CPU 35 % of the time, and for the disk 25 %
    by_background={"loaded": ("CPUs taken by others + storage-bound", "CPUs taken by others")},
)


def run(_):
    gpu = SimulatedGpu()
    data = os.urandom(1 << 25)
    with tempfile.TemporaryFile(dir="/var/tmp") as file:
        while True:
            began = time.monotonic()
            os.pwrite(file.fileno(), data, 0)
            os.fsync(file.fileno())
            gpu.run((time.monotonic() - began) / 3)  # however quick the machine's disk is
            gpu.wait()
