"""Section failed_units."""

from typing import Annotated

from nodevet.base.bounds import Text, at_most
from nodevet.evidence.core import Record, SectionRecord

UNITS = at_most(1 << 14)  # of systemd; large hosts have 3,000, most of them mounts


class FailedUnit(Record, frozen=True, kw_only=True):
    name: Text


class FailedUnits(SectionRecord, frozen=True, kw_only=True):
    """The systemd units that have failed. `absent` if systemd does not run, or if not asked."""

    unique = ("units[].name",)
    plural = "units"

    state: Text | None = None  # SystemState: starting, running, degraded, maintenance, stopping
    count: int | None = None  # NFailedUnits
    units: Annotated[tuple[FailedUnit, ...], UNITS] | None = None
