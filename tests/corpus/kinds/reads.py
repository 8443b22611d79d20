"""Reads small samples of a slow file."""

from load import reads as run

from tests.corpus.kind import Kind

KIND = Kind(
    label="storage-bound",
    second="storage-bound",
    action="larger reads, more at once, a cache",
    needs="slow file",
)

__all__ = ["KIND", "run"]
