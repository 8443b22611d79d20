"""A small tool holds a little of the GPU's memory, and waits for its user."""

import selectors

from gpu import SimulatedGpu
from hosts import listening

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="idle",
    second="waiting for requests",
    action="nothing",
    kept_out=is_drawn(__name__),
)


def run(_):
    SimulatedGpu(memory_mb=300)
    chosen = selectors.EpollSelector()
    chosen.register(listening(), selectors.EVENT_READ)
    while True:
        chosen.select()
