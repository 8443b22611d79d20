"""Its only thread transforms all the time. It would do so on near CPUs, too."""

import far
from gpu import SimulatedGpu
from hosts import burn

from tests.corpus.kind import WITHOUT_QUOTA, Kind, is_drawn

KIND = Kind(
    label="preprocessing-bound",
    second="NUMA-remote",
    action="num_workers above 0, and CPUs near the GPU",
    gpu_node=0,
    kept_out=is_drawn(__name__),
    backgrounds=WITHOUT_QUOTA,
    by_background={"loaded": ("CPUs taken by others", "preprocessing-bound")},
)


def run(_):
    far.stay(1)
    gpu = SimulatedGpu()
    while True:
        burn(0.04)
        gpu.run(0.01)
        gpu.wait()
