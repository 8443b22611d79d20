"""Section routes."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Text, at_most
from nodevet.evidence.core import Record, SectionRecord

ROUTES = at_most(256)  # default ones
ADDRESSED = at_most(4096)  # interfaces that have addresses


class DefaultRoute(Record, frozen=True, kw_only=True):
    """A default route of the main table. /proc/net/route, /proc/net/ipv6_route."""

    interface: Text  # of an IPv4 route with several next hops the first
    gateway: Text = ""  # empty: none, the link itself
    metric: int


class Addressed(Record, frozen=True, kw_only=True):
    """The addresses of one interface, IPv4 and IPv6, apart from loopback and link-local ones."""

    name: Text
    addresses: Annotated[tuple[Text, ...], bounds.ADDRESSES] | None = None  # 192.0.2.2/24
    count: int  # of all; the probe lists the first 64


class Routes(SectionRecord, frozen=True, kw_only=True):
    """Default routes and addresses, in the network namespace of the machine."""

    unique = ("interfaces[].name",)

    default_ipv4: Annotated[tuple[DefaultRoute, ...], ROUTES] | None = None
    default_ipv6: Annotated[tuple[DefaultRoute, ...], ROUTES] | None = None
    interfaces: Annotated[tuple[Addressed, ...], ADDRESSED] | None = None
    # IPv4 addresses of which files alone do not tell the interface
    unplaced: Annotated[tuple[Text, ...], ADDRESSED] | None = None
