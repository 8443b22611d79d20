"""One line of what was watched, to be drawn."""

from msgspec import Struct

Points = tuple[tuple[float, float], ...]
"""(seconds since the first look, value), in the order of time."""


class Timeline(Struct, frozen=True, kw_only=True):
    """One line: of a GPU, or of the host as a whole."""

    name: str
    unit: str
    gpu: int | None = None
    most: float | None = None  # what the value can be at most
    points: Points
