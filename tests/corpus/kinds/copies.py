"""Copies fill the link."""

from load import copies as run

from tests.corpus.kind import Kind

KIND = Kind(
    label="transfer-bound",
    second="transfer-bound",
    action="pinned memory, overlap, smaller transfers",
)

__all__ = ["KIND", "run"]
