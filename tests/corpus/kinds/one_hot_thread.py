"""Small kernels that one thread launches too slowly, without system calls."""

from load import one_hot_thread as run

from tests.corpus.kind import WITHOUT_QUOTA, Kind

KIND = Kind(
    label="submission-bound",
    second="preprocessing-bound",
    action="larger batches or CUDA graphs",
    backgrounds=WITHOUT_QUOTA,
    by_background={"loaded": ("CPUs taken by others", "submission-bound")},
)

__all__ = ["KIND", "run"]
