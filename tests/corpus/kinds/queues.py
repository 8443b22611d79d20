"""Three workers of Python's multiprocessing transform."""

from load import queues as run

from tests.corpus.kind import WITHOUT_QUOTA, Kind

KIND = Kind(
    label="preprocessing-bound",
    second="CPUs taken by others",
    action="more workers and CPUs",
    backgrounds=WITHOUT_QUOTA,
    by_background={"loaded": ("CPUs taken by others", "preprocessing-bound")},
)

__all__ = ["KIND", "run"]
