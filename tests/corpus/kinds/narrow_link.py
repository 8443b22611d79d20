"""Its GPU's link runs at the first generation, and copies fill it."""

import time

from gpu import SimulatedGpu

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="transfer-bound",
    second="transfer-bound",
    action="reseat the GPU: its link is below its generation",
    kept_out=is_drawn(__name__),
    gpu={
        "pcie_generation": 1,
    },
)


def run(_):
    gpu = SimulatedGpu(rx_kb_s=3500000)
    while True:
        gpu.run(0.03)
        time.sleep(0.1)
