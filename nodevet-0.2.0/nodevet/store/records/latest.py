"""The records of hosts and parts as they are now."""

import msgspec

from nodevet.model import HostOutcome


class HostNow(msgspec.Struct, frozen=True, kw_only=True):
    """A host and its last visit."""

    host: str
    run: str
    outcome: HostOutcome
    why: str  # the reason of a visit that was not vetted
    at: str  # ISO 8601, UTC
    groups: tuple[str, ...]
    mark: str  # differs once anything but a visit with the same result was recorded of the host


class PartNow(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One name of a part, and the host where the part was last."""

    name: str  # an id, a serial number, a part number, in lower case
    id: str
    host: str
