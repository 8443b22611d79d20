"""Types of the sections that watch a node for a while."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Real
from nodevet.evidence.core import Record

Numbers = Annotated[tuple[int | None, ...], bounds.LOOKS]
"""A value of each look; null where it could not be read."""
Times = Annotated[tuple[Real, ...], bounds.LOOKS]
"""Seconds since the first look, of each look."""
Counted = tuple[int, int]
"""A counter at the first look and at the last."""


class Look(Record, frozen=True, kw_only=True):
    """When a section watched, and what watching cost."""

    began_s: Real  # the node's clock at the first look, seconds since 1970 UTC
    seconds: Real  # from the first look to the last
    cost_s: Real  # CPU time of the process that watched, the system's share included
