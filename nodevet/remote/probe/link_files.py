"""The .link file that systemd-udevd applies to a network interface, and the ring sizes in it.

systemd.link(5): udev applies the first file, by name, that matches, whoever configures the
interface, with the file's drop-ins. udev's database, /run/udev/data, names it.
"""

import os
import re

from nodevet.remote.probe.files import Reading, names_or_empty, read
from nodevet.remote.probe.link_configs import OWN_DROP_IN, drop_ins, text_or_empty

DATABASE = "/run/udev/data"
OWN_LINK = "/etc/systemd/network/50-nodevet-rings-{}.link"
KEYS = {"RxBufferSize": "ring_rx", "TxBufferSize": "ring_tx"}
PROPERTY = re.compile(r"^E:(ID_NET_LINK_FILE|ID_PATH)=(.*)$", re.M)


def properties(root: str) -> "dict[str, dict[str, str]]":
    """{index of an interface: {ID_NET_LINK_FILE, ID_PATH}} of udev's database. Raises OSError,
    ValueError."""
    return {
        name[1:]: dict(PROPERTY.findall(read(root, "{}/{}".format(DATABASE, name))))
        for name in names_or_empty(root, DATABASE)
        if re.match(r"n[0-9]+\Z", name)
    }


def parse_sizes(text: str) -> "dict[str, str]":
    """The ring sizes that a .link file or a drop-in sets.

    >>> parse_sizes("[Link]\\nRxBufferSize = 8192\\n#TxBufferSize=1\\n")
    {'ring_rx': '8192'}
    """
    rows = (row.partition("=") for row in text.split("\n"))
    return {KEYS[key.strip()]: value.strip() for key, _, value in rows if key.strip() in KEYS}


def link_file(
    root: str, interface: str, index: str, udev: "dict[str, dict[str, str]]"
) -> "Reading":
    """The record of the file that udev has in force for an interface. Raises OSError,
    ValueError."""
    own = udev.get(index, {})
    path, id_path = own.get("ID_NET_LINK_FILE", ""), own.get("ID_PATH", "")
    record = Reading(path=path, id_path=id_path, text="", others=[], ring_rx="", ring_tx="", own="")
    record["shared_by"] = sum(each.get("ID_NET_LINK_FILE") == path for each in udev.values())
    record["same_id_path"] = sum(each.get("ID_PATH") == id_path for each in udev.values())
    if not path:
        return record
    record["text"] = read(root, path)
    added = "/etc/systemd/network/{}.d/{}".format(os.path.basename(path), OWN_DROP_IN)
    is_own = path == OWN_LINK.format(interface)
    record["own"] = record["text"] if is_own else text_or_empty(root, added)
    paths = drop_ins(root, path)
    record["others"] = [name for name in paths if name != added]
    for text in [record["text"]] + [read(root, name) for name in paths]:
        record.update(parse_sizes(str(text)))
    return record
