"""What a network interface and an RDMA device say in the same way: device, driver, counters."""

import errno
import os
import re

from nodevet.remote.probe.files import (
    attempt,
    integer,
    link_name,
    names,
    parsed,
    path_under,
    resolve,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\Z")
COUNTERS = 256  # files in a directory of counters


def exists(root: str, path: str) -> bool:
    """Whether there is such a path, of whatever kind; a link that leads nowhere is one."""
    place = path_under(root, os.path.dirname(path))
    return os.path.lexists(os.path.join(place, os.path.basename(path)))


def bus_id(root: str, path: str) -> str:
    """The PCI address of the function that a device of a class lies on; empty if it is on no PCI
    bus. Raises OSError if its path does not say."""
    there = exists(root, path + "/device")
    place = resolve(root, path + "/device" if there else path)
    if "/devices/" not in place:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    found = [part for part in place.split("/") if PCI_ADDRESS.match(part)]
    return found[-1] if found else ""


def linked(root: str, folder: str, name: str) -> str:
    """The name that a link in a folder leads to; empty if there is none. Raises OSError."""
    try:
        return link_name(root, folder + name)
    except FileNotFoundError:
        if not exists(root, folder.rstrip("/")):
            raise
        return ""


def counters(
    root: str, folder: str, wanted: "Iterable[str] | None" = None
) -> "list[dict[str, Any]]":
    """The counters in a directory, those `wanted` or all, each as {name, value}. Raises OSError,
    ValueError. One that this kernel does not have is left out."""
    found = []
    for name in names(root, folder, COUNTERS) if wanted is None else wanted:
        value, why = attempt(parsed, root, folder + name, integer)
        if why is None:
            found.append({"name": name, "value": value})
        elif why != "ENOENT":
            found.append({"name": name, "value": None, "errors": {"value": why}})
    return found
