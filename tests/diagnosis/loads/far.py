"""Jobs on one of two NUMA nodes. Each has half of the CPUs; all memory is on node 0 if the machine
has one node only."""

import ctypes
import os
import time

from gpu import SimulatedGpu

COPIED = 64 << 20
KB_S = 10_000_000  # of a link that gets its bytes from the other socket


def stay(node):
    """Run on the CPUs of this node only."""
    half = os.cpu_count() // 2
    os.sched_setaffinity(0, range(node * half, (node + 1) * half))


def copies(before_step=None):
    """A third of the time each: copies in memory, copies to the GPU, and computing there."""
    gpu = SimulatedGpu()
    source, target = (ctypes.create_string_buffer(COPIED) for _buffer in range(2))
    while True:
        if before_step:
            before_step()
        began = time.monotonic()
        for _ in range(3):
            ctypes.memmove(target, source, COPIED)
        took = time.monotonic() - began
        gpu.copy(took, KB_S)
        gpu.run(took)
        gpu.wait()
