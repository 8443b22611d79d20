"""Four threads read small samples of a slow file."""

from load import threads_read as run

from tests.corpus.kind import Kind

KIND = Kind(
    label="storage-bound",
    second="storage-bound",
    action="larger reads, a cache",
    needs="slow file",
)

__all__ = ["KIND", "run"]
