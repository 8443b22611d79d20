"""Section limits."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Text
from nodevet.evidence.core import Record, SectionRecord

UNLIMITED = -1
LOGIN = "login"
"""The name that stands for a login, among the names of units."""


class SoftLimits(Record, frozen=True, kw_only=True):
    """The limits of a unit's processes, or of a login. -1: unlimited."""

    name: Text  # slurmd.service, login
    source: Text | None = None  # unit, limits.conf, or this session where that says nothing
    load_state: Text | None = None  # of a unit: loaded, not-found, masked; else empty
    memlock_b: int | None = None  # bytes that may be locked
    nofile: int | None = None
    nproc: int | None = None
    stack_b: int | None = None


class ResourceLimits(SectionRecord, frozen=True, kw_only=True):
    """Limits of the requested units, and of a login. `absent`: not asked."""

    unique = ("limits[].name",)
    plural = "limits"

    limits: Annotated[tuple[SoftLimits, ...], bounds.ASKED] | None = None
