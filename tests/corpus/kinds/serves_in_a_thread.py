"""A server without requests: its first thread waits for the one that serves."""

from hosts import serves_in_a_thread as run

from tests.corpus.kind import Kind, is_drawn

KIND = Kind(
    label="waiting for requests",
    second="not enough evidence",
    action="nothing",
    kept_out=is_drawn(__name__),
)

__all__ = ["KIND", "run"]
