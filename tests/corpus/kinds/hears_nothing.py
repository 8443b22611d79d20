"""Waits for an answer over TCP that does not come."""

from hosts import hears_nothing as run

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="network-bound",
    second="stuck",
    action="look at the peer",
    kept_out=is_drawn(__name__),
)

__all__ = ["KIND", "run"]
