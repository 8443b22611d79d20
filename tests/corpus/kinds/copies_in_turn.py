"""Copies and computes in turn: the link is full half of the time."""

from gpu import SimulatedGpu

from tests.corpus.kind import Kind

KIND = Kind(
    label="transfer-bound",
    second="not enough evidence",
    action="overlap copies with compute",
)


def run(_):
    gpu = SimulatedGpu()
    while True:
        gpu.run(0.5)
        gpu.wait()
        gpu.copy(0.5, 54000000)
