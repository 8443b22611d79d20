"""Reads large pieces of a slow file, one after the other."""

import os
from pathlib import Path

from gpu import SimulatedGpu

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="storage-bound",
    second="storage-bound",
    action="more reads at once, faster storage",
    kept_out=is_drawn(__name__),
    needs="slow file",
)


def run(path):
    gpu = SimulatedGpu()
    file, at, size = os.open(path, os.O_RDONLY), 0, Path(path).stat().st_size
    while True:
        os.pread(file, 1 << 20, at)
        at = (at + (1 << 20)) % size
        gpu.run(0.02)
