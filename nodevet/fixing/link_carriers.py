"""The interfaces over which a node is reached: no fix touches them."""

from collections.abc import Mapping

from nodevet.evidence.document import Evidence
from nodevet.evidence.link_managers import LinkManagers, ManagedLink
from nodevet.fixing.model import FixError

ENDS = ("", "veth")  # kinds of interfaces that no other one carries, as far as the kernel says


def links_of(evidence: Evidence) -> Mapping[str, ManagedLink]:
    """The interfaces by name. Raises FixError."""
    section = evidence[LinkManagers]
    if section.data is None or section.data.links is None:
        raise FixError(
            f"nodevet could not read what configures it: {section.why or 'links not read'}"
        )
    return {link.name: link for link in section.data.links}


def require_apart(
    name: str, section: LinkManagers | None, links: Mapping[str, ManagedLink]
) -> None:
    """Raises FixError if the node is reached over the interface, or if that is unknown."""
    if section is None or not section.carriers:
        why = section.why("carriers") if section else "not read"
        raise FixError(f"nodevet could not read which interface carries its session: {why}")
    for carrier in section.carriers:
        if name in interfaces_below(carrier, links):
            over = "" if name == carrier else f", as a part of {carrier}"
            raise FixError(f"it carries nodevet's session or a default route{over}")


def interfaces_below(carrier: str, links: Mapping[str, ManagedLink]) -> set[str]:
    """An interface, and all that it is made of. Raises FixError if that is unknown."""
    reached, remaining = set(), [carrier]
    while remaining:
        name = remaining.pop()
        link = links.get(name)
        if link is None or link.lower is None or link.kind is None:
            raise FixError(
                f"it carries the session, but nodevet could not read its parts: {name[:30]}"
            )
        if not link.lower and link.kind not in ENDS:
            raise FixError(
                f"{name[:30]} ({link.kind[:30]}) carries the session over an unknown interface"
            )
        remaining += [lower for lower in link.lower if lower not in reached]
        reached.add(name)
    return reached
