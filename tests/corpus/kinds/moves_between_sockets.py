"""Nothing binds it: it runs on either socket for half of the time, and its memory is near."""

import time

import far

from tests.corpus.kind import Kind

KIND = Kind(
    label="not enough evidence",
    second="transfer-bound",
    action="bind it to the GPU's NUMA node, and see whether that helps",
    gpu_node=0,
    kept_out=False,  # nodevet counted all its CPU time for the CPU of the last look
    by_background={"loaded": ("CPUs taken by others", "not enough evidence")},
)


def run(_):
    far.copies(lambda: far.stay(int(time.monotonic() / 0.7) % 2))
