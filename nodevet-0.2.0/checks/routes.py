"""The node has its default route, and addresses in the expected networks.

**Why it matters.** After a new image or a changed switch port a node may boot with an address of
the wrong network, or with its default route through the storage network. It answers over SSH, but
jobs cannot reach their licences, registries or each other.

**Read from** the main table in /proc/net/route and ipv6_route; addresses from the kernel
(rtnetlink) and /proc/net/if_inet6.

**Verdicts.** If there are several default routes, the one with the lowest metric counts; its
interface must match one of the given names or patterns. An unreachable or blackhole default route
does not count. If an IPv4 route has several next hops, the kernel's file names the first.
`addresses` maps interfaces to one network or a list; the interface must have an address in each.
Loopback and link-local addresses do not count, nor do routes of other tables and VRFs.

**To fix it** run `ip route get 1.1.1.1` and `ip -br addr`; then check the configuration of netplan,
NetworkManager or systemd-networkd, and the DHCP server's.
"""

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Annotated

from msgspec import Meta

from nodevet.checking.expected import Words, matches, patterns_in, words_text
from nodevet.checking.named import of_section, reads_of
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.routes import Addressed, DefaultRoute, Routes
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    FieldError,
    Finding,
    Subject,
    Value,
    fail,
    ok,
    unknown,
)

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
DEFAULT_ROUTE = (
    "see `ip route show default`: the route comes from DHCP or from an interface's "
    "configuration; the route with the lowest metric wins"
)
ADDRESS = (
    "see `ip -br addr` and the interface's configuration (netplan, NetworkManager, "
    "systemd-networkd); with DHCP, see the server's entry for its MAC"
)


def network(text: str, name: str) -> Network:
    """A network as people write it, for the interface `name`. Raises FieldError."""
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        message = f"must be a network, such as 10.1.0.0/16: {error}"
        raise FieldError(message, "addresses", name) from None


Name = Annotated[
    str, Meta(pattern=r"^[^/\s]{1,64}$", title="the name of a network interface, such as bond0")
]


class Params(CheckParams):
    """`routes: {default_ipv4: bond0}` or
    `routes: {default_ipv4: [eno1, "ens*"], default_ipv6: "*"}` or
    `routes: {addresses: {bond0: 10.1.0.0/16, ib0: [10.2.0.0/16, "fd00:2::/64"]}}`"""

    default_ipv4: Words | None = None
    """The interface of the IPv4 default route; `*` stands for any text."""
    default_ipv6: Words | None = None
    """The interface of the IPv6 default route."""
    addresses: Mapping[Name, Words] = {}
    """One network or a list for each interface; it must have an address in each network."""

    def __post_init__(self) -> None:
        if self.default_ipv4 is self.default_ipv6 is None and not self.addresses:
            raise ValueError("give default_ipv4, default_ipv6 or addresses")
        for name, words in self.addresses.items():
            for text in patterns_in(words):
                if network(text, name).is_link_local:
                    raise FieldError(
                        f"{text}: nodevet does not read link-local addresses", "addresses", name
                    )


@of_section(Routes, "routes")
def judge(routes: Routes, evidence: Evidence, params: Params) -> Iterator[Finding]:
    for field, interface in (
        ("default_ipv4", params.default_ipv4),
        ("default_ipv6", params.default_ipv6),
    ):
        if interface is not None:
            yield judge_default(routes, field, interface)
    by_name = {addressed.name: addressed for addressed in routes.interfaces or ()}
    for name, networks in params.addresses.items():
        for text in patterns_in(networks):
            yield judge_address(routes, name, by_name.get(name), network(text, name))


def judge_default(data: Routes, field: str, interface: Words) -> Finding:
    subject = Subject(kind="route", id=field.replace("_ipv4", " IPv4").replace("_ipv6", " IPv6"))
    routes: tuple[DefaultRoute, ...] | None = getattr(data, field)
    if routes is None:
        return unread(subject, data, field)
    expected = words_text(interface)
    if not routes:
        return fail(subject, expected=expected, actual=None, advice=DEFAULT_ROUTE)
    lowest = min(route.metric for route in routes)
    first = [route for route in routes if route.metric == lowest]
    actual = ", ".join(dict.fromkeys(route.interface for route in first))
    right = all(matches(route.interface, interface) for route in first)
    gateways = ", ".join(filter(None, (route.gateway for route in first)))
    return (ok if right else fail)(
        subject,
        expected=expected,
        actual=actual,
        advice="" if right else DEFAULT_ROUTE,
        details={"gateway": gateways} if gateways and not right else {},
    )


def judge_address(
    data: Routes, name: str, addressed: Addressed | None, expected_network: Network
) -> Finding:
    subject = Subject(kind="interface", id=name)
    if data.interfaces is None or data.unplaced is None:
        return unread(subject, data, "interfaces" if data.interfaces is None else "unplaced")
    if addressed and addressed.addresses is None:
        return unread(subject, addressed, "addresses")
    expected = f"an address in {expected_network}"
    addresses = (addressed.addresses if addressed else None) or ()
    inside = [text for text in addresses if is_inside(text, expected_network)]
    if inside:
        return ok(subject, expected=expected, actual=", ".join(inside[:4]))
    if addressed and addressed.count > len(addresses):
        why = f"{len(addresses)} of its {addressed.count} addresses were read"
        return unknown(subject, expected=expected, why=why)
    if any(is_inside(text, expected_network) for text in data.unplaced):
        why = (
            f"the node has an address in {expected_network}; nodevet could not read which "
            "interface has it"
        )
        return unknown(subject, expected=expected, why=why)
    actual = ", ".join(addresses) or "none"
    return fail(subject, expected=expected, actual=actual, advice=ADDRESS)


def is_inside(text: str, expected_network: Network) -> bool:
    """Whether an address, such as `192.0.2.2/24` or one without a prefix, is in a network."""
    try:
        return ipaddress.ip_address(text.partition("/")[0]) in expected_network
    except ValueError:
        return False


def learn(evidence: Evidence) -> Mapping[str, Value] | None:
    """The default routes; each host has its own addresses."""
    data = evidence[Routes].data
    interfaces: dict[str, Value] = {}
    for field in ("default_ipv4", "default_ipv6"):
        routes = getattr(data, field, None)
        if routes:
            interfaces[field] = min(routes, key=lambda route: route.metric).interface
    return interfaces or None


CHECK = Check(
    params=Params,
    area=Area.NETWORK,
    reads=(
        *reads_of("routes.default_ipv4[]", "interface", "metric"),
        *reads_of("routes.default_ipv6[]", "interface", "metric"),
        *reads_of("routes.interfaces[]", "addresses[]", "count", "name"),
        "routes.unplaced[]",
    ),
    judge=judge,
    unasked="only the site knows its networks: write routes: {default_ipv4: bond0}",
    learn=learn,
)
