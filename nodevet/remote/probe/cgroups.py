"""The limits and counters of a cgroup, version 2 or 1.

Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/memory.rst, scheduler/sched-bwc.rst.
"""

import os

from nodevet.remote.probe.files import attempt, integer, line, read, text_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Iterable, Sequence, TypeVar

    N = TypeVar("N", int, float)

V2 = "/sys/fs/cgroup"
UNLIMITED = 1 << 62  # memory.limit_in_bytes without a limit is near 2^63
LEVELS = 64  # of nested cgroups


def hierarchies(text: str) -> "dict[str, str]":
    """{controller: path} of /proc/<pid>/cgroup; "" is version 2. Raises ValueError."""
    paths = {}
    for row in text_lines(text):
        parts = row.split(":", 2)
        if len(parts) != 3:
            raise ValueError("not a row of /proc/<pid>/cgroup")
        for controller in parts[1].split(","):
            paths[controller] = parts[2]
    return paths


def with_ancestors(path: str) -> "list[str]":
    """A cgroup's path and its ancestors' paths, without the root.

    >>> with_ancestors("/a/b")
    ['/a/b', '/a']
    """
    paths: "list[str]" = []
    while path.strip("/") and len(paths) < LEVELS:
        paths.append(path)
        path = os.path.dirname(path)
    return paths


def below_root(*paths: str) -> str:
    """The first path that is not the root.

    >>> below_root("/", "/slurm/job_1"), below_root("/", "")
    ('/slurm/job_1', '/')
    """
    return next((path for path in paths if path.strip("/")), "/")


def folder_of(root: str, base: str, path: str) -> str:
    """The folder of a cgroup; in a container its own cgroup is the mounted root."""
    for folder in (base + path, base):
        if os.path.isdir(root.rstrip("/") + folder):
            return folder
    raise ValueError("no cgroup {} in {}".format(path, base))


def parse_flat(text: str) -> "dict[str, int]":
    """{key: number} of a flat-keyed file such as cpu.stat."""
    numbers = {}
    for row in text_lines(text):
        words = row.split()
        if len(words) == 2:
            numbers[words[0]] = integer(words[1])
    return numbers


def quota_v2(text: str) -> "float | None":
    """CPUs of cpu.max; None without a limit. Raises ValueError."""
    quota, period = text.split()
    return None if quota == "max" else integer(quota) / float(integer(period))


def bytes_of(text: str) -> "int | None":
    """Bytes of memory.max or memory.limit_in_bytes; None without a limit."""
    if text == "max":
        return None
    value = integer(text)
    return None if value >= UNLIMITED else value


def lowest(values: "Iterable[N | None]") -> "N | None":
    limits = [value for value in values if value is not None]
    return min(limits) if limits else None


def strictest_of_file(
    root: str, base: str, path: str, name: str, parse: "Callable[[str], N | None]"
) -> "N | None":
    """The strictest limit of a cgroup and its ancestors; one without the file has no limit.

    Raises OSError if none has the file, ValueError if it does not parse.
    """
    return strictest(base, path, lambda place: parse(line(root, place + "/" + name)))


def strictest(base: str, path: str, limit: "Callable[[str], N | None]") -> "N | None":
    """The least `limit(folder)` of a cgroup and its ancestors: see `strictest_of_file`."""
    limits, problem = [], None
    for ancestor in with_ancestors(path) or [path]:
        try:
            limits.append(limit(base + ancestor))
        except FileNotFoundError as missing:
            problem = missing
    if not limits and problem is not None and path.strip("/"):
        return limit(base)  # in a container
    return lowest(limits)


def numa_v2(text: str) -> "dict[str, int]":
    """{node: bytes} of anon plus file in memory.numa_stat."""
    node_bytes: "dict[str, int]" = {}
    for row in text_lines(text):
        words = row.split()
        if words and words[0] in ("anon", "file"):
            add_nodes(node_bytes, words[1:], 1)
    return node_bytes


def numa_v1(text: str, page: int) -> "dict[str, int]":
    """{node: bytes} of hierarchical_total, else total, in version 1's memory.numa_stat."""
    rows = [row.split() for row in text_lines(text)]
    for kind in ("hierarchical_total=", "total="):
        for words in rows:
            if words and words[0].startswith(kind):
                node_bytes: "dict[str, int]" = {}
                add_nodes(node_bytes, words[1:], page)
                return node_bytes
    raise ValueError("no total in memory.numa_stat")


def add_nodes(node_bytes: "dict[str, int]", words: "Sequence[str]", unit: int) -> None:
    for word in words:
        node, _, count = word.partition("=")
        if node.startswith("N") and node[1:].isdigit():
            node_bytes[node[1:]] = node_bytes.get(node[1:], 0) + unit * integer(count)


class Cgroup(object):
    """The cgroup of one process."""

    def __init__(self, root: str, text: str) -> None:
        """`text`: /proc/<pid>/cgroup. Raises ValueError."""
        self.root = root
        self.paths = hierarchies(text)
        if any("/.." in path for path in self.paths.values()):
            raise ValueError("it is outside of the probe's cgroup namespace")
        self.page = os.sysconf("SC_PAGE_SIZE")
        self.v2 = not {"cpu", "memory"} & set(self.paths)
        memory, cpu = (self.paths.get(name, "") for name in ("memory", "cpu"))
        self.path = self.paths.get("", "") if self.v2 else below_root(memory, cpu)
        # in version 1, processes that share one of the two may have the other for themselves
        self.name = self.path if memory == cpu else "memory:{} cpu:{}".format(memory, cpu)

    def base(self, controller: str) -> "tuple[str, str]":
        """(folder of a controller's hierarchy, path in it)."""
        if self.v2:
            return V2, self.paths.get("", "/")
        if controller not in self.paths:
            raise ValueError("no hierarchy of cgroups has the controller " + controller)
        mount_names = {"cpu": "cpu,cpuacct", "cpuacct": "cpu,cpuacct"}
        for name in (controller, mount_names.get(controller, controller)):
            if os.path.isdir("{}/sys/fs/cgroup/{}".format(self.root.rstrip("/"), name)):
                return "/sys/fs/cgroup/" + name, self.paths[controller]
        raise ValueError("the hierarchy of {} is not mounted".format(controller))

    def file(self, controller: str, name: str) -> str:
        """The text of a file. Raises OSError, ValueError."""
        base, path = self.base(controller)
        return read(self.root, folder_of(self.root, base, path) + "/" + name)

    def limit(self, controller: str, name: str, parse: "Callable[[str], N | None]") -> "N | None":
        base, path = self.base(controller)
        return strictest_of_file(self.root, base, path, name, parse)

    def cpu_quota(self) -> "float | None":
        """The most CPUs that it may use; None without a limit. Raises OSError, ValueError."""
        if self.v2:
            return self.limit("cpu", "cpu.max", quota_v2)
        base, path = self.base("cpu")
        return strictest(base, path, self.quota_v1)

    def quota_v1(self, folder: str) -> "float | None":
        """CPUs that a cgroup of version 1 may use. Raises OSError, ValueError."""
        quota = integer(line(self.root, folder + "/cpu.cfs_quota_us"))
        period = integer(line(self.root, folder + "/cpu.cfs_period_us"))
        return None if quota < 0 else quota / float(period)

    def cpus(self) -> str:
        """The CPUs of the nearest cgroup with a cpuset. Raises OSError, ValueError."""
        name = "cpuset.cpus.effective" if self.v2 else "cpuset.effective_cpus"
        base, path = self.base("cpuset")
        for ancestor in with_ancestors(path) + [""]:
            result = attempt(line, self.root, base + ancestor + "/" + name)
            if result[1] != "ENOENT":
                break
        return line(self.root, base + ancestor + "/" + name)

    def memory_limit_b(self) -> "int | None":
        if self.v2:
            max_b = self.limit("memory", "memory.max", bytes_of)
            return lowest([max_b, attempt(self.limit, "memory", "memory.high", bytes_of)[0]])
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
        counters = parse_flat(self.file("cpu", "cpu.stat"))
        us = counters.get("throttled_usec")
        if us is None and "throttled_time" in counters:
            us = counters["throttled_time"] // 1000
        return {
            "periods": counters.get("nr_periods"),
            "throttled": counters.get("nr_throttled"),
            "throttled_us": us,
        }

    def memory_events(self) -> int:
        """How often it reached its memory limit. Raises OSError, ValueError."""
        if not self.v2:
            return integer(self.file("memory", "memory.failcnt"))
        counters = parse_flat(self.file("memory", "memory.events"))
        if "max" not in counters:
            raise ValueError("no max in memory.events")
        return counters["max"] + counters.get("high", 0)

    def pressure(self, kind: str) -> str:
        """The text of cpu.pressure, io.pressure or memory.pressure, in version 2."""
        if not self.v2:
            raise ValueError("cgroups of version 1 have no pressure")
        return self.file(kind, kind + ".pressure")
