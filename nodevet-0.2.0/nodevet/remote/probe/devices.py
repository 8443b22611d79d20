"""What network interfaces and RDMA devices have in common: device, driver, counters."""

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
    """Whether a path exists, even as a dangling link."""
    folder = path_under(root, os.path.dirname(path))
    return os.path.lexists(os.path.join(folder, os.path.basename(path)))


def bus_id(root: str, path: str) -> str:
    """The PCI address of a class device; "" if it is on no PCI bus. Raises OSError if its path does
    not say."""
    has_device = exists(root, path + "/device")
    target = resolve(root, path + "/device" if has_device else path)
    if "/devices/" not in target:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    addresses = [part for part in target.split("/") if PCI_ADDRESS.match(part)]
    return addresses[-1] if addresses else ""


def link_target(root: str, folder: str, name: str) -> str:
    """The name that a link leads to; "" if there is no link. Raises OSError."""
    try:
        return link_name(root, folder + name)
    except FileNotFoundError:
        if not exists(root, folder.rstrip("/")):
            raise
        return ""


def counters(
    root: str, folder: str, wanted_names: "Iterable[str] | None" = None
) -> "list[dict[str, Any]]":
    """[{name, value}] of the counters in a directory: all, or `wanted_names` that this kernel has.
    Raises OSError, ValueError."""
    records = []
    for name in names(root, folder, COUNTERS) if wanted_names is None else wanted_names:
        value, why = attempt(parsed, root, folder + name, integer)
        if why is None:
            records.append({"name": name, "value": value})
        elif why != "ENOENT":
            records.append({"name": name, "value": None, "errors": {"value": why}})
    return records
