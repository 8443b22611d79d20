"""Section services."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Text
from nodevet.evidence.core import Record, SectionRecord

UNIT_NAME = r"[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]{0,240}"
"""A regular expression: systemd.unit(5), without words that systemctl would read as an option."""


class Unit(Record, frozen=True, kw_only=True):
    """A systemd unit; `systemctl show`."""

    name: Text  # as it was asked for
    load_state: Text | None = None  # loaded, not-found, masked, bad-setting, error
    active_state: Text | None = None  # active, reloading, inactive, failed, activating, ...
    sub_state: Text | None = None  # running, exited, dead, ...
    file_state: Text | None = None  # enabled, disabled, static, masked, ...; "" without a file


class Units(SectionRecord, frozen=True, kw_only=True):
    """The systemd units that were asked for. `absent` if systemd does not run."""

    unique = ("units[].name",)

    volatile = ("busy",)

    units: Annotated[tuple[Unit, ...], bounds.ASKED] | None = None
    # why units may be stopped for a moment: the package manager works; "": it does not
    busy: Text | None = None
