"""The ring sizes of a network interface, named by the interface."""

import errno
import re

from nodevet.remote.look import absent, present
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.probe.rings import ring_sizes

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}\Z")
GONE = (errno.ENODEV, errno.ENXIO)


def look(root: str, name: str) -> "dict[str, object]":
    """{rx, tx} in descriptors; absent if there is no such interface."""
    if NAME.match(name) is None:
        raise ValueError("not a valid name of an interface")
    try:
        sizes = ring_sizes(root, name)
    except OSError as error:
        if error.errno in GONE:
            return absent()
        raise
    return present({"rx": sizes["rx"], "tx": sizes["tx"]})


def patterns(root: str, name: str) -> "Patterns":
    """Commands that set ring sizes of this interface or of one that a variable names."""
    which = r"(?:{}(?![\w.-])|\S*[$%*?{{])".format(re.escape(name))
    return Patterns(r"\bethtool\s+(?:-G|--set-ring)\s+[\"']?" + which)
