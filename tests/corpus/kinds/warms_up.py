"""Compiles in its own process before its first step; the GPU's memory is taken already."""

from gpu import SimulatedGpu
from hosts import HELD
from load import burn

from tests.corpus.kind import Kind

KIND = Kind(
    label="preprocessing-bound",
    second="not enough evidence",
    action="wait for it; keep a compile cache",
    kept_out=False,  # since it missed, a hot thread of a young job is surely stuck no more
    by_background={"loaded": ("CPUs taken by others", "preprocessing-bound")},
)


def run(_):
    SimulatedGpu(memory_mb=HELD)
    while True:
        burn(1)
