"""What `nodevet list` says in JSON."""

from msgspec import UNSET, Struct, UnsetType


class ListedRow(Struct, frozen=True, kw_only=True):
    """One thing in JSON: every row of a kind has the same fields."""

    name: str
    severity: str | UnsetType = UNSET  # of a check
    area: str | UnsetType = UNSET
    risk: str | UnsetType = UNSET  # the highest of a fix
    title: str | UnsetType = UNSET  # of a check, fix or baseline
    checks: str | UnsetType = UNSET  # how many a baseline has
    file: str | UnsetType = UNSET
    left_out: dict[str, str] | UnsetType = UNSET  # checks that a baseline lacks, and why
    about: str | UnsetType = UNSET  # of a format, source, section or resource
    groups: str | UnsetType = UNSET  # of a host, separated by commas
