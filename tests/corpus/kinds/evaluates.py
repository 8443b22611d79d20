"""Trains for half a second, then computes metrics on one CPU for as long."""

from gpu import SimulatedGpu
from load import burn

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="preprocessing-bound",
    second="not enough evidence",
    action="evaluate less often, or on the GPU",
    kept_out=is_drawn(__name__),
    by_background={"loaded": ("CPUs taken by others", "not enough evidence")},
)


def run(_):
    gpu = SimulatedGpu()
    while True:
        gpu.run(0.5)
        gpu.wait()
        burn(0.5)
