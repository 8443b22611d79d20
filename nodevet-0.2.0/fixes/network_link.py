"""Set the MTU of network interfaces to the expected one, now and at every boot.

**Now** nodevet writes the MTU to `/sys/class/net/NAME/mtu` of each interface that has a wrong one.

**At every boot** the program that configures the interface sets the MTU. nodevet writes it to that
program's configuration:

- NetworkManager: `mtu=` in the keyfile of the active profile, then `nmcli connection load`.
- netplan: `/etc/netplan/99-nodevet-mtu-NAME.yaml`; `netplan get` tests that netplan can read it.
- systemd-networkd: the drop-in `50-nodevet.conf` of the .network file in force.

nodevet runs neither `netplan apply` nor `networkctl reload`, because interfaces can lose their
addresses for a moment. If the configuration already has the expected MTU, nodevet changes only the
running interface.

**Risk** drain: many drivers take the link down for a moment. If the link needs longer than
`--settle` to come back, the check fails and nodevet rolls the step back.

**Rollback** restores the MTU and the file; NetworkManager loads the profile again.

**What it cannot do.** It never touches an interface that carries a default route or nodevet's own
SSH session, nor a part of such an interface, for example a member of its bond. If it cannot find
out which interfaces these are, it plans nothing. It also refuses

- an interface that several of these programs configure, or none, or ifupdown: add the line by hand;
- an interface whose configuration already has another MTU;
- a NetworkManager profile that may hold a password, or that is not a file in /etc;
- a configuration that other interfaces share, unless they all need this MTU;
- a member of a bond (set the MTU of the bond), a bridge and a port of a bridge;
- an MTU above what the driver allows, below 1280 (the kernel then turns IPv6 off), or below the MTU
  of a VLAN on the interface.

It does not set the MTU of the switch: until someone does, large packets are lost. It does not
repair state, speed and members of a link. Tests run the real programs on pairs of virtual
interfaces; no test has set the MTU of a real NIC.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from nodevet.checks.network_link import Params
from nodevet.evidence.document import Evidence
from nodevet.evidence.link_managers import LinkManager, LinkManagers, ManagedLink
from nodevet.evidence.network import Interface, Network
from nodevet.fixing.gpus import common_value
from nodevet.fixing.link_carriers import links_of, require_apart
from nodevet.fixing.link_mtu import Shares, boot_actions, manager_of
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk, with_refusals
from nodevet.model import Finding
from nodevet.resource import Actions
from nodevet.resource.kernel import WriteKernel

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")
KINDS = ("physical", "virtual_function", "bond", "vlan", "virtual")
LEAST = 1280  # RFC 8200: the kernel ends IPv6 below it
ETHERNET = 1  # ARPHRD_ETHER


class MtuTarget(NamedTuple):
    """An interface, who configures it, and the MTU that it gets."""

    finding: Finding
    manager: LinkManager
    interface: Interface
    mtu: int


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change for all interfaces whose MTU fails; see `FIX`."""
    targets, refused = [], []
    for finding in failed:
        try:
            targets.append(target_of(evidence, finding))
        except FixError as error:
            refused.append(f"{finding.subject.id or 'the node'}: {error}")
    shares: Shares = Counter((target.manager.path, target.mtu) for target in targets)
    done: list[tuple[MtuTarget, Actions]] = []
    for target in targets:
        try:
            done.append(
                (target, boot_actions(target.manager, target.interface.name, target.mtu, shares))
            )
        except FixError as error:
            refused.append(f"{target.interface.name}: {error}")
    yield from with_refusals([change(done)] if done else [], refused)


def change(done: Sequence[tuple[MtuTarget, Actions]]) -> PlannedChange:
    """Files come first: whatever happens then, the next boot has the expected MTU."""
    targets = [target for target, _ in done]
    now = [WriteKernel(path=f"/sys/class/net/{target.interface.name}/mtu", value=str(target.mtu))
           for target in targets]  # fmt: skip
    actions = tuple(dict.fromkeys((*(action for _, each in done for action in each), *now)))
    labels = {target.finding.subject.label: target for target in targets}
    return PlannedChange(
        expected=common_value({label: target.mtu for label, target in labels.items()}),
        actual=common_value({label: target.interface.mtu for label, target in labels.items()}),
        unit="B",
        subjects=tuple(labels),
        actions=actions,
        resources=tuple(action.resource for action in actions if action.resource),
        risk=Risk.DRAIN,
        note="the switch must have this MTU too",
    )


def target_of(evidence: Evidence, finding: Finding) -> MtuTarget:
    """The interface that a finding names. Raises FixError if nodevet does not change its MTU."""
    mtu, name = expected_mtu(finding), finding.subject.id
    if not NAME.fullmatch(name):
        raise FixError(f"{name[:30]!r} is not a name that nodevet accepts")
    network, links = evidence[Network].data, links_of(evidence)
    interface = network.by_name.get(name) if network else None
    if interface is None or interface.mtu is None or name not in links:
        raise FixError("the finding does not come from this evidence")
    require_apart(name, evidence[LinkManagers].data, links)
    require_ethernet(interface, mtu)
    require_room(links[name], mtu, network.by_name if network else {}, links)
    return MtuTarget(finding, manager_of(links[name]), interface, mtu)


def expected_mtu(finding: Finding) -> int:
    """Raises FixError if anything but the MTU fails."""
    facts = finding.expected
    if finding.subject.kind != "interface" or not isinstance(facts, Mapping) or "mtu" not in facts:
        raise FixError("only a wrong MTU has a fix")
    if others := sorted(set(facts) - {"mtu"}):
        raise FixError(f"repair {', '.join(others)} first: the check fails until then")
    if not isinstance(mtu := facts["mtu"], int):
        raise FixError("the baseline expects several MTUs")
    return mtu


def require_ethernet(interface: Interface, mtu: int) -> None:
    """Raises FixError."""
    if interface.type != ETHERNET or interface.kind not in KINDS:
        raise FixError(f"nodevet does not set the MTU of this kind ({interface.kind or 'unknown'})")
    if interface.master is None:
        raise FixError(f"master: {interface.why('master')}")
    if interface.master:
        raise FixError(f"it belongs to {interface.master}: set the MTU of {interface.master}")
    if mtu < LEAST:
        raise FixError(f"below {LEAST} the kernel turns IPv6 off on it")


def require_room(
    link: ManagedLink,
    mtu: int,
    interfaces: Mapping[str, Interface],
    links: Mapping[str, ManagedLink],
) -> None:
    """Raises FixError if the kernel would refuse the MTU, or change that of another interface."""
    if link.max_mtu is None or link.upper is None or link.lower is None:
        field = next(f for f in ("max_mtu", "upper", "lower") if getattr(link, f) is None)
        raise FixError(f"{field}: {link.why(field)}")
    if 0 < link.max_mtu < mtu:
        raise FixError(f"its driver allows at most {link.max_mtu}")
    for name in link.upper:
        if mtu_of(name, interfaces) > mtu:
            raise FixError(f"{name} on it has a larger MTU, which would shrink too")
    for name in link.lower:
        if link.kind == "vlan" and mtu_of(name, interfaces) < mtu:
            raise FixError(f"set the MTU of {name} first: it carries this VLAN")
        if link.kind == "bond" and mtu_of(name, interfaces) != mtu_of(link.name, interfaces):
            raise FixError(f"its member {name} has another MTU, which a rollback would not restore")
        managers = links[name].managers if name in links else None
        own = managers is None or any(each.mtu not in ("", str(mtu)) for each in managers)
        if link.kind == "bond" and own:
            raise FixError(f"the configuration of its member {name} may set another MTU")


def mtu_of(name: str, interfaces: Mapping[str, Interface]) -> int:
    """Raises FixError."""
    mtu = interfaces[name].mtu if name in interfaces else None
    if mtu is None:
        raise FixError(f"nodevet could not read the MTU of {name}, which may change too")
    return mtu


def asks(params: Params) -> Mapping[str, tuple[str, ...]]:
    """Who configures the interfaces, if the baseline expects an MTU."""
    wishes = (*params.interfaces.values(), *params.drivers.values())
    return {"link_managers": ("mtu",)} if any(wish.mtu is not None for wish in wishes) else {}


FIX = Fix(plan=plan, risk=Risk.DRAIN, after=("services",), asks=asks)
