"""Its CPUs and its memory are both of the other socket, and its GPU waits for the copies."""

import far

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="NUMA-remote",
    second="transfer-bound",
    action="CPUs and memory of the GPU's NUMA node",
    gpu_node=1,
    kept_out=is_drawn(__name__),
    by_background={"loaded": ("CPUs taken by others", "NUMA-remote")},
)


def run(_):
    far.stay(0)
    far.copies()
