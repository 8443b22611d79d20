"""Compiles in its own process before its first step; the GPU's memory is taken already."""

from gpu import SimulatedGpu
from hosts import HELD
from load import burn

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="preprocessing-bound",
    second="not enough evidence",
    action="wait for it; keep a compile cache",
    kept_out=is_drawn(__name__),
    by_background={"loaded": ("CPUs taken by others", "preprocessing-bound")},
)


def run(_):
    SimulatedGpu(memory_mb=HELD)
    while True:
        burn(1)
