"""Section tuned."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Text
from nodevet.evidence.core import Record, SectionRecord


class TunedSetting(Record, frozen=True, kw_only=True):
    """A line of a profile that sets something of CPUs."""

    file: Text
    line: int
    section: Text  # cpu
    key: Text  # governor
    value: Text


class Tuned(SectionRecord, frozen=True, kw_only=True):
    """TuneD's active profile. `absent` if TuneD has none."""

    unique = ("settings[].file+line",)

    profile: Text | None = None  # /etc/tuned/active_profile; several names if they are merged
    # the profile and those that it includes, first the one that was chosen
    profiles: Annotated[tuple[Text, ...], bounds.ASKED] | None = None
    missing: Text | None = None  # a profile that does not exist; empty if all exist
    settings: Annotated[tuple[TunedSetting, ...], bounds.ASKED] | None = None
    scripts: Annotated[tuple[Text, ...], bounds.ASKED] | None = None  # that the profiles run
    folder: Text | None = None  # of the site's profiles
