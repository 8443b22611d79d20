"""A large process forks at each step, and the kernel copies its page tables."""

import mmap
import os

from gpu import SimulatedGpu

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="not enough evidence",
    second="preprocessing-bound",
    action="start workers once, from a small process (forkserver)",
    kept_out=is_drawn(__name__),
    by_background={"loaded": ("CPUs taken by others", "not enough evidence")},
)


def run(_):
    data = mmap.mmap(-1, 1 << 28, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    data.madvise(mmap.MADV_NOHUGEPAGE)
    for at in range(0, len(data), 4096):
        data[at] = 1
    gpu = SimulatedGpu()
    while True:
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)
        gpu.run(0.002)
