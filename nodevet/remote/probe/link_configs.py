"""Who configures a network interface, and with which MTU, from the files of each manager.

NetworkManager's keyfiles (nm-settings-keyfile(5)), netplan's definitions (netplan-get(8)), the
.network file that systemd-networkd has in force (systemd.network(5)), ifupdown's interfaces(5).
"""

import os
import re
from fnmatch import fnmatchcase
from glob import glob

from nodevet.remote.probe.files import (
    Reading,
    names_or_empty,
    parsed,
    path_under,
    quote,
    read,
)
from nodevet.remote.program import ToolError, find_program, output_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

LINKS = "/run/systemd/netif/links"
NETWORK_FOLDERS = tuple(
    top + "/systemd/network" for top in ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")
)
OWN_DROP_IN = "50-nodevet.conf"
OWN_NETPLAN = "/etc/netplan/99-nodevet-mtu-{}.yaml"
INTERFACES = "/etc/network/interfaces"
MOST = 64  # files of ifupdown
FROM_NETPLAN = re.compile(
    r"/run/(?:systemd/network/10-netplan-(.+)\.network"
    r"|NetworkManager/system-connections/netplan-(.+)\.nmconnection)\Z"
)
NETPLAN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}\Z")
NETPLAN_ROW = re.compile(r"( *)([^\s:#-][^:]*):(?: (.*))?\Z")
SECRETS = ("psk", "password", "secret", "private-key", "wep-key", "pin")  # in keys of a keyfile
MTU_ROW = re.compile(r"mtu\s*[=: ]\s*(\S+)\Z", re.I)
STANZA_KEYS = {  # options of interfaces(5); the rings are of ethtool's hook in if-up.d
    "mtu": "mtu",
    "hardware-dma-ring-rx": "ring_rx",
    "hardware-dma-ring-tx": "ring_tx",
}
ETHERNET = ("ethernet", "802-3-ethernet")  # names of one group of a keyfile
NOT_MANAGED = ("unmanaged", "connected (externally)")  # states of NetworkManager


def output(program: str, *words: str) -> str:
    """What a program prints. Raises ValueError."""
    try:
        return output_of([find_program(program)] + list(words))
    except ToolError as error:
        raise ValueError(str(error))


def text_or_empty(root: str, path: str) -> str:
    """The text of a file; "" if there is none. Raises OSError, ValueError."""
    try:
        return read(root, path)
    except (FileNotFoundError, NotADirectoryError):
        return ""


# --- systemd-networkd -------------------------------------------------------------------


def parse_link(text: str) -> "str | None":
    """The .network file in force in systemd-networkd's record of an interface; None if it has not
    chosen one yet, "" if it leaves the interface alone.

    >>> parse_link("ADMIN_STATE=configured\\nNETWORK_FILE=/etc/systemd/network/a.network\\n")
    '/etc/systemd/network/a.network'
    """
    rows = dict(row.partition("=")[::2] for row in text.split("\n"))
    if rows.get("ADMIN_STATE") in ("unmanaged", "linger"):
        return ""
    return rows.get("NETWORK_FILE") or None


def networkd_files(root: str) -> "dict[str, str | None]":
    """{index: as `parse_link`} of the interfaces that systemd-networkd does not leave alone. Raises
    OSError, ValueError."""
    files = {index: parsed(root, LINKS + "/" + index, parse_link)
             for index in names_or_empty(root, LINKS)}  # fmt: skip
    return {index: path for index, path in files.items() if path != ""}


def drop_ins(root: str, path: str) -> "list[str]":
    """The drop-ins of a file, in the order of their names. Raises OSError."""
    paths: "dict[str, str]" = {}
    for folder in NETWORK_FOLDERS:
        place = "{}/{}.d".format(folder, os.path.basename(path))
        for name in names_or_empty(root, place):
            if name.endswith(".conf"):
                paths.setdefault(name, place + "/" + name)
    return [paths[name] for name in sorted(paths)]


def networkd_mtu(root: str, path: str) -> str:
    """MTUBytes of a .network file and its drop-ins; "" if none sets it. Raises OSError,
    ValueError."""
    mtu = ""
    for file in [path] + drop_ins(root, path):
        for row in read(root, file).split("\n"):
            key, equals, value = row.partition("=")
            if equals and key.strip() == "MTUBytes":
                mtu = value.strip()
    return mtu


def of_networkd(root: str, path: str, shared_by: int) -> "Reading":
    """The record of systemd-networkd."""
    record = Reading(manager="systemd-networkd", path=path, shared_by=shared_by)
    record.take("mtu", networkd_mtu, root, path)
    own = "/etc/systemd/network/{}.d/{}".format(os.path.basename(path), OWN_DROP_IN)
    record.take("own", text_or_empty, root, own)
    return record


# --- netplan ----------------------------------------------------------------------------


def parse_definitions(text: str) -> "dict[str, tuple[str, str]]":
    """{id: (kind of the definition, its MTU or "")} of what `netplan get` prints. Raises ValueError
    if two kinds have one id.

    >>> parse_definitions("network:\\n  bonds:\\n    b0:\\n      mtu: 9000\\n      routes:\\n")
    {'b0': ('bonds', '9000')}
    """
    definitions: "dict[str, tuple[str, str]]" = {}
    path: "list[tuple[int, str]]" = []
    for row in text.split("\n"):
        match = NETPLAN_ROW.match(row)
        if match is None:
            continue
        indent, key, value = len(match.group(1)), match.group(2).strip("'\""), match.group(3) or ""
        path = [entry for entry in path if entry[0] < indent] + [(indent, key)]
        keys = [name for _, name in path]
        if len(keys) == 3 and keys[2] in definitions:
            raise ValueError("netplan has two definitions {}".format(quote(keys[2])))
        if len(keys) == 3:
            definitions[keys[2]] = (keys[1], "")
        elif len(keys) == 4 and keys[3] == "mtu":
            definitions[keys[2]] = (keys[1], value.strip("'\" "))
    return definitions


def of_netplan(
    root: str, interface: str, record: "Reading", definitions: "dict[str, tuple[str, str]]"
) -> "Reading":
    """The record of netplan, if it generated the file of this record of another manager."""
    match = FROM_NETPLAN.match(str(record["path"]))
    if match is None:
        return record
    name = match.group(1) or match.group(2)
    plan = Reading(manager="netplan", path=record["path"], name=name, shared_by=record["shared_by"])
    if name in definitions:
        plan["definition"], plan["mtu"] = definitions[name]
    else:
        plan.fail("mtu", "netplan has no definition " + quote(name))
    plan.take("own", text_or_empty, root, OWN_NETPLAN.format(interface))
    return plan


# --- NetworkManager ---------------------------------------------------------------------


def fields(row: str) -> "list[str]":
    """The fields of a row of `nmcli -t`.

    >>> fields("ens1:a\\\\:b:c")
    ['ens1', 'a:b', 'c']
    """
    parts = re.findall(r"(?:^|:)((?:[^:\\]|\\.)*)", row)
    return [re.sub(r"\\(.)", r"\1", part) for part in parts]


def nm_profiles(active: str, devices: str) -> "dict[str, tuple[str, str]]":
    """{interface: (UUID, file)} of those that NetworkManager manages, ("", "") without an active
    profile, from the rows DEVICE, UUID, FILENAME and DEVICE, STATE."""
    by_device = {row[0]: (row[1], row[2]) for row in map(fields, active.split("\n"))
                 if len(row) == 3}  # fmt: skip
    states = [row for row in map(fields, devices.split("\n")) if len(row) == 2]
    return {name: by_device.get(name, ("", "")) for name, state in states
            if state not in NOT_MANAGED}  # fmt: skip


def nm_managed() -> "dict[str, tuple[str, str]]":
    """As `nm_profiles`. Raises ValueError."""
    terse = ("nmcli", "-t", "-e", "yes", "-f")
    active = output(*terse, "DEVICE,UUID,FILENAME", "connection", "show", "--active")
    return nm_profiles(active, output(*terse, "DEVICE,STATE", "device"))


def keyfile_mtu(text: str) -> str:
    """The MTU in a keyfile's group of Ethernet; "" if it is automatic.

    >>> keyfile_mtu("[connection]\\nid=a\\n[ethernet]\\nmtu=9000\\n[ipv4]\\n")
    '9000'
    """
    group, mtu = "", ""
    for row in text.split("\n"):
        if row.startswith("["):
            group = row.strip().strip("[]")
        match = MTU_ROW.match(row.strip())
        if match and group in ETHERNET:
            mtu = match.group(1)
    return "" if mtu in ("0", "auto") else mtu


def nm_text(root: str, path: str) -> str:
    """A keyfile without secrets. Raises OSError, ValueError."""
    text = read(root, path)
    keys = [row.partition("=")[0].lower() for row in text.split("\n")]
    if any(word in key for key in keys for word in SECRETS):
        raise ValueError("it may hold a secret")
    return text


def of_nm(root: str, uuid: str, path: str, shared_by: int) -> "Reading":
    """The record of NetworkManager."""
    record = Reading(manager="NetworkManager", name=uuid, path=path, shared_by=shared_by)
    if not path:
        record.fail_all(("mtu", "text"), "it has no active profile")
        return record
    record.take("mtu", lambda: keyfile_mtu(read(root, path)))
    record.take("text", nm_text, root, path)
    try:
        status = os.stat(path_under(root, path))
        record.update(mode=status.st_mode & 0o7777, owner=status.st_uid, group=status.st_gid)
    except OSError as error:
        record.fail_all(("mode", "owner", "group"), str(error.strerror))
    return record


# --- ifupdown ---------------------------------------------------------------------------


def stanzas(root: str) -> "Iterator[tuple[str, str, dict[str, str]]]":
    """(name or pattern, file, {mtu, ring_rx, ring_tx} as far as it sets them) of each `iface` of
    interfaces(5) and the files that it includes. Raises OSError, ValueError."""
    files, done = [INTERFACES], 0
    while done < len(files):
        if len(files) > MOST:
            raise ValueError("{} includes more than {} files".format(INTERFACES, MOST))
        path, name = files[done], ""
        options: "dict[str, str]" = {}
        done += 1
        for row in text_or_empty(root, path).replace("\\\n", " ").split("\n"):
            words = row.split()
            if words[:1] in (["source"], ["source-directory"]) and len(words) > 1:
                files += sorted(included(root, words[0], words[1], path))
            elif words[:1] == ["iface"] and len(words) > 1:
                if name:
                    yield name, path, options
                name, options = words[1], {}
            elif len(words) > 1 and words[0] in STANZA_KEYS:
                options[STANZA_KEYS[words[0]]] = words[1]
        if name:
            yield name, path, options


def included(root: str, word: str, pattern: str, path: str) -> "list[str]":
    """The files that a line of interfaces(5) includes."""
    place = os.path.normpath(os.path.join(os.path.dirname(path), pattern))
    found = glob(path_under(root, place) + ("/*" if word == "source-directory" else ""))
    top = len(root.rstrip("/"))
    return [name[top:] for name in found if os.path.isfile(name)]


def ifupdown(root: str) -> "list[tuple[str, str, dict[str, str]]]":
    """`stanzas`, if ifupdown is installed. Raises OSError, ValueError."""
    is_installed = any(os.path.exists(path_under(root, folder + "/ifup"))
                       for folder in ("/sbin", "/usr/sbin"))  # fmt: skip
    return list(stanzas(root)) if is_installed else []


def of_ifupdown(name: str, found: "list[tuple[str, str, dict[str, str]]]") -> "list[Reading]":
    """The record of ifupdown, if it has a stanza of this interface; of several the last."""
    unset = dict.fromkeys(STANZA_KEYS.values(), "")
    matching = [(path, options) for pattern, path, options in found if fnmatchcase(name, pattern)]
    return [Reading(manager="ifupdown", path=path, **dict(unset, **options))
            for path, options in matching[-1:]]  # fmt: skip
