"""The garbage collector of Python goes through millions of objects at each step."""

import gc

from gpu import SimulatedGpu

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="preprocessing-bound",
    second="submission-bound",
    action="gc.freeze() after the start, collect seldom",
    kept_out=is_drawn(__name__),
    by_background={"loaded": ("CPUs taken by others", "preprocessing-bound")},
)


def run(_):
    kept = [[number] for number in range(1000000)]
    gpu = SimulatedGpu()
    while kept:
        gc.collect()
        gpu.run(0.01)
