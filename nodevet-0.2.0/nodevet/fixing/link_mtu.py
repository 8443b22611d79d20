"""The files by which the manager of a network interface sets its MTU at every boot."""

import re
from collections.abc import Mapping
from typing import TypeAlias

from nodevet.evidence.link_managers import LinkManager, ManagedLink
from nodevet.fixing.model import FixError
from nodevet.remote.probe.link_configs import NETPLAN_ID, OWN_DROP_IN, OWN_NETPLAN
from nodevet.resource import Actions, RunCommand
from nodevet.resource.file import LOAD, WriteFile

DEFINITIONS = ("ethernets", "bonds", "vlans")
NETWORK_FILE = re.compile(
    r"/(?:etc|usr/local/lib|usr/lib|lib)/systemd/network/([A-Za-z0-9][A-Za-z0-9_.@-]{0,100}\.network)"
)
KEYFILE = re.compile(r"/etc/NetworkManager/system-connections/[A-Za-z0-9][A-Za-z0-9_. @()-]{0,100}")
GROUP = re.compile(r"\[(?:ethernet|802-3-ethernet)\][ \t]*\n((?:[^\[\n][^\n]*\n|\n)*)")
MARK = "# Written by nodevet.\n"

Shares: TypeAlias = Mapping[tuple[str, int], int]
"""How many interfaces with one file in force get one MTU."""


def manager_of(link: ManagedLink) -> LinkManager:
    """The one program that configures an interface. Raises FixError."""
    if link.managers is None:
        raise FixError(f"nodevet could not read what configures it: {link.why('managers')}")
    if len(link.managers) != 1:
        found = " and ".join(manager.manager for manager in link.managers)
        raise FixError(
            f"{found} configure it: let only one do so" if found else
            "neither NetworkManager, netplan, systemd-networkd nor ifupdown configures it"
        )  # fmt: skip
    return link.managers[0]


def boot_actions(manager: LinkManager, interface: str, mtu: int, shares: Shares) -> Actions:
    """The actions that make the manager set the MTU at boot; none if it does. Raises FixError."""
    if manager.mtu is None:
        raise FixError(f"{manager.manager}: mtu: {manager.why('mtu')}")
    if manager.mtu == str(mtu):
        return ()
    if manager.manager == "ifupdown":
        raise FixError(f"add the line `mtu {mtu}` to its stanza in {manager.path[:100]}")
    if manager.manager not in WRITERS:
        raise FixError(f"nodevet does not know {manager.manager[:30]}")
    if manager.shared_by != shares[manager.path, mtu]:
        raise FixError(f"{manager.path[:100]} configures other interfaces too")
    return WRITERS[manager.manager](manager, interface, mtu)


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


def of_network_manager(manager: LinkManager, interface: str, mtu: int) -> Actions:
    """The keyfile of the active profile with the MTU."""
    if not KEYFILE.fullmatch(manager.path):
        raise FixError(f"its profile {manager.path[:100]!r} is not a keyfile in /etc")
    if manager.text is None or None in (manager.mode, manager.owner, manager.group):
        raise FixError(f"{manager.path}: {manager.why('text')}")
    if manager.mtu:
        raise FixError(f"its profile says mtu {manager.mtu[:20]}: change it there")
    return (
        WriteFile(
            path=manager.path,
            content=with_mtu(f"{manager.text.rstrip()}\n", mtu),
            mode=manager.mode or 0,
            owner=manager.owner or 0,
            group=manager.group or 0,
        ),
        RunCommand(words=(*LOAD, manager.path)),
    )


def with_mtu(text: str, mtu: int) -> str:
    """A keyfile with an MTU in its group of Ethernet.

    >>> with_mtu("[connection]\\nid=a\\n\\n[ethernet]\\n\\n[ipv4]\\n", 9000)
    '[connection]\\nid=a\\n\\n[ethernet]\\nmtu=9000\\n\\n[ipv4]\\n'
    """
    group = GROUP.search(text)
    if group is None:
        return f"{text.rstrip()}\n\n[ethernet]\nmtu={mtu}\n"
    kept = re.sub(r"(?m)^mtu[ \t]*=[^\n]*\n", "", group[1])
    return f"{text[: group.start(1)]}mtu={mtu}\n{kept}{text[group.end(1) :]}"


WRITERS = {
    "netplan": of_netplan,
    "systemd-networkd": of_networkd,
    "NetworkManager": of_network_manager,
}
