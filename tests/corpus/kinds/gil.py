"""Four threads of one process transform, and a lock lets one run at a time."""

import threading

from gpu import SimulatedGpu
from load import burn

from tests.corpus.kind import WITHOUT_QUOTA, Kind

KIND = Kind(
    label="preprocessing-bound",
    second="submission-bound",
    action="processes instead of threads",
    backgrounds=WITHOUT_QUOTA,
    by_background={"loaded": ("CPUs taken by others", "preprocessing-bound")},
)


def run(_):
    ready = threading.Semaphore(0)

    def work():
        while True:
            burn(0.02)
            ready.release()

    for _ in range(4):
        threading.Thread(target=work, daemon=True).start()
    gpu = SimulatedGpu()
    while ready.acquire():
        gpu.run(0.002)
