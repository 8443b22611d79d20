"""The files by which the manager of a network interface sets its MTU at every boot; the profile of
NetworkManager also sets ring sizes."""

import re
from collections.abc import Mapping
from typing import TypeAlias

from nodevet.evidence.link_managers import LinkManager, ManagedLink
from nodevet.fixing.link_profile import of_network_manager
from nodevet.fixing.model import FixError
from nodevet.remote.probe.link_configs import NETPLAN_ID, OWN_DROP_IN, OWN_NETPLAN
from nodevet.resource import Actions, RunCommand
from nodevet.resource.file import WriteFile

DEFINITIONS = ("ethernets", "bonds", "vlans")
NETWORK_FILE = re.compile(
    r"/(?:etc|usr/local/lib|usr/lib|lib)/systemd/network/([A-Za-z0-9][A-Za-z0-9_.@-]{0,100}\.network)"
)
MARK = "# Written by nodevet.\n"

NONE: Mapping[str, int] = {}
Share: TypeAlias = tuple[str, int | None, tuple[tuple[str, int], ...]]
Shares: TypeAlias = Mapping[Share, int]
"""How many interfaces with one file in force get the same settings from it."""


def share_of(manager: LinkManager, mtu: int | None, sizes: Mapping[str, int]) -> Share:
    """What an interface gets from its manager's file."""
    return (manager.path, mtu, tuple(sizes.items()))


def manager_of(link: ManagedLink) -> LinkManager:
    """The one program that configures an interface. Raises FixError."""
    if link.managers is None:
        raise FixError(f"nodevet could not read what configures it: {link.why('managers')}")
    if len(link.managers) != 1:
        managers = " and ".join(manager.manager for manager in link.managers)
        raise FixError(
            f"{managers} configure it: let only one do so" if managers else
            "neither NetworkManager, netplan, systemd-networkd nor ifupdown configures it"
        )  # fmt: skip
    return link.managers[0]


def boot_actions(
    manager: LinkManager,
    interface: str,
    mtu: int | None,
    shares: Shares,
    sizes: Mapping[str, int] = NONE,
) -> Actions:
    """The actions that make the manager set the MTU at boot, and NetworkManager the ring sizes;
    none if it does. Raises FixError."""
    if manager.mtu is None:
        raise FixError(f"{manager.manager}: mtu: {manager.why('mtu')}")
    new_mtu = None if manager.mtu == str(mtu) else mtu
    if new_mtu is None and not sizes:
        return ()
    if manager.manager == "ifupdown":
        raise FixError(f"add the line `mtu {mtu}` to its stanza in {manager.path[:100]}")
    if manager.manager not in (*WRITERS, "NetworkManager"):
        raise FixError(f"nodevet does not know {manager.manager[:30]}")
    if manager.shared_by != shares[share_of(manager, mtu, sizes)]:
        raise FixError(f"{manager.path[:100]} configures other interfaces too")
    if manager.manager == "NetworkManager":
        return of_network_manager(manager, new_mtu, sizes)
    return () if new_mtu is None else WRITERS[manager.manager](manager, interface, new_mtu)


def of_netplan(manager: LinkManager, interface: str, mtu: int) -> Actions:
    """A file of nodevet's own, which is merged with the others by the definition's id."""
    name = manager.name
    if not NETPLAN_ID.match(name) or manager.definition not in DEFINITIONS:
        raise FixError(f"{name[:60]!r} is not the id of a definition of netplan")
    require_unset(manager, netplan_text(manager, manager.mtu or ""))
    path = OWN_NETPLAN.format(interface)
    key = f"{manager.definition}.{name.replace('.', chr(92) + '.')}.mtu"
    return (
        WriteFile(path=path, content=netplan_text(manager, mtu), mode=0o600),
        RunCommand(words=("netplan", "get", key)),
    )


def netplan_text(manager: LinkManager, mtu: int | str) -> str:
    rows = ("network:", "  version: 2", f"  {manager.definition}:", f'    "{manager.name}":')
    return MARK + "".join(f"{row}\n" for row in (*rows, f"      mtu: {mtu}"))


def of_networkd(manager: LinkManager, interface: str, mtu: int) -> Actions:
    """A drop-in of the .network file in force."""
    match = NETWORK_FILE.fullmatch(manager.path)
    if match is None:
        raise FixError(f"{manager.path[:100]!r} is not a file that outlasts a reboot")
    require_unset(manager, networkd_text(manager.mtu or ""))
    path = f"/etc/systemd/network/{match[1]}.d/{OWN_DROP_IN}"
    return (WriteFile(path=path, content=networkd_text(mtu)),)


def networkd_text(mtu: int | str) -> str:
    return f"{MARK}[Link]\nMTUBytes={mtu}\n"


def require_unset(manager: LinkManager, own: str) -> None:
    """Raises FixError if the configured MTU is not that of `own`, a file as nodevet writes it."""
    if manager.own is None:
        raise FixError(f"nodevet's own file: {manager.why('own')}")
    if manager.mtu and manager.own != own:
        raise FixError(f"its configuration says mtu {manager.mtu[:20]}: change it there")


WRITERS = {
    "netplan": of_netplan,
    "systemd-networkd": of_networkd,
}
