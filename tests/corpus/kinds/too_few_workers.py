"""One worker transforms, and the process on the GPU waits at its queue."""

import multiprocessing

from gpu import SimulatedGpu
from load import burn

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="preprocessing-bound",
    second="preprocessing-bound",
    action="more workers",
    kept_out=is_drawn(__name__),
    by_background={"loaded": ("CPUs taken by others", "preprocessing-bound")},
)


def transform(queue):
    while True:
        burn(0.02)
        queue.put(b"0" * 10000)


def run(_):
    queue = multiprocessing.Queue(4)
    multiprocessing.Process(target=transform, args=(queue,), daemon=True).start()
    gpu = SimulatedGpu()
    while queue.get():
        gpu.run(0.005)
