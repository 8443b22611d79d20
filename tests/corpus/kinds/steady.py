"""A GPU that never waits."""

from load import steady as run

from tests.corpus.kind import Kind

KIND = Kind(
    label="GPU-bound",
    second="busy or spinning",
    action="profile the kernels",
)

__all__ = ["KIND", "run"]
