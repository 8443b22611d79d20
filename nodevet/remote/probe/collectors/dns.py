"""The resolver: /etc/resolv.conf, resolv.conf(5); and whether names resolve that a baseline names.

Behind systemd-resolved's stub its own list of the real nameservers is read. Names are resolved as
programs do it, with getaddrinfo(3), all at once in a process of their own, for it may hang.
"""

import json
import re
import sys
import time

from nodevet.remote.probe.files import Reading, attempt, hold_etc, read
from nodevet.remote.program import ToolError, printed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

CONFIG = "/etc/resolv.conf"
UPSTREAM = "/run/systemd/resolve/resolv.conf"
STUBS = ("127.0.0.53", "127.0.0.54")  # systemd-resolved(8)
SECONDS = 10.0  # for all names
SPARE = 2.0  # seconds of the section that they do not have
OUTPUT = 1 << 20  # bytes
END = re.compile("[;#]")  # what ends an address, res_init.c
MOST = 32  # nameservers, search domains, addresses of a name
RESOLVE = """
import json, os, socket, sys, threading, time
names, seconds, most = sys.argv[3:], float(sys.argv[1]), int(sys.argv[2])
begun, found = time.monotonic(), {}
def resolve(name):
    try:
        rows = socket.getaddrinfo(name, None, 0, socket.SOCK_STREAM)
        told = {"addresses": list(dict.fromkeys(row[4][0] for row in rows))[:most], "why": ""}
    except Exception as error:
        told = {"addresses": [], "why": str(getattr(error, "strerror", None) or error)[:200]}
    found[name] = dict(told, seconds=time.monotonic() - begun)
threads = [threading.Thread(target=resolve, args=(name,)) for name in names]
for thread in threads:
    thread.daemon = True
    thread.start()
for thread in threads:
    thread.join(max(0.0, begun + seconds - time.monotonic()))
sys.stdout.write(json.dumps(dict(found)))
sys.stdout.flush()
os._exit(0)
"""


def ALONE(request: "dict[str, Any]") -> bool:  # noqa: N802
    """Whether names are resolved."""
    return bool(asked(request))


def asked(request: "dict[str, Any]") -> "list[str]":
    return sorted(set(request.get("asks", {}).get("dns", ())))


def parse_config(text: str) -> "tuple[list[str], list[str]]":
    """(nameservers, search domains); a keyword begins its row, and the last list counts.

    >>> parse_config("search a b\\nnameserver 10.0.0.2#x\\n;nameserver 1.1.1.1\\ndomain c")
    (['10.0.0.2'], ['c'])
    """
    servers, search = [], []
    for row in text.splitlines():
        words = row.split()
        if not words or row[0] not in "nsd" or len(words) < 2:
            continue
        if words[0] == "nameserver":
            servers.append(END.split(words[1])[0][:256])
        elif words[0] in ("search", "domain"):
            search = [word[:256] for word in words[1 : 2 if words[0] == "domain" else None]]
    if len(servers) > MOST or len(search) > MOST:
        raise ValueError("more than {} nameservers or search domains".format(MOST))
    return servers, search


def said(root: str, path: str) -> "tuple[list[str], list[str]]":
    """What a file says, row by row as it stands. Raises OSError, ValueError."""
    return parse_config(read(root, path))


def configured(root: str) -> "tuple[list[str], list[str]]":
    """What the resolver is told; nothing if there is no file. Raises OSError, ValueError."""
    try:
        return said(root, CONFIG)
    except FileNotFoundError:
        return [], []


def resolver(root: str) -> "Reading":
    """The nameservers, the search domains, and whether systemd-resolved stands between."""
    record = Reading()
    found, why = attempt(configured, root)
    if found is None:
        record.fail_all(("nameservers", "search", "stub"), why)
        return record
    servers, record["search"] = found
    record["stub"] = bool(servers) and all(server in STUBS for server in servers)
    if record["stub"]:
        upstream, why = attempt(said, root, UPSTREAM)
        if upstream is None:
            record.fail("nameservers", "{}: {}".format(UPSTREAM, why))
            return record
        servers = upstream[0]
    record["nameservers"] = servers
    return record


def looked_up(names: "Sequence[str]", seconds: float) -> "list[Reading]":
    """Each name with its addresses, why it has none, and how long that took."""
    told, why = None, ""
    words = (sys.executable, "-I", "-c", RESOLVE, str(seconds), str(MOST)) + tuple(names)
    try:
        text = printed(words, seconds + SPARE / 2, OUTPUT)
        told = json.loads(text)
    except (ToolError, ValueError) as error:
        why = str(error)[:200]
    found = []
    for name in names:
        record = Reading(name=name)
        if told is None:
            record.fail_all(("addresses", "why_not", "seconds"), why)
        else:
            answer = told.get(name) or {"addresses": [], "why": "", "seconds": seconds}
            late = "no answer within {:g} s".format(round(seconds, 1))
            record["addresses"] = answer["addresses"]
            record["why_not"] = answer["why"] if name in told else late
            record["seconds"] = round(answer["seconds"], 3)
        found.append(record)
    return found


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    hold_etc(root)
    record = resolver(root)
    names = asked(request)
    if names and root != "/":
        record.fail("names", "names are resolved on a running machine only")
    else:
        left = request.get("end", time.monotonic() + request.get("deadline", 30.0))
        seconds = max(0.1, min(SECONDS, left - time.monotonic() - SPARE))
        record["names"] = looked_up(names, seconds) if names else []
    return record
