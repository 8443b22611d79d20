"""Whether NCCL's RAS port of a job may be asked: who listens there, for how long, with which NCCL.

Versions of NCCL before 2.29.2 crashed when they were asked, and others while a job started. So
nothing connects until /proc has shown that every socket that listens at the address belongs to the
job, that its processes have run for minutes, and which NCCL they have loaded.
"""

import os
import re

from nodevet.remote.probe.apart import read_apart
from nodevet.remote.probe.collectors.process_activity import ranks_without_gpu, stat_of_pid
from nodevet.remote.probe.collectors.processes import PIDS
from nodevet.remote.probe.connections import Connections, end_of
from nodevet.remote.probe.files import (
    attempt,
    integer,
    line,
    names,
    parse_rows,
    read,
    read_bytes,
    text_lines,
)
from nodevet.remote.probe.job_names import rank_of, step_id
from nodevet.remote.probe.sleeps import LISTEN
from nodevet.remote.probe.watch import HZ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from nodevet.remote.probe.collectors.process_activity import WatchedProcess

LEAST = (2, 29, 2)  # NVIDIA/nccl#1762: an older one wrote beyond its memory when asked
YOUNG_S = 180.0
MAPS = 4 << 20  # bytes of /proc/PID/maps: 40,000 mappings
FILES_S = 5.0  # for the files of all processes that listen
LIBRARY = re.compile(r"(/.*)/libnccl\.so(?:\.(2\.[0-9]{1,4}\.[0-9]{1,4}))?(?:\.2)?\Z")
PACKAGE = re.compile(
    r"nvidia_nccl_cu[0-9]{1,3}-(2\.[0-9]{1,4}\.[0-9]{1,4})(?:\.[a-z0-9]{1,9})?\.dist-info\Z"
)
SITE = "/nvidia/nccl/lib"  # below site-packages: where NVIDIA's wheel has the library
NO_FIRST = "rank 0 of the job does not run on this host"
NOBODY = "no process listens at this address in the network namespace of rank 0"
FOREIGN = (
    "a process listens at this address that is not of the job, or whose files nodevet may not read"
)
YOUNG = "a process that listens began only {:.0f} s ago, and NCCL may still be starting up"
UNKNOWN = "nodevet could not read its version of NCCL: {}"
SEVERAL = "its processes have several versions of NCCL: {}"
OLD = "NCCL {} is older than 2.29.2, and asking has crashed jobs of such versions"


class Listener(object):
    """A port that may be asked: `host` is an IP address, `namespace` the path of one."""

    def __init__(self, host: str, port: int, namespace: "str | None", version: str) -> None:
        self.host = host
        self.port = port
        self.namespace = namespace  # None: this process's own
        self.version = version


def find_listener(root: str, options: "dict[str, Any]") -> "Listener":
    """The RAS port of the job, at the first of these addresses at which anybody listens. Raises
    OSError, and ValueError with the reason not to ask it."""
    processes = processes_of(root, options)
    first = next((each for each in processes if rank_of(each.variables[0] or {})[0] == 0), None)
    if first is None:
        raise ValueError(NO_FIRST)
    host, sockets = sockets_at(first.folder, options)
    connections = Connections("/")
    space = connections.namespace(first.folder)
    near = [each for each in processes if attempt(connections.namespace, each.folder)[0] == space]
    owners = owners_of(sockets, near)
    if owners.keys() != sockets:
        raise ValueError(FOREIGN)
    uptime = float(line(root, "/proc/uptime").split()[0])
    youngest = uptime - max(each.last["started"] for each in owners.values()) / float(HZ)
    if youngest < YOUNG_S:
        raise ValueError(YOUNG.format(max(0.0, youngest)))
    version = common_version({each.folder for each in owners.values()})
    is_own = space == os.readlink("/proc/self/ns/net")
    return Listener(host, options["port"], None if is_own else first.folder + "ns/net", version)


def processes_of(root: str, options: "dict[str, Any]") -> "list[WatchedProcess]":
    """The processes of the job that have a rank, the oldest first."""
    pids = [int(name) for name in names(root, "/proc", PIDS) if name.isdigit()]
    found = []
    for each in ranks_without_gpu(root, pids, options.get("job_ids") or ()):
        stat, _ = attempt(stat_of_pid, root, each.pid)
        cgroup, variables = each.cgroup[0], each.variables[0] or {}
        step = step_id(cgroup.path if cgroup else "", variables)
        is_of_step = options.get("step") in (None, "", step)
        uid, _ = attempt(lambda folder=each.folder: uid_of(folder))
        if stat and is_of_step and options.get("uid") in (None, uid):
            each.last.update(stat)
            found.append(each)
    return sorted(found, key=lambda each: (each.last["started"], each.pid))


def uid_of(folder: str) -> int:
    """The user of a process. Raises OSError, ValueError, LookupError."""
    return integer(parse_rows(read("/", folder + "status"))["Uid"].split()[0])


def sockets_at(folder: str, options: "dict[str, Any]") -> "tuple[str, set[str]]":
    """The first address at which anybody listens in the network namespace of the process in this
    folder, and the inodes of all sockets that do: several may share a port. Raises ValueError."""
    import socket

    # the kernel lists those that listen before all others, so they are in a table that is cut, too
    rows = Connections("/").rows(folder)
    listening = [(end_of(words[1]), words[9]) for words in rows if words[3] == LISTEN]
    for host in options["hosts"]:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        end = (socket.inet_pton(family, host), options["port"])
        sockets = {inode for at, inode in listening if at == end}
        if sockets:
            return host, sockets
    raise ValueError(NOBODY)


def owners_of(
    sockets: "set[str]", processes: "Iterable[WatchedProcess]"
) -> "dict[str, WatchedProcess]":
    """{inode: process}; a child that was forked holds the sockets of its parent, too, which is
    older."""
    targets = {"socket:[{}]".format(inode): inode for inode in sockets}
    owners: "dict[str, WatchedProcess]" = {}
    for each in processes:
        for name in attempt(names, "/", each.folder + "fd")[0] or ():
            target, _ = attempt(os.readlink, each.folder + "fd/" + name)
            if target in targets:
                owners.setdefault(targets[target], each)
        if len(owners) == len(sockets):
            break
    return owners


def common_version(folders: "set[str]") -> str:
    """The version of NCCL that the processes in these folders of /proc have loaded. Raises
    ValueError, also for a version that must not be asked."""
    readers = [lambda folder=folder: loaded_version(folder) for folder in sorted(folders)]
    versions: "set[str]" = set()
    for version, why in read_apart(readers, FILES_S):
        if version is None:
            raise ValueError(UNKNOWN.format(why))
        versions.add(version)
    if len(versions) > 1:
        raise ValueError(SEVERAL.format(", ".join(sorted(versions))))
    version = versions.pop()
    if tuple(map(int, version.split("."))) < LEAST:
        raise ValueError(OLD.format(version))
    return version


def loaded_version(folder: str) -> str:
    """The version of NCCL of the process in this folder of /proc, by the name of the library that
    it has mapped or of the package beside it. Raises OSError, ValueError."""
    maps = read_bytes("/", folder + "maps", MAPS + 1)
    if len(maps) > MAPS:
        raise ValueError("it has more than 40,000 mappings")
    rows = [row.split(None, 5) for row in text_lines(maps.decode("utf-8", "backslashreplace"))]
    paths = {row[5] for row in rows if len(row) == 6}
    matches = [match for match in map(LIBRARY.match, sorted(paths)) if match]
    if not matches:
        raise ValueError("it has mapped no file libnccl.so.2")
    versions = {match.group(2) or packaged_version(folder, match.group(1)) for match in matches}
    if len(versions) > 1:
        raise ValueError("it has mapped several: {}".format(", ".join(sorted(versions))))
    return versions.pop()


def packaged_version(folder: str, place: str) -> str:
    """The version of the Python package whose library is in this place, by the name of its folder
    of metadata. Raises OSError, ValueError."""
    if not place.endswith(SITE):
        raise ValueError("neither the name of the file nor a package beside it has it")
    site = place[: -len(SITE)] or "/"
    matches = [match for match in map(PACKAGE.match, names(folder + "root", site)) if match]
    versions = {match.group(1) for match in matches}
    if len(versions) != 1:
        raise ValueError("{} packages of NCCL are beside the file".format(len(versions)))
    return versions.pop()
