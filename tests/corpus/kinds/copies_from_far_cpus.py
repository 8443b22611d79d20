"""Its CPUs are of the other socket, and its memory is near its GPU, which waits for the copies."""

import far

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="NUMA-remote",
    second="transfer-bound",
    action="CPUs of the GPU's NUMA node",
    gpu_node=0,
    kept_out=is_drawn(__name__),
    by_background={"loaded": ("CPUs taken by others", "NUMA-remote")},
)


def run(_):
    far.stay(1)
    far.copies()
