"""No workers: the process on the GPU transforms its own input."""

from gpu import SimulatedGpu
from load import burn

from tests.corpus.kind import WITHOUT_QUOTA, Kind

KIND = Kind(
    label="preprocessing-bound",
    second="submission-bound",
    action="num_workers above 0",
    backgrounds=WITHOUT_QUOTA,
    by_background={"loaded": ("CPUs taken by others", "preprocessing-bound")},
    kept_out=False,  # since its repeats differed, a wait shorter than the run is no cause
)


def run(_):
    gpu = SimulatedGpu()
    while True:
        burn(0.04)
        gpu.run(0.01)
        gpu.wait()
