"""Section failed_units."""

from typing import Annotated

from nodevet import bounds
from nodevet.bounds import Text
from nodevet.evidence.core import Record, SectionRecord


class FailedUnit(Record, frozen=True, kw_only=True):
    name: Text


class FailedUnits(SectionRecord, frozen=True, kw_only=True):
    """The systemd units that have failed. `absent` if systemd does not run, or if not asked."""

    unique = ("units[].name",)
    plural = "units"

    state: Text | None = None  # SystemState: starting, running, degraded, maintenance, stopping
    count: int | None = None  # NFailedUnits
    units: Annotated[tuple[FailedUnit, ...], bounds.UNITS] | None = None
