"""Section boots."""

from typing import Annotated

from nodevet.base.bounds import at_most
from nodevet.evidence.core import Record, SectionRecord

BOOTS = at_most(1024)  # in the records of two months; the probe keeps as many


class Boot(Record, frozen=True, kw_only=True):
    at_s: int | None = None  # seconds since 1970, by the node's clock of that moment
    clean: bool | None = None  # whether it was shut down before; of the first it is not known


class Boots(SectionRecord, frozen=True, kw_only=True):
    """/var/log/wtmp and the one before it. `absent`: not asked for."""

    plural = "boots"

    boots: Annotated[tuple[Boot, ...], BOOTS] | None = None
    since_s: int | None = None  # when its first record was written
    whole: bool | None = None  # whether it begins with the installation
