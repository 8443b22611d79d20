"""The node has the expected nameservers and resolves the names that it needs.

**Why it matters.** A node whose nameserver is gone or wrong still answers SSH by its address, but
cannot mount its storage, fetch an image or find the head node of a job. If the first nameserver is
dead, every lookup takes five seconds longer, which looks like slow storage or a slow scheduler.

**Read from** /etc/resolv.conf, and behind systemd-resolved's stub /run/systemd/resolve/resolv.conf.
The node looks up the names in `resolves` with getaddrinfo(3), as programs do, and only because the
baseline names them.

**Verdicts.** If the baseline gives `one_of`, every nameserver must be in it. The node must search
all domains in `search`. A name fails if it has no address, or none within `within_s`; /etc/hosts
and other sources of nsswitch.conf count. A node without /etc/resolv.conf has no nameserver. A value
that could not be read is unknown.

**To fix it** `resolvectl status`, `getent ahosts NAME`, `dig @NAMESERVER NAME`; then check the
program that writes the file: DHCP, netplan, NetworkManager or systemd-resolved.
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar

from msgspec import Meta

from nodevet.checking.aspects import Aspect, aspect_findings, aspect_if, unread_aspect
from nodevet.checking.named import each_named, reads_of
from nodevet.checking.one_value import first_unread
from nodevet.evidence.dns import Dns, LookedUp
from nodevet.evidence.document import Evidence
from nodevet.model import (
    NODE,
    Area,
    Check,
    CheckParams,
    FieldError,
    Finding,
    Subject,
    Value,
    fail,
    ok,
    refuse,
    unknown,
)

WRITER = (
    "`resolvectl status`; the list comes from DHCP, netplan, NetworkManager or systemd-resolved, "
    "as `ls -l /etc/resolv.conf` shows"
)
LOOKUP = "`getent ahosts NAME` and `dig @NAMESERVER NAME` for each nameserver show which one fails"
LABEL = r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
DOMAIN = rf"{LABEL}(\.{LABEL})*\.?"
Domain = Annotated[
    str,
    Meta(pattern=f"^{DOMAIN}$", max_length=253, title="a domain name"),
]


class Params(CheckParams):
    """`dns: {}` or `dns: {one_of: [10.0.0.2, 10.0.0.3], search: [cluster.example]}` or
    `dns: {resolves: [head.cluster.example], within_s: 1}`"""

    bare: ClassVar[str] = "minimum"

    minimum: Annotated[int, Meta(ge=0, le=32)] = 1
    """The least number of nameservers with different addresses."""
    one_of: tuple[str, ...] = ()
    """The addresses that a nameserver may have."""
    search: tuple[Domain, ...] = ()
    """Domains that the node must search for a short name."""
    resolves: tuple[Domain, ...] = ()
    """Names that the node must resolve."""
    within_s: Annotated[float, Meta(gt=0, le=10)] = 5.0
    """The time limit for each name."""

    def __post_init__(self) -> None:
        refuse(
            FieldError(f"must be an IP address, not {text!r}", "one_of", place)
            for place, text in enumerate(self.one_of)
            if address(text) is None
        )


def address(text: str) -> str | None:
    """An address in its shortest form, without the zone of a link-local address; None for any other
    text.

    >>> address("FD00:0::2"), address("fe80::1%eth0"), address("ns1")
    ('fd00::2', 'fe80::1', None)
    """
    try:
        return str(ipaddress.ip_address(text.partition("%")[0]))
    except ValueError:
        return None


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Dns]
    if section.data is None:
        yield unknown(why=f"dns: {section.why}")
    else:
        yield from aspect_findings(NODE, settings(section.data, params), {})
    if params.resolves:
        names = dict.fromkeys(params.resolves)
        for entry in each_named(section, names, label="dns", listed="names", kind="name"):
            yield entry if isinstance(entry, Finding) else judge_name(*entry, params.within_s)


def settings(data: Dns, params: Params) -> Iterator[Aspect]:
    """The aspects of /etc/resolv.conf."""
    servers = data.nameservers
    if servers is None:
        yield unread_aspect(data, "nameservers")
    else:
        valid = {address(server) for server in servers} - {None}
        enough = len(valid) >= params.minimum
        yield aspect_if(
            "nameservers",
            enough,
            expected=f"at least {params.minimum}",
            actual=", ".join(servers) or "none",
            advice=WRITER,
        )._replace(why="" if enough else unusable_text(servers))
        others = [server for server in servers if params.one_of and not is_admitted(server, params)]
        if params.one_of:
            yield aspect_if(
                "addresses",
                not others,
                expected=f"one of {', '.join(params.one_of)}",
                actual=", ".join(others or servers),
                advice=WRITER,
            )
    if not params.search:
        return
    if data.search is None:
        yield unread_aspect(data, "search")
        return
    search_domains = {domain.rstrip(".").lower() for domain in data.search}
    missing = [
        domain for domain in params.search if domain.rstrip(".").lower() not in search_domains
    ]
    yield aspect_if(
        "search",
        not missing,
        expected=", ".join(missing or params.search),
        actual=", ".join(data.search) or "none",
        advice=WRITER,
    )


def unusable_text(servers: Sequence[str]) -> str:
    """Why some words after `nameserver` do not count.

    >>> unusable_text(["ns1.example", "10.0.0.2", "10.0.0.2"]) 'not an IP address: ns1.example;
    named twice: 10.0.0.2'
    """
    names = sorted({server for server in servers if address(server) is None})
    counts = Counter(server for server in servers if server not in names)
    repeated = sorted(server for server, count in counts.items() if count > 1)
    reasons = {"not an IP address": names, "named twice": repeated}
    return "; ".join(
        f"{why}: {', '.join(culprits)}" for why, culprits in reasons.items() if culprits
    )


def is_admitted(server: str, params: Params) -> bool:
    return address(server) in {address(allowed) for allowed in params.one_of}


def judge_name(subject: Subject, name: LookedUp, within_s: float) -> Finding:
    if finding := first_unread(subject, name, "addresses", "why_not", "seconds"):
        return finding
    expected = f"resolves within {within_s:g} s"
    addresses = [text for text in name.addresses or () if text]
    if not addresses or name.why_not:
        actual = name.why_not or "no address"
        return fail(subject, expected=expected, actual=actual, advice=LOOKUP)
    seconds = name.seconds or 0.0
    addresses_text = f"{', '.join(addresses)} after {seconds:g} s"
    if seconds < 0:
        return unknown(subject, expected=expected, why=f"{seconds:g} s is not a valid time")
    late = seconds > within_s
    return (fail if late else ok)(
        subject, expected=expected, actual=addresses_text, advice=LOOKUP if late else ""
    )


def learn(evidence: Evidence) -> Value:
    data = evidence[Dns].data
    if data is None or not data.nameservers:
        return None
    usable = {address(server) for server in data.nameservers} - {None}
    fields: dict[str, Value] = {"minimum": len(usable)}
    if all(address(server) for server in data.nameservers):
        fields["one_of"] = sorted(set(data.nameservers))
    domains = [domain for domain in data.search or () if re.fullmatch(DOMAIN, domain)]
    if domains:
        fields["search"] = domains
    return fields


CHECK = Check(
    params=Params,
    area=Area.NETWORK,
    reads=(
        *reads_of("dns.names[]", "addresses[]", "name", "seconds", "why_not"),
        *reads_of("dns", "nameservers[]", "search[]"),
    ),
    judge=judge,
    unasked="only a site knows its nameservers and the names that its nodes need",
    learn=learn,
    asks=lambda params: {"dns": params.resolves},
)
