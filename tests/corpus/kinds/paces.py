"""A server that is seldom asked."""

from load import paces as run

from tests.corpus.kind import Kind

KIND = Kind(
    label="not enough evidence",
    second="waiting for requests",
    action="nothing",
)

__all__ = ["KIND", "run"]
