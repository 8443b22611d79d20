"""Set the MTU and the ring sizes of network interfaces to the expected ones, now and at every boot.

**Now** nodevet writes the MTU to `/sys/class/net/NAME/mtu` of each interface that has a wrong one,
and runs `ethtool -G NAME rx N tx N` for wrong ring sizes.

**At every boot** the program that configures the interface sets the MTU. nodevet writes it to that
program's configuration:

- NetworkManager: `mtu=` in the keyfile of the active profile, then `nmcli connection load`.
- netplan: `/etc/netplan/99-nodevet-mtu-NAME.yaml`; `netplan get` tests that netplan can read it.
- systemd-networkd: the drop-in `50-nodevet.conf` of the .network file in force.

Ring sizes of an interface of NetworkManager go to the same keyfile: `ring-rx=` and `ring-tx=` of
the group `[ethtool]`. netplan and systemd-networkd have no setting for rings, and nodevet does not
edit interfaces(5). But systemd-udevd sets rings by a .link file, whoever configures the interface.
It applies only the first .link file that matches, so nodevet adds to the file in force, which
`udevadm info /sys/class/net/NAME` shows as ID_NET_LINK_FILE:

- a file in /etc, or one of netplan, for this interface alone: the drop-in `50-nodevet.conf`, with
  `RxBufferSize=` and `TxBufferSize=`;
- a file for several interfaces, such as `99-default.link` of systemd:
  `/etc/systemd/network/50-nodevet-rings-NAME.link`. It has everything that the file in force has,
  so the interface keeps its name, but matches the PCI path of this interface only.

nodevet runs neither `netplan apply` nor `networkctl reload` nor `udevadm trigger`, because
interfaces can lose their addresses for a moment. If the configuration already has the expected
values, nodevet changes only the running interface.

**Risk** drain: many drivers take the link down for a moment. If the link needs longer than
`--settle` to come back, the check fails and nodevet rolls the step back.

**Rollback** restores the MTU, the ring sizes and the files; NetworkManager loads the profile again.

**What it cannot do.** It never touches an interface that carries a default route or nodevet's own
SSH session, nor a part of such an interface, for example a member of its bond. If it cannot find
out which interfaces these are, it plans nothing. It also refuses

- an MTU that several of these programs configure, or none, or ifupdown: add the line by hand;
- ring sizes of NetworkManager and another program together;
- an interface whose configuration already has another MTU or other ring sizes;
- a NetworkManager profile that may hold a password, or that is not a file in /etc;
- a configuration that other interfaces share, unless they all need this value; a shared .link file
  with drop-ins, or without a PCI path in udev's database;
- the MTU of a member of a bond (set the MTU of the bond), a bridge and a port of a bridge;
- an MTU or a ring size above what the driver allows, an MTU below 1280 (the kernel then turns IPv6
  off), or below the MTU of a VLAN on the interface.

It does not set the MTU of the switch: until someone does, large packets are lost. It does not
repair state, speed and members of a link. `ethtool` must be installed for ring sizes. An initramfs
may hold copies of .link files; udev applies the files of the root file system after it. Tests run
the real programs on pairs of virtual interfaces, which have no rings: a preloaded library answers
the ioctl of ethtool for them. No test has set the MTU or the rings of a real NIC.
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
from nodevet.fixing.link_mtu import Shares, boot_actions, manager_of, share_of
from nodevet.fixing.link_rings import link_actions
from nodevet.fixing.model import Fix, FixError, PlannedChange, Risk, with_refusals
from nodevet.model import Finding, Value
from nodevet.resource import Action, Actions
from nodevet.resource.kernel import WriteKernel
from nodevet.resource.ring import SetRings

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")
KINDS = ("physical", "virtual_function", "bond", "vlan", "virtual")
LEAST = 1280  # RFC 8200: the kernel ends IPv6 below it
ETHERNET = 1  # ARPHRD_ETHER
RINGS = {"ring_rx": "rx", "ring_tx": "tx"}
FIXABLE = ("mtu", *RINGS)


class LinkTarget(NamedTuple):
    """An interface, and the MTU and the ring sizes that it gets."""

    finding: Finding
    link: ManagedLink
    interface: Interface
    mtu: int | None
    sizes: Mapping[str, int]  # rx, tx
    manager: LinkManager | None  # who sets the MTU, and the rings if it is NetworkManager

    @property
    def name(self) -> str:
        return self.interface.name

    @property
    def profile_sizes(self) -> Mapping[str, int]:
        """The ring sizes that NetworkManager sets at boot."""
        is_profile = self.manager is not None and self.manager.manager == "NetworkManager"
        return self.sizes if is_profile else {}

    @property
    def link_sizes(self) -> Mapping[str, int]:
        """The ring sizes that systemd-udevd sets at boot."""
        return {} if self.profile_sizes else self.sizes

    @property
    def link_share(self) -> tuple[str, tuple[tuple[str, int], ...]]:
        path = self.link.link_file.path if self.link.link_file else ""
        return (path, tuple(self.link_sizes.items()))

    @property
    def runtime_actions(self) -> Iterator[Action]:
        if self.mtu is not None:
            yield WriteKernel(path=f"/sys/class/net/{self.name}/mtu", value=str(self.mtu))
        if self.sizes:
            yield SetRings(interface=self.name, **self.sizes)


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change for all interfaces whose MTU or rings fail; see `FIX`."""
    targets, refused = [], []
    for finding in failed:
        try:
            targets.append(target_of(evidence, finding))
        except FixError as error:
            refused.append(f"{finding.subject.id or 'the node'}: {error}")
    shares: Shares = Counter(
        share_of(target.manager, target.mtu, target.profile_sizes)
        for target in targets if target.manager
    )  # fmt: skip
    alike = Counter(target.link_share for target in targets)
    done: list[tuple[LinkTarget, Actions]] = []
    for target in targets:
        try:
            done.append((target, at_boot(target, shares, alike[target.link_share])))
        except FixError as error:
            refused.append(f"{target.name}: {error}")
    yield from with_refusals([change(done)] if done else [], refused)


def at_boot(target: LinkTarget, shares: Shares, alike: int) -> Actions:
    """The actions by which an interface gets its values at every boot. Raises FixError."""
    actions: Actions = ()
    if target.manager:
        actions = boot_actions(
            target.manager, target.name, target.mtu, shares, target.profile_sizes
        )
    if target.link_sizes:
        actions += link_actions(target.link, target.link_sizes, alike)
    return actions


def change(done: Sequence[tuple[LinkTarget, Actions]]) -> PlannedChange:
    """Files come first: whatever happens then, the next boot has the expected values."""
    targets = [target for target, _ in done]
    now = [action for target in targets for action in target.runtime_actions]
    actions = tuple(dict.fromkeys((*(action for _, each in done for action in each), *now)))
    labels = {target.finding.subject.label: target for target in targets}
    has_mtu = any(target.mtu is not None for target in targets)
    return PlannedChange(
        expected=common_value({label: expected_value(target) for label, target in labels.items()}),
        actual=common_value({label: actual_value(target) for label, target in labels.items()}),
        unit="" if any(target.sizes for target in targets) else "B",
        subjects=tuple(labels),
        actions=actions,
        resources=tuple(dict.fromkeys(action.resource for action in actions if action.resource)),
        risk=Risk.DRAIN,
        note="the switch must have this MTU too" if has_mtu else "",
    )


def expected_value(target: LinkTarget) -> Value:
    """The MTU, or everything by name."""
    return target.finding.expected if target.sizes else target.mtu


def actual_value(target: LinkTarget) -> Value:
    return target.finding.actual if target.sizes else target.interface.mtu


def target_of(evidence: Evidence, finding: Finding) -> LinkTarget:
    """The interface that a finding names. Raises FixError if nodevet does not change it."""
    facts, name = expected_facts(finding), finding.subject.id
    if not NAME.fullmatch(name):
        raise FixError(f"{name[:30]!r} is not a name that nodevet accepts")
    network, links = evidence[Network].data, links_of(evidence)
    interface = network.by_name.get(name) if network else None
    if interface is None or interface.mtu is None or name not in links:
        raise FixError("the finding does not come from this evidence")
    require_apart(name, evidence[LinkManagers].data, links)
    require_ethernet(interface)
    mtu = facts.get("mtu")
    sizes = {side: facts[fact] for fact, side in RINGS.items() if fact in facts}
    if mtu is not None:
        require_mtu(interface, mtu)
        require_room(links[name], mtu, network.by_name if network else {}, links)
    require_descriptors(interface, sizes)
    link = links[name]
    return LinkTarget(finding, link, interface, mtu, sizes, manager_for(link, mtu))


def manager_for(link: ManagedLink, mtu: int | None) -> LinkManager | None:
    """The one manager of an interface; None if only systemd-udevd has to set rings. Raises
    FixError."""
    names = [manager.manager for manager in link.managers or ()]
    if mtu is None and link.managers is not None and "NetworkManager" not in names:
        return None
    return manager_of(link)


def expected_facts(finding: Finding) -> Mapping[str, int]:
    """The MTU and the ring sizes that a finding expects. Raises FixError if anything else fails."""
    facts = finding.expected
    if finding.subject.kind != "interface" or not isinstance(facts, Mapping):
        raise FixError("only a wrong MTU or ring size has a fix")
    if not set(facts) & set(FIXABLE):
        raise FixError("only a wrong MTU or ring size has a fix")
    if others := sorted(set(facts) - set(FIXABLE)):
        raise FixError(f"repair {', '.join(others)} first: the check fails until then")
    numbers = {name: value for name, value in facts.items() if isinstance(value, int)}
    if several := sorted(set(facts) - set(numbers)):
        raise FixError(f"the baseline expects several values of {', '.join(several)}")
    return numbers


def require_ethernet(interface: Interface) -> None:
    """Raises FixError."""
    if interface.type != ETHERNET or interface.kind not in KINDS:
        kind = interface.kind or "unknown"
        raise FixError(f"nodevet does not set MTU and rings of this kind ({kind})")


def require_mtu(interface: Interface, mtu: int) -> None:
    """Raises FixError."""
    if interface.master is None:
        raise FixError(f"master: {interface.why('master')}")
    if interface.master:
        raise FixError(f"it belongs to {interface.master}: set the MTU of {interface.master}")
    if mtu < LEAST:
        raise FixError(f"below {LEAST} the kernel turns IPv6 off on it")


def require_descriptors(interface: Interface, sizes: Mapping[str, int]) -> None:
    """Raises FixError if the driver would refuse a ring size."""
    for side, size in sizes.items():
        most = getattr(interface.rings, f"{side}_max", None)
        if not most:
            raise FixError(f"rings: {interface.why('rings')}")
        if size > most:
            raise FixError(f"its driver allows at most {most} descriptors of {side}")


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
    """Who configures the interfaces, if the baseline expects an MTU or ring sizes."""
    wishes = (*params.interfaces.values(), *params.drivers.values())
    is_asked = any(getattr(wish, fact) is not None for wish in wishes for fact in FIXABLE)
    return {"link_managers": ("mtu",)} if is_asked else {}


FIX = Fix(plan=plan, risk=Risk.DRAIN, after=("services",), asks=asks)
