"""A thread flushes a log all the time; the GPU never waits for it."""

import os
import tempfile
import threading

from gpu import SimulatedGpu

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="GPU-bound",
    second="busy or spinning",
    action="profile the kernels",
    kept_out=is_drawn(__name__),
)


def log():
    with tempfile.TemporaryFile(dir="/var/tmp") as file:
        while True:
            os.write(file.fileno(), b"step done")
            os.fsync(file.fileno())


def run(_):
    threading.Thread(target=log, daemon=True).start()
    gpu = SimulatedGpu()
    while True:
        gpu.run(0.2)
        gpu.wait(ahead=0.6)
