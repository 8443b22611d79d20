"""The keyfile of a profile of NetworkManager with an MTU and ring sizes, nm-settings-keyfile(5)."""

import re
from collections.abc import Mapping

from nodevet.evidence.link_managers import LinkManager
from nodevet.fixing.model import FixError
from nodevet.resource import Actions, RunCommand
from nodevet.resource.file import LOAD, WriteFile

KEYFILE = re.compile(r"/etc/NetworkManager/system-connections/[A-Za-z0-9][A-Za-z0-9_. @()-]{0,100}")
GROUPS = {
    name: re.compile(rf"\[(?:{names})\][ \t]*\n((?:[^\[\n][^\n]*\n|\n)*)")
    for name, names in (("ethernet", "ethernet|802-3-ethernet"), ("ethtool", "ethtool"))
}


def of_network_manager(manager: LinkManager, mtu: int | None, sizes: Mapping[str, int]) -> Actions:
    """The keyfile of the active profile with the MTU and the ring sizes; none if it has them.
    Raises FixError."""
    if not KEYFILE.fullmatch(manager.path):
        raise FixError(f"its profile {manager.path[:100]!r} is not a keyfile in /etc")
    if manager.text is None or None in (manager.mode, manager.owner, manager.group):
        raise FixError(f"{manager.path}: {manager.why('text')}")
    if mtu is not None and manager.mtu:
        raise FixError(f"its profile says mtu {manager.mtu[:20]}: change it there")
    before = f"{manager.text.rstrip()}\n"
    text = with_rings(before if mtu is None else with_mtu(before, mtu), sizes)
    if text == before:
        return ()
    return (
        WriteFile(
            path=manager.path,
            content=text,
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
    return with_rows(text, "ethernet", {"mtu": mtu})


def with_rings(text: str, sizes: Mapping[str, int]) -> str:
    """A keyfile with ring sizes in its group ethtool. Raises FixError if it has others.

    >>> with_rings("[connection]\\nid=a\\n", {"rx": 8192})
    '[connection]\\nid=a\\n\\n[ethtool]\\nring-rx=8192\\n'
    """
    group = GROUPS["ethtool"].search(text)
    rows = {}
    for side, size in sizes.items():
        key = f"ring-{side}"
        old = re.search(rf"(?m)^{key}[ \t]*=[ \t]*(.*)$", group[1]) if group else None
        if old and old[1].strip() != str(size):
            raise FixError(f"its profile says {key} {old[1][:20]}: change it there")
        if not old:
            rows[key] = size
    return with_rows(text, "ethtool", rows) if rows else text


def with_rows(text: str, name: str, rows: Mapping[str, int]) -> str:
    """A keyfile with these rows at the top of a group, instead of others with their keys."""
    added = "".join(f"{key}={value}\n" for key, value in rows.items())
    group = GROUPS[name].search(text)
    if group is None:
        return f"{text.rstrip()}\n\n[{name}]\n{added}"
    kept = re.sub(rf"(?m)^(?:{'|'.join(rows)})[ \t]*=[^\n]*\n", "", group[1])
    return f"{text[: group.start(1)]}{added}{kept}{text[group.end(1) :]}"
