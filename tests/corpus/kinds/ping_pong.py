"""Asks a helper over a pipe at each step."""

from load import ping_pong as run

from tests.corpus.kind import WITHOUT_QUOTA, Kind

KIND = Kind(
    label="submission-bound",
    second="CPUs taken by others",
    action="batch the calls",
    backgrounds=WITHOUT_QUOTA,
    by_background={"loaded": ("CPUs taken by others", "submission-bound")},
)

__all__ = ["KIND", "run"]
