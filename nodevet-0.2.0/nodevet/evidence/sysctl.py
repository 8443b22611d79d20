"""Section sysctl."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Text
from nodevet.evidence.core import Record, SectionRecord


class Parameter(Record, frozen=True, kw_only=True):
    """A kernel parameter, /proc/sys."""

    name: Text  # kernel.numa_balancing, as sysctl(8) spells it with dots
    value: Text | None = None  # the text, words apart by one space


class Parameters(SectionRecord, frozen=True, kw_only=True):
    """The kernel parameters that were asked for."""

    unique = ("parameters[].name",)

    parameters: Annotated[tuple[Parameter, ...], bounds.ASKED] | None = None
