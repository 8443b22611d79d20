"""The files by which a network interface gets its ring sizes at every boot.

NetworkManager sets those of its profile. For all others systemd-udevd does, by a .link file:
systemd-networkd, netplan and ifupdown have no setting for rings that nodevet could write.
"""

import posixpath
import re
from collections.abc import Mapping

from nodevet.evidence.link_managers import LinkFile, ManagedLink
from nodevet.fixing.link_mtu import MARK
from nodevet.fixing.model import FixError
from nodevet.remote.probe.link_configs import OWN_DROP_IN
from nodevet.remote.probe.link_files import OWN_LINK
from nodevet.resource.file import WriteFile

ADMIN_LINK = re.compile(
    r"(?:/etc/systemd/network|/run/systemd/network(?=/10-netplan-))"
    r"/([A-Za-z0-9][A-Za-z0-9_.@-]{0,100}\.link)"
)
ID_PATH = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,100}")
SECTION = re.compile(r"\[([A-Za-z0-9]+)\]$")
LINK_KEYS = {"rx": "RxBufferSize", "tx": "TxBufferSize"}

Sizes = Mapping[str, int]
"""rx, tx: descriptors."""


def link_actions(link: ManagedLink, sizes: Sizes, alike: int) -> tuple[WriteFile, ...]:
    """The .link file or drop-in by which udev sets them; none if it does already. Raises FixError.

    `alike`: how many interfaces of this .link file get these sizes."""
    file = link.link_file
    if file is None:
        raise FixError(f"its .link file: {link.why('link_file')}")
    if not file.path:
        raise FixError("systemd-udevd applies no .link file to it: nothing sets rings at boot")
    require_no_stanza(link, sizes)
    configured = {side: getattr(file, f"ring_{side}") for side in sizes}
    if all(configured[side] == str(size) for side, size in sizes.items()):
        return ()
    for side, value in configured.items():
        is_own = file.own.startswith(MARK) and f"{LINK_KEYS[side]}={value}\n" in file.own
        if value and not is_own:
            raise FixError(f"{file.path[:100]} or a drop-in of it says {LINK_KEYS[side]}="
                           f"{value[:20]}: change it there")  # fmt: skip
    own = OWN_LINK.format(link.name)
    if file.path == own:
        return (WriteFile(path=own, content=with_keys(file.text, sizes)),)
    match = ADMIN_LINK.fullmatch(file.path)
    if match and file.shared_by == alike:
        path = f"/etc/systemd/network/{match[1]}.d/{OWN_DROP_IN}"
        text = file.own if file.own.startswith(MARK) else f"{MARK}[Link]\n"
        return (WriteFile(path=path, content=with_keys(text, sizes)),)
    return (WriteFile(path=own, content=own_link(file, own, sizes)),)


def require_no_stanza(link: ManagedLink, sizes: Sizes) -> None:
    """Raises FixError if ethtool's hook of ifupdown sets other sizes than these, after udev."""
    for manager in link.managers or ():
        for side, size in sizes.items():
            if getattr(manager, f"ring_{side}") not in ("", str(size)):
                raise FixError(f"its stanza in {manager.path[:100]} says hardware-dma-ring-{side}")


def own_link(file: LinkFile, own: str, sizes: Sizes) -> str:
    """The file that udev applies to several interfaces, for this one alone. Raises FixError."""
    if file.others:
        raise FixError(f"{file.path[:100]}, which other interfaces share, has drop-ins")
    if not ID_PATH.fullmatch(file.id_path) or file.same_id_path != 1:
        raise FixError(f"{file.path[:100]} is of other interfaces too, and no ID_PATH of udev "
                       "tells this one from them")  # fmt: skip
    if posixpath.basename(own) >= posixpath.basename(file.path):
        raise FixError(
            f"{file.path[:100]}, which other interfaces share, sorts before nodevet's file"
        )
    return with_keys(f"{MARK}[Match]\nPath={file.id_path}\n\n{without_match(file.text)}", sizes)


def without_match(text: str) -> str:
    """The sections of a .link file but [Match], without comments; [Link] is always there.

    >>> without_match("# a\\n[Match]\\nOriginalName=*\\n\\n[Link]\\nNamePolicy=path\\n")
    '[Link]\\nNamePolicy=path\\n'
    """
    rows = [row.strip() for row in text.split("\n")]
    rows = [row for row in rows if row and row[0] not in "#;"]
    kept, section = [], ""
    for row in rows:
        match = SECTION.match(row)
        section = match[1] if match else section
        kept += [row] if section not in ("", "Match") else []
    return "\n".join(kept if "[Link]" in kept else [*kept, "[Link]"]) + "\n"


def with_keys(text: str, sizes: Sizes) -> str:
    """A .link file with these sizes at the top of its section [Link], instead of others."""
    for side in sizes:
        text = re.sub(rf"(?m)^{LINK_KEYS[side]}[ \t]*=.*\n", "", text)
    rows = "".join(f"{LINK_KEYS[side]}={size}\n" for side, size in sizes.items())
    return text.replace("[Link]\n", f"[Link]\n{rows}", 1)
