"""The kernel parameters that a baseline asks for, from /proc/sys; see sysctl(8)."""

import re

from nodevet.remote.probe.files import LINE, Reading, no_note, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_/:@+-]+)+\Z")
SECRET = re.compile(r"[_.](key|secret)\Z")  # tcp_fastopen_key, stable_secret
SWAPPED = str.maketrans("./", "/.")


def path_of(name: str) -> str:
    """The file of a parameter; / stands for a dot inside a part. Raises ValueError.

    >>> path_of("net.ipv4.conf.eth0/1.forwarding")
    '/proc/sys/net/ipv4/conf/eth0.1/forwarding'
    """
    parts = name.translate(SWAPPED).split("/")
    if not NAME.match(name) or not all(part.strip(".") for part in parts):
        raise ValueError("not a valid kernel parameter name")
    return "/proc/sys/" + "/".join(parts)


def value(root: str, name: str) -> str:
    """Its text, with single spaces. Raises OSError, ValueError."""
    path = path_of(name)
    if SECRET.search(name):
        raise ValueError("not read: it may hold a secret")
    text = " ".join(read(root, path).split())
    if len(text) > LINE:
        raise ValueError("longer than {} characters".format(LINE))
    return text


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", no_note)
    parameters = []
    for name in sorted(set(request.get("asks", {}).get("sysctl", ()))):
        note(name)
        parameter = Reading(name=name)
        parameter.take("value", value, root, name)
        parameters.append(parameter)
    return Reading(parameters=parameters)
