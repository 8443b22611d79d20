"""Another process computes on the same GPU, and the two take turns."""

from gpu import SimulatedGpu
from hosts import elsewhere

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="GPU-bound",
    second="not enough evidence",
    action="a GPU for each of the two",
    kept_out=is_drawn(__name__),
)


def train():
    gpu = SimulatedGpu(memory_mb=30000)
    while True:
        gpu.run(0.2)
        gpu.wait(ahead=0.6)


def run(_):
    elsewhere(train)
    train()
