"""Section dns: the resolver."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Real, Text
from nodevet.evidence.core import Record, SectionRecord


class LookedUp(Record, frozen=True, kw_only=True):
    """A name that a baseline asks for, as the node resolves it. getaddrinfo(3)."""

    volatile = ("seconds",)

    name: Text
    addresses: Annotated[tuple[Text, ...], bounds.ADDRESSES] | None = None
    why_not: Text | None = None  # why it has no address; empty: it has
    seconds: Real | None = None


class Dns(SectionRecord, frozen=True, kw_only=True):
    """/etc/resolv.conf; names are resolved only if a baseline asks for them."""

    unique = ("names[].name",)

    # in their order; behind systemd-resolved's stub those that it asks
    nameservers: Annotated[tuple[Text, ...], bounds.ADDRESSES] | None = None
    search: Annotated[tuple[Text, ...], bounds.ADDRESSES] | None = None
    stub: bool | None = None  # systemd-resolved's is the only nameserver
    names: Annotated[tuple[LookedUp, ...], bounds.ASKED] | None = None
