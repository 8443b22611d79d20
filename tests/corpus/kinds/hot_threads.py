"""Six workers transform on fewer CPUs."""

from load import hot_threads as run

from tests.corpus.kind import WITHOUT_QUOTA, Kind

KIND = Kind(
    label="preprocessing-bound",
    second="CPUs taken by others",
    action="more CPUs, or transform less",
    backgrounds=WITHOUT_QUOTA,
    by_background={"loaded": ("CPUs taken by others", "preprocessing-bound")},
)

__all__ = ["KIND", "run"]
