"""Sleeps on a lock that nobody releases."""

from load import locked as run

from tests.corpus.kind import Kind

KIND = Kind(
    label="stuck",
    second="idle",
    action="find the lock, restart the job",
)

__all__ = ["KIND", "run"]
