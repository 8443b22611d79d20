"""Reads past the page cache (O_DIRECT)."""

import mmap
import os
import random

from gpu import SimulatedGpu

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="storage-bound",
    second="storage-bound",
    action="more reads at once, a cache",
    kept_out=is_drawn(__name__),
    needs="slow file",
)


def run(path):
    gpu = SimulatedGpu()
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    pages, page = os.fstat(file).st_size // 65536, mmap.mmap(-1, 65536)
    while True:
        os.preadv(file, [page], random.randrange(pages) * 65536)
        gpu.run(0.004)
