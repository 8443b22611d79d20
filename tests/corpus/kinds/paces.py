"""A server that gets few requests."""

from load import paces as run

from tests.corpus.kind import Kind

KIND = Kind(
    label="not enough evidence",
    second="waiting for requests",
    action="nothing",
)

__all__ = ["KIND", "run"]
