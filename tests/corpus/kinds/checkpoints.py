"""After each step it writes a checkpoint, and waits until the disk has it."""

import os
import tempfile

from gpu import SimulatedGpu

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="storage-bound",
    second="not enough evidence",
    action="write less often, and beside the steps",
    kept_out=is_drawn(__name__),
)


def run(_):
    gpu = SimulatedGpu()
    data = os.urandom(1 << 25)
    with tempfile.TemporaryFile(dir="/var/tmp") as file:
        while True:
            gpu.run(0.02)
            gpu.wait()
            os.pwrite(file.fileno(), data, 0)
            os.fsync(file.fileno())
