"""Builds its kernels as it goes."""

from load import compiles as run

from tests.corpus.kind import WITHOUT_QUOTA, Kind

KIND = Kind(
    label="preprocessing-bound",
    second="not enough evidence",
    action="build the kernels before",
    backgrounds=WITHOUT_QUOTA,
    by_background={"loaded": ("CPUs taken by others", "preprocessing-bound")},
    kept_out=False,  # since its repeats differed, a wait shorter than the run is no cause
)

__all__ = ["KIND", "run"]
