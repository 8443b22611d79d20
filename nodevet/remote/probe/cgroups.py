"""The limits of a cgroup and what it has counted, of version 2 and of version 1.

Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst, scheduler/sched-bwc.rst.
"""

import os

from nodevet.remote.probe.files import attempt, integer, line, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterable, Sequence, TypeVar

    N = TypeVar("N", int, float)

V2 = "/sys/fs/cgroup"
UNLIMITED = 1 << 62  # memory.limit_in_bytes without a limit is near 2^63
LEVELS = 64  # of cgroups above one another


def hierarchies(text: str) -> "dict[str, str]":
    """{controller: path} of /proc/<pid>/cgroup; "" is that of version 2. Raises ValueError."""
    found = {}
    for row in text.splitlines():
        parts = row.split(":", 2)
        if len(parts) != 3:
            raise ValueError("not a row of /proc/<pid>/cgroup")
        for controller in parts[1].split(","):
            found[controller] = parts[2]
    return found


def above(path: str) -> "list[str]":
    """A cgroup's path and those above it, without the root.

    >>> above("/a/b")
    ['/a/b', '/a']
    """
    found: "list[str]" = []
    while path.strip("/") and len(found) < LEVELS:
        found.append(path)
        path = os.path.dirname(path)
    return found


def place_of(root: str, base: str, path: str) -> str:
    """The folder of a cgroup. A container sees its own as the root of what is mounted."""
    for each in (base + path, base):
        if os.path.isdir(root.rstrip("/") + each):
            return each
    raise ValueError("no cgroup {} in {}".format(path, base))


def flat(text: str) -> "dict[str, int]":
    """The numbers of a flat-keyed file, as cpu.stat has it."""
    found = {}
    for row in text.splitlines():
        words = row.split()
        if len(words) == 2:
            found[words[0]] = integer(words[1])
    return found


def quota_v2(text: str) -> "float | None":
    """CPUs that cpu.max allows; None without a limit. Raises ValueError."""
    quota, period = text.split()
    return None if quota == "max" else integer(quota) / float(integer(period))


def bytes_of(text: str) -> "int | None":
    """Bytes of memory.max or of memory.limit_in_bytes; None without a limit."""
    if text == "max":
        return None
    value = integer(text)
    return None if value >= UNLIMITED else value


def least(values: "Iterable[N | None]") -> "N | None":
    known = [value for value in values if value is not None]
    return min(known) if known else None


def along(
    root: str, base: str, path: str, name: str, parse: "Callable[[str], N | None]"
) -> "N | None":
    """The strictest limit of a cgroup and of those above it; one without the file has none.

    Raises OSError if no cgroup has the file, ValueError for one that does not parse.
    """
    return strictest(base, path, lambda place: parse(line(root, place + "/" + name)))


def strictest(base: str, path: str, limit: "Callable[[str], N | None]") -> "N | None":
    """The least of `limit(folder)` of a cgroup and of those above it, as `along`."""
    found, problem = [], None
    for each in above(path) or [path]:
        try:
            found.append(limit(base + each))
        except FileNotFoundError as error:
            problem = error
    if not found and problem is not None and path.strip("/"):
        return limit(base)  # of a container
    return least(found)


def numa_v2(text: str) -> "dict[str, int]":
    """{node: bytes} of anon and file in memory.numa_stat."""
    found: "dict[str, int]" = {}
    for row in text.splitlines():
        words = row.split()
        if words and words[0] in ("anon", "file"):
            add_nodes(found, words[1:], 1)
    return found


def numa_v1(text: str, page: int) -> "dict[str, int]":
    """{node: bytes} of hierarchical_total, else total, in memory.numa_stat of version 1."""
    rows = [row.split() for row in text.splitlines()]
    for kind in ("hierarchical_total=", "total="):
        for words in rows:
            if words and words[0].startswith(kind):
                found: "dict[str, int]" = {}
                add_nodes(found, words[1:], page)
                return found
    raise ValueError("no total in memory.numa_stat")


def add_nodes(found: "dict[str, int]", words: "Sequence[str]", unit: int) -> None:
    for word in words:
        node, _, count = word.partition("=")
        if node.startswith("N") and node[1:].isdigit():
            found[node[1:]] = found.get(node[1:], 0) + unit * integer(count)


class Cgroup(object):
    """Where the files of one process's cgroup are."""

    def __init__(self, root: str, text: str) -> None:
        """`text`: /proc/<pid>/cgroup. Raises ValueError."""
        self.root = root
        self.paths = hierarchies(text)
        if any("/.." in path for path in self.paths.values()):
            raise ValueError("it is outside of the namespace of cgroups that the probe is in")
        self.page = os.sysconf("SC_PAGE_SIZE")
        self.v2 = not {"cpu", "memory"} & set(self.paths)
        self.path = self.paths.get("", "") if self.v2 else self.v1_path()

    def v1_path(self) -> str:
        return self.paths.get("memory") or self.paths.get("cpu") or self.paths.get("") or "/"

    def base(self, controller: str) -> "tuple[str, str]":
        """(folder of the hierarchy, path in it) of a controller."""
        if self.v2:
            return V2, self.paths.get("", "/")
        if controller not in self.paths:
            raise ValueError("no hierarchy of cgroups has the controller " + controller)
        joined = {"cpu": "cpu,cpuacct", "cpuacct": "cpu,cpuacct"}
        for name in (controller, joined.get(controller, controller)):
            if os.path.isdir("{}/sys/fs/cgroup/{}".format(self.root.rstrip("/"), name)):
                return "/sys/fs/cgroup/" + name, self.paths[controller]
        raise ValueError("the hierarchy of {} is not mounted".format(controller))

    def file(self, controller: str, name: str) -> str:
        """The text of one of its files. Raises OSError, ValueError."""
        base, path = self.base(controller)
        return read(self.root, place_of(self.root, base, path) + "/" + name)

    def limit(self, controller: str, name: str, parse: "Callable[[str], N | None]") -> "N | None":
        base, path = self.base(controller)
        return along(self.root, base, path, name, parse)

    def cpu_quota(self) -> "float | None":
        """CPUs that it may use at most; None without a limit. Raises OSError, ValueError."""
        if self.v2:
            return self.limit("cpu", "cpu.max", quota_v2)
        base, path = self.base("cpu")
        return strictest(base, path, self.quota_v1)

    def quota_v1(self, place: str) -> "float | None":
        """CPUs that one cgroup of version 1 may use. Raises OSError, ValueError."""
        quota = integer(line(self.root, place + "/cpu.cfs_quota_us"))
        period = integer(line(self.root, place + "/cpu.cfs_period_us"))
        return None if quota < 0 else quota / float(period)

    def cpus(self) -> str:
        """As the nearest cgroup tells it that has the controller. Raises OSError, ValueError."""
        name = "cpuset.cpus.effective" if self.v2 else "cpuset.effective_cpus"
        base, path = self.base("cpuset")
        for each in above(path) + [""]:
            found = attempt(line, self.root, base + each + "/" + name)
            if found[1] != "ENOENT":
                break
        return line(self.root, base + each + "/" + name)

    def memory_limit_b(self) -> "int | None":
        if self.v2:
            hard = self.limit("memory", "memory.max", bytes_of)
            return least([hard, attempt(self.limit, "memory", "memory.high", bytes_of)[0]])
        return self.limit("memory", "memory.limit_in_bytes", bytes_of)

    def memory_used_b(self) -> int:
        return integer(
            self.file("memory", "memory.current" if self.v2 else "memory.usage_in_bytes")
        )

    def pages_b(self) -> "dict[str, int]":
        text = self.file("memory", "memory.numa_stat")
        return numa_v2(text) if self.v2 else numa_v1(text, self.page)

    def throttling(self) -> "dict[str, int | None]":
        """{periods, throttled, throttled_us} of cpu.stat. Raises OSError, ValueError."""
        found = flat(self.file("cpu", "cpu.stat"))
        us = found.get("throttled_usec")
        if us is None and "throttled_time" in found:
            us = found["throttled_time"] // 1000
        return {
            "periods": found.get("nr_periods"),
            "throttled": found.get("nr_throttled"),
            "throttled_us": us,
        }

    def memory_events(self) -> int:
        """How often its memory reached the limit. Raises OSError, ValueError."""
        if not self.v2:
            return integer(self.file("memory", "memory.failcnt"))
        found = flat(self.file("memory", "memory.events"))
        if "max" not in found:
            raise ValueError("no max in memory.events")
        return found["max"] + found.get("high", 0)

    def pressure(self, kind: str) -> str:
        """The text of cpu.pressure, io.pressure or memory.pressure; of version 2 only."""
        if not self.v2:
            raise ValueError("cgroups of version 1 have no pressure")
        return self.file(kind, kind + ".pressure")
