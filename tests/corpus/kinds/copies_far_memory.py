"""Its CPUs are near its GPU, which waits for copies of memory of the other socket."""

import far

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="NUMA-remote",
    second="transfer-bound",
    action="memory of the GPU's NUMA node",
    gpu_node=1,
    kept_out=is_drawn(__name__),
    by_background={"loaded": ("CPUs taken by others", "NUMA-remote")},
)


def run(_):
    far.stay(1)
    far.copies()
