"""Six workers transform and one reads a slow file."""

from load import reads_and_transforms as run

from tests.corpus.kind import WITHOUT_QUOTA, Kind

KIND = Kind(
    label="preprocessing-bound + storage-bound",
    second="preprocessing-bound",
    action="more CPUs first, then storage",
    needs="slow file",
    backgrounds=WITHOUT_QUOTA,
    by_background={"loaded": ("storage-bound + CPUs taken by others", "storage-bound")},
)

__all__ = ["KIND", "run"]
