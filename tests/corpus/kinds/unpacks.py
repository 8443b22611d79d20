"""One gzip process unpacks the input."""

from load import unpacks as run

from tests.corpus.kind import WITHOUT_QUOTA, Kind

KIND = Kind(
    label="preprocessing-bound",
    second="submission-bound",
    action="unpack in parallel",
    backgrounds=WITHOUT_QUOTA,
    by_background={"loaded": ("CPUs taken by others", "preprocessing-bound")},
)

__all__ = ["KIND", "run"]
