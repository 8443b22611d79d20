"""A worker fills a ring in shared memory; the process on the GPU looks every millisecond."""

import mmap
import os
import time

from gpu import SimulatedGpu
from load import burn

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="preprocessing-bound",
    second="not enough evidence",
    action="more workers",
    kept_out=is_drawn(__name__),
    by_background={"loaded": ("CPUs taken by others", "preprocessing-bound")},
)


def run(_):
    ring = mmap.mmap(-1, 4096)
    if os.fork() == 0:
        while True:
            burn(0.02)
            ring[:8] = (int.from_bytes(ring[:8], "little") + 1).to_bytes(8, "little")
    gpu, seen = SimulatedGpu(), 0
    while True:
        filled = int.from_bytes(ring[:8], "little")
        if filled == seen:
            time.sleep(0.001)
        else:
            seen += 1
            gpu.run(0.004)
