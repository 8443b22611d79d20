"""Its main thread copies pageable memory to the GPU."""

import ctypes
import time

from gpu import SimulatedGpu

from tests.corpus.kind import Kind

KIND = Kind(
    label="transfer-bound",
    second="preprocessing-bound",
    action="pin the memory",
    kept_out=False,  # since it missed, a thread that waits for a CPU does not copy pageable memory
    by_background={"loaded": ("CPUs taken by others", "transfer-bound")},
)


def run(_):
    gpu = SimulatedGpu(rx_kb_s=6000000)
    source, target = (ctypes.create_string_buffer(64 << 20) for _buffer in range(2))
    while True:
        began = time.monotonic()
        ctypes.memmove(target, source, 64 << 20)
        gpu.run((time.monotonic() - began) / 3)  # however quick the machine's memory is
