"""Reads a mapped slow file at random."""

from load import maps as run

from tests.corpus.kind import Kind

KIND = Kind(
    label="storage-bound",
    second="memory-pressure",
    action="larger reads, a cache",
    needs="slow file",
)

__all__ = ["KIND", "run"]
