"""Its data set is one small file for each sample, on slow storage."""

import os
import random
from pathlib import Path

from gpu import SimulatedGpu

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="storage-bound",
    second="storage-bound",
    action="pack the samples into shards",
    kept_out=is_drawn(__name__),
    needs="slow file",
)


def run(path):
    gpu = SimulatedGpu()
    pages = Path(path).stat().st_size // 4096
    while True:
        file = os.open(path, os.O_RDONLY)
        os.pread(file, 4096, random.randrange(pages) * 4096)
        os.close(file)
        gpu.run(0.002)
