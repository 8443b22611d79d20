"""Four threads compute in C, which releases the lock of Python."""

import hashlib
import threading

from gpu import SimulatedGpu

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="preprocessing-bound",
    second="CPUs taken by others",
    action="more CPUs, or compute less",
    kept_out=is_drawn(__name__),
    by_background={
        "loaded": ("CPUs taken by others", "preprocessing-bound"),
        "quota": ("CPU quota used up", "preprocessing-bound"),
    },
)


def run(_):
    ready, data = threading.Semaphore(0), bytes(1 << 22)

    def work():
        while True:
            hashlib.sha256(data).digest()
            ready.release()

    for _thread in range(4):
        threading.Thread(target=work, daemon=True).start()
    gpu = SimulatedGpu()
    while ready.acquire():
        gpu.run(0.001)
