"""A notebook that somebody left open."""

from load import holds as run

from tests.corpus.kind import Kind

KIND = Kind(
    label="idle",
    second="stuck",
    action="free the GPU",
)

__all__ = ["KIND", "run"]
