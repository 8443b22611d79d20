"""The links of Mellanox NICs have few bit errors, by mlxlink.

**Why it matters.** A dirty connector or an ageing transceiver shows as a rising rate of bit errors
long before the link goes down. The sender repeats data that forward error correction (FEC) cannot
repair: the port still reports its full rate, and jobs over it are slow.

**Read from** `mlxlink -d DEVICE -c --json` of MFT, or mstlink of mstflint: Effective and Raw
Physical BER. nodevet runs it only if a baseline asks for this check; it needs root and a second per
port.

**Verdicts.** The effective rate is measured after FEC and must be practically zero. The raw rate is
measured before FEC; links of 400 Gb/s tolerate some errors. A port that is not active has no rate
and is not applicable: `infiniband` judges it. If errors were counted for less than
`minimum_minutes` since the counters were cleared, the rate is unknown, unless it is already too
high. If neither program is installed, the check is unknown; a node without such devices is not
applicable.

**To fix it** clean and reseat both ends of the cable, then swap the transceiver with a known-good
one; `mlxlink -d DEVICE -m` shows its optical power and temperature. `mlxlink -d DEVICE --pc` clears
the counters after a repair.
"""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from nodevet.checking.aspects import Aspect, aspect_findings, aspect_if, unread_aspect
from nodevet.checking.expected import Words, matches, patterns_in
from nodevet.checking.named import of_section, reads_of
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.mlxlink import LinkQuality, Mlxlink
from nodevet.model import (
    NODE,
    Area,
    Check,
    CheckParams,
    Finding,
    Subject,
    Verdict,
    not_applicable,
    unknown,
)

CLEAN = (
    "clean and reseat both ends of the cable, then swap cable or transceiver with a known-good "
    "one; `mlxlink -d DEVICE -m` shows its optical power, and the switch shows that of the "
    "other end"
)
Rate = Annotated[float, Meta(gt=0, lt=1)]


class Params(CheckParams):
    """`link_ber: {}` or `link_ber: {devices: "mlx5_[0-7]", maximum_raw: 1.0e-5}`"""

    devices: Words = "mlx5_*"
    """RDMA devices to check; `*` stands for any text."""
    maximum_effective: Rate = 1e-12
    """The most bit errors per bit, after FEC."""
    maximum_raw: Rate = 1e-5
    """The most bit errors per bit, before FEC."""
    minimum_minutes: Annotated[float, Meta(ge=0)] = 0
    """The least time for which errors must have been counted."""


@of_section(Mlxlink, "mlxlink")
def judge(data: Mlxlink, evidence: Evidence, params: Params) -> Iterator[Finding]:
    if data.links is None or data.found is None:
        yield unread(NODE, data, "links" if data.links is None else "found")
        return
    links = {link.device: link for link in data.links if matches(link.device, params.devices)}
    missing = sorted(name for name in set(data.found) - set(links) if matches(name, params.devices))
    if missing:
        yield unknown(why=f"links that were not read: {', '.join(missing[:8])}")
    if not links and not missing:
        yield not_applicable(why="the node has no such device")
    for name, link in links.items():
        subject = Subject(kind="port", id=name)
        if link.state is None:
            yield unread(subject, link, "state")
        elif link.state != "Active":
            yield not_applicable(subject, why=f"the link is not active: {link.state}")
        else:
            yield from aspect_findings(subject, aspects(link, params), {})


def aspects(link: LinkQuality, params: Params) -> Iterator[Aspect]:
    rates = (
        ("effective_ber", "effective BER", params.maximum_effective),
        ("raw_ber", "raw BER", params.maximum_raw),
    )
    clean = True
    for field, name, most in rates:
        rate = getattr(link, field)
        if rate is None:
            yield unread_aspect(link, field)
        else:
            clean = clean and 0 <= rate <= most
            yield aspect_if(
                name,
                0 <= rate <= most,
                expected=f"at most {most:g}",
                actual="none" if 0 <= rate < 1e-200 else f"{rate:g}",
                advice=CLEAN,
            )
    if clean and params.minimum_minutes:
        if link.minutes is None:
            yield unread_aspect(link, "minutes")
        elif link.minutes < params.minimum_minutes:
            why = f"errors were counted for {link.minutes:g} minutes"
            yield Aspect(Verdict.UNKNOWN, "minutes", why=why)


CHECK = Check(
    params=Params,
    area=Area.NETWORK,
    reads=(
        "mlxlink.found[]",
        *reads_of("mlxlink.links[]", "device", "effective_ber", "minutes", "raw_ber", "state"),
    ),
    judge=judge,
    unasked="mlxlink takes a second per port: write link_ber: {} where it is installed",
    asks=lambda params: {"mlxlink": patterns_in(params.devices)},
)
