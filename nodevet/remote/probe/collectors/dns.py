"""The resolver: /etc/resolv.conf, resolv.conf(5); and whether a baseline's names resolve.

Behind systemd-resolved's stub it reads the list of the real nameservers. A separate process, which
may hang, resolves all names at once with getaddrinfo(3).
"""

import json
import re
import sys
import time

from nodevet.remote.probe.files import Reading, attempt, hold_etc, read, text_lines
from nodevet.remote.program import ToolError, output_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

CONFIG = "/etc/resolv.conf"
UPSTREAM = "/run/systemd/resolve/resolv.conf"
STUBS = ("127.0.0.53", "127.0.0.54")  # systemd-resolved(8)
SECONDS = 10.0  # for all names
SPARE = 2.0  # seconds of the section that they do not get
OUTPUT = 1 << 20  # bytes
END = re.compile("[;#]")  # what ends an address, res_init.c
MOST = 32  # nameservers, search domains, addresses of a name
RESOLVE = """
import json, os, socket, sys, threading, time
names, seconds, most = sys.argv[3:], float(sys.argv[1]), int(sys.argv[2])
start, answers = time.monotonic(), {}
def resolve(name):
    try:
        rows = socket.getaddrinfo(name, None, 0, socket.SOCK_STREAM)
        answer = {"addresses": list(dict.fromkeys(row[4][0] for row in rows))[:most], "why": ""}
    except Exception as error:
        answer = {"addresses": [], "why": str(getattr(error, "strerror", None) or error)[:200]}
    answers[name] = dict(answer, seconds=time.monotonic() - start)
threads = [threading.Thread(target=resolve, args=(name,)) for name in names]
for thread in threads:
    thread.daemon = True
    thread.start()
for thread in threads:
    thread.join(max(0.0, start + seconds - time.monotonic()))
sys.stdout.write(json.dumps(dict(answers)))
sys.stdout.flush()
os._exit(0)
"""


def ALONE(request: "dict[str, Any]") -> bool:  # noqa: N802
    """Resolving may hang."""
    return bool(asked_names(request))


def asked_names(request: "dict[str, Any]") -> "list[str]":
    return sorted(set(request.get("asks", {}).get("dns", ())))


def parse_config(text: str) -> "tuple[list[str], list[str]]":
    """(nameservers, search domains); a keyword begins its row, the last list wins.

    >>> parse_config("search a b\\nnameserver 10.0.0.2#x\\n;nameserver 1.1.1.1\\ndomain c")
    (['10.0.0.2'], ['c'])
    """
    servers, search = [], []
    for row in text_lines(text):
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


def read_config(root: str, path: str) -> "tuple[list[str], list[str]]":
    """`parse_config` of a file. Raises OSError, ValueError."""
    return parse_config(read(root, path))


def configuration(root: str) -> "tuple[list[str], list[str]]":
    """The resolver's configuration; empty without the file. Raises OSError, ValueError."""
    try:
        return read_config(root, CONFIG)
    except FileNotFoundError:
        return [], []


def resolver(root: str) -> "Reading":
    """The nameservers, the search domains, and whether they are behind systemd-resolved."""
    record = Reading()
    config, why = attempt(configuration, root)
    if config is None:
        record.fail_all(("nameservers", "search", "stub"), why)
        return record
    servers, record["search"] = config
    record["stub"] = bool(servers) and all(server in STUBS for server in servers)
    if record["stub"]:
        upstream, why = attempt(read_config, root, UPSTREAM)
        if upstream is None:
            record.fail("nameservers", "{}: {}".format(UPSTREAM, why))
            return record
        servers = upstream[0]
    record["nameservers"] = servers
    return record


def look_up(names: "Sequence[str]", seconds: float) -> "list[Reading]":
    """Each name with its addresses or why it has none, and the seconds it took."""
    answers, why = None, ""
    argv = (sys.executable, "-I", "-c", RESOLVE, str(seconds), str(MOST)) + tuple(names)
    try:
        text = output_of(argv, seconds + SPARE / 2, OUTPUT)
        answers = json.loads(text)
    except (ToolError, ValueError) as error:
        why = str(error)[:200]
    records = []
    for name in names:
        record = Reading(name=name)
        if answers is None:
            record.fail_all(("addresses", "why_not", "seconds"), why)
        else:
            answer = answers.get(name) or {"addresses": [], "why": "", "seconds": seconds}
            timeout = "no answer within {:g} s".format(round(seconds, 1))
            record["addresses"] = answer["addresses"]
            record["why_not"] = answer["why"] if name in answers else timeout
            record["seconds"] = round(answer["seconds"], 3)
        records.append(record)
    return records


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    hold_etc(root)
    record = resolver(root)
    names = asked_names(request)
    if names and root != "/":
        record.fail("names", "names are resolved on a running machine only")
    else:
        end = request.get("end", time.monotonic() + request.get("deadline", 30.0))
        seconds = max(0.1, min(SECONDS, end - time.monotonic() - SPARE))
        record["names"] = look_up(names, seconds) if names else []
    return record
