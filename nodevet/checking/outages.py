"""Compares how long a NIC's link was down, by its driver's log lines, with the baseline's limit."""

from collections.abc import Iterable, Mapping

from nodevet.base.durations import elapsed
from nodevet.checking.aspects import Aspect, aspect_if, unknown_aspect, unread_aspect
from nodevet.evidence.document import Evidence, answer_once
from nodevet.evidence.kernel_log import KernelLog, NicLink, Outage, coverage, span
from nodevet.evidence.last_look import seen_links
from nodevet.evidence.network import Interface, is_up
from nodevet.model import Verdict

NAME = "outage"
DRIVERS = ("mlx5_core", "bnxt_en")
"""The drivers whose lines distinguish a lost link from an interface that was turned off."""
INFINIBAND = 32  # ARPHRD_INFINIBAND
READS = (
    "earlier.kernel_log.covered_s",
    "earlier.kernel_log.links[].bus_id",
    "earlier.kernel_log.links[].outages[].up_s",
    "earlier.kernel_log.since_s",
    "kernel_log.complete",
    "kernel_log.covered_s",
    "kernel_log.links[].bus_id",
    "kernel_log.links[].count",
    "kernel_log.links[].outages[].down_s",
    "kernel_log.links[].outages[].up_s",
    "kernel_log.links[].up",
    "kernel_log.since_s",
    "network.interfaces[].type",
)


def outage(evidence: Evidence, interface: Interface, most_s: float, advice: str) -> Aspect:
    """The aspect: whether every outage of a link was at most `most_s` long."""
    section = evidence[KernelLog]
    log = section.data
    if section.status == "absent":
        return Aspect(Verdict.NOT_APPLICABLE, NAME, why=f"{NAME}: {section.why}")
    if log is None:
        return unknown_aspect(NAME, f"{NAME}: kernel log: {section.why}")
    for field in ("driver", "bus_id", "type"):
        if getattr(interface, field) is None:
            return unread_aspect(interface, field)
    if log.links is None:
        return unread_aspect(log, "links")
    if silence := unlogged_reason(interface):
        return unknown_aspect(NAME, f"{NAME}: {silence}")
    return longest_outage(evidence, log, interface, most_s, advice)


def unlogged_reason(interface: Interface) -> str:
    """Why the kernel log does not say when this link was down; empty if it does."""
    if interface.type == INFINIBAND:
        return "the kernel does not log when an InfiniBand link goes down"
    if not interface.bus_id or not interface.driver:
        return "this interface is not a NIC on a PCI bus: name the NICs below it"
    if interface.driver not in DRIVERS:
        return (
            f"the log lines of {interface.driver} do not distinguish a lost link from an "
            f"interface that was turned off; those of {' and '.join(DRIVERS)} do"
        )
    return ""


def longest_outage(
    evidence: Evidence, log: KernelLog, interface: Interface, most_s: float, advice: str
) -> Aspect:
    seen, address = seen_links(evidence), interface.bus_id or ""
    link = links(evidence).get(address)
    outages = (link.outages if link else None) or ()
    new = [lost for lost in outages if not (seen and seen.has_outage(address, lost))]
    worst = max((lost for lost in new if lost.seconds is not None), key=length, default=None)
    limit = f"at most {elapsed(most_s)}"
    if worst and length(worst) > most_s:
        aspect = aspect_if(
            NAME, False, expected=limit, actual=elapsed(length(worst)), advice=advice
        )
        return aspect._replace(why=came_back(worst, link))
    doubt, since = ("", f"since the last look {seen.age_text} ago") if seen else coverage(log)
    if doubt := doubt or gap(log, interface, link, new):
        return unknown_aspect(NAME, f"{NAME}: {doubt}")
    before = seen.earlier_text(lengths(lost for lost in outages if lost not in new)) if seen else ""
    actual = elapsed(length(worst)) if worst else "none"
    return aspect_if(NAME, True, expected=limit, actual=actual)._replace(why=before or since)


def came_back(outage: Outage, link: NicLink | None) -> str:
    often = f"; it was down {link.count} times in total" if link and (link.count or 0) > 1 else ""
    return f"its link came back {span(outage.up_s or 0.0)} after boot{often}"


def gap(log: KernelLog, interface: Interface, link: NicLink | None, new: list[Outage]) -> str:
    """Why the log may lack an outage of a link; empty if it does not."""
    may_be_up = is_up(interface) is not False
    if link is None:
        return (
            ("the kernel log has no line about the NIC's link")
            if may_be_up and log.complete
            else ""
        )
    if link.outages is None:
        return f"outages: {link.why('outages')}"
    if link.count is None or (link.count and not link.outages):
        return "the log does not say how long the link was down each time"
    if any(lost.seconds is None for lost in new):
        return (
            "the kernel log begins after the link went down, so the length of that outage is not "
            "known"
        )
    if may_be_up and not link.up:
        return "according to the kernel log, the link is not up"
    return ""


@answer_once
def links(evidence: Evidence) -> Mapping[str, NicLink]:
    """The links of NICs in the kernel log, by PCI address."""
    log = evidence[KernelLog].data
    return {link.bus_id: link for link in (log.links if log else None) or ()}


def length(outage: Outage) -> float:
    return outage.seconds or 0.0


def lengths(outages: Iterable[Outage]) -> list[str]:
    return [f"down for {elapsed(lost.seconds)}" for lost in outages if lost.seconds is not None]
