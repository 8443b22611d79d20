"""What a sleeping thread waits for: its system call, and the file, socket or epoll of its first
argument.

/proc/<pid>/task/<tid>/syscall, /proc/<pid>/{fd,fdinfo,mountinfo,net/tcp,net/tcp6}. Nothing
here asks a file system: a mount that hangs cannot hold nodevet up.
"""

import os
import re

from nodevet.remote.probe.connections import CALLS, Connections, end_of
from nodevet.remote.probe.files import Reading, attempt, integer, path_under, read_bytes
from nodevet.remote.probe.threads import read_small

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

    from nodevet.remote.probe.threads import WatchedThread

MOST = 8  # different sleeps that a log keeps for one thread
LARGEST = 1 << 20  # bytes of one table of the kernel: 7,000 connections
FDS = 256  # file descriptors that are read for one process
LISTEN, ESTABLISHED = "0A", "01"
NUMBERS = {  # of x86_64, and of the table that arm64 and riscv64 share
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "poll": (7, None),
    "ioctl": (16, 29),
    "pread64": (17, 67),
    "pwrite64": (18, 68),
    "readv": (19, 65),
    "writev": (20, 66),
    "select": (23, None),
    "sched_yield": (24, 124),
    "nanosleep": (35, 101),
    "accept": (43, 202),
    "sendto": (44, 206),
    "recvfrom": (45, 207),
    "sendmsg": (46, 211),
    "recvmsg": (47, 212),
    "vfork": (58, None),
    "clone": (56, 220),
    "clone3": (435, 435),
    "wait4": (61, 260),
    "flock": (73, 32),
    "fsync": (74, 82),
    "fdatasync": (75, 83),
    "futex": (202, 98),
    "io_getevents": (208, 4),
    "getdents64": (217, 61),
    "clock_nanosleep": (230, 115),
    "epoll_wait": (232, None),
    "waitid": (247, 95),
    "openat": (257, 56),
    "newfstatat": (262, 79),
    "pselect6": (270, 72),
    "ppoll": (271, 73),
    "epoll_pwait": (281, 22),
    "accept4": (288, 242),
    "preadv": (295, 69),
    "pwritev": (296, 70),
    "io_uring_enter": (426, 426),
    "epoll_pwait2": (441, 441),
}
WITH_FD = frozenset(
    "read write close ioctl pread64 pwrite64 readv writev accept accept4 sendto recvfrom sendmsg "
    "recvmsg flock fsync fdatasync getdents64 epoll_wait epoll_pwait epoll_pwait2 preadv pwritev "
    "io_uring_enter".split()
)
POLLS = ("poll", "ppoll", "select", "pselect6")
FAULT = "page fault"  # asleep outside of a system call
PRIVATE = 128  # of the second argument of futex(2): FUTEX_PRIVATE_FLAG
SOCKET = re.compile(r"socket:\[([0-9]{1,20})\]\Z")
TARGET = re.compile(rb"^tfd: +([0-9]{1,10}) ", re.MULTILINE)


def names_of(machine: str) -> "dict[int, str]":
    """{number of a system call: its name} on this kind of machine; empty for others."""
    places = {"x86_64": 0, "aarch64": 1, "riscv64": 1}
    if machine not in places:
        return {}
    numbers = {name: both[places[machine]] for name, both in NUMBERS.items()}
    return {number: name for name, number in numbers.items() if number is not None}


NAMES = names_of(os.uname().machine)


def parse_call(data: bytes) -> "tuple[str, int | None] | None":
    """(name or number of the system call, file descriptor of its first argument) of a `syscall`
    file; None for a thread that runs. Raises ValueError."""
    words = data.decode("ascii", "replace").split()
    if not words or words[0] == "running":
        return None
    if words[0] == "-1":
        return FAULT, None
    name = NAMES.get(integer(words[0]), str(integer(words[0])))
    if name == "futex" and len(words) > 2 and not int(words[2], 16) & PRIVATE:
        name = "shared futex"  # also that of pthread_join(3)
    fd = int(words[1], 16) if name in WITH_FD and len(words) > 1 else None
    return name, fd if fd is not None and fd < 1 << 31 else None


class SleepingProcess(object):
    """A process, its threads, and what these slept for."""

    def __init__(self, pid: int, folder: str, gpus: "list[int]") -> None:
        self.pid = pid
        self.folder = folder
        self.gpus = gpus
        self.threads: "list[WatchedThread]" = []
        self.sleeps: "dict[int, SleepLog]" = {}


def sleepers(processes: "Iterable[SleepingProcess]", most: int) -> "Iterable[SleepLog]":
    """The logs of at most `most` threads that the last look saw asleep: those of processes on a GPU
    first, then first threads, and resting ones last."""
    listed = []
    for process in processes:
        for thread in process.threads:
            if thread.states[-1:] in (["S"], ["D"]):
                rank = (not process.gpus, thread.tid != process.pid, thread.is_resting())
                listed.append((rank, process, thread.tid))
    listed.sort(key=lambda entry: entry[0])
    for _, process, tid in listed[:most]:
        yield process.sleeps.setdefault(tid, SleepLog(process.folder, tid))


def parse_fdinfo(data: bytes) -> "dict[str, str]":
    """{pos, mnt_id} of a fdinfo file."""
    rows = [row.partition(":") for row in data.decode("ascii", "replace").split("\n")]
    return {key: value.strip() for key, _, value in rows if key in ("pos", "mnt_id")}


def positions(sleep: "dict[str, Any]") -> "list[int]":
    """The first and the last position in the file of a sleep. Raises ValueError."""
    if "first" not in sleep:
        raise ValueError("the file was closed before nodevet read its position")
    return [integer(sleep["first"]), integer(sleep["last"])]


class SleepLog(object):
    """The system calls in which one thread was seen asleep."""

    def __init__(self, process_folder: str, tid: int) -> None:
        self.folder = process_folder
        self.call_path = "{}task/{}/syscall".format(process_folder, tid)
        self.sleeps: "dict[tuple[str, str], dict[str, Any]]" = {}
        self.why: "str | None" = None

    def look(self) -> None:
        """Count the call in which it sleeps now."""
        call, why = attempt(lambda: parse_call(read_small(self.call_path)))
        self.why = why
        if call is None:
            return
        name, fd = call
        target = "" if fd is None else self.target(fd)
        key = (name, target)
        if key not in self.sleeps and len(self.sleeps) >= MOST:
            return
        sleep = self.sleeps.setdefault(key, {"looks": 0, "fd": fd, "mnt_id": None})
        sleep["looks"] += 1
        if target.startswith("/"):
            info = attempt(lambda: read_small("{}fdinfo/{}".format(self.folder, fd)))[0] or b""
            rows = parse_fdinfo(info)
            if "pos" in rows:  # else the file is closed already
                sleep["mnt_id"] = rows.get("mnt_id")
                sleep.setdefault("first", rows["pos"])
                sleep["last"] = rows["pos"]

    def target(self, fd: int) -> str:
        link = "{}fd/{}".format(self.folder, fd)
        return (attempt(os.readlink, link)[0] or "").encode("utf-8", "backslashreplace").decode()

    def records(self, tables: "Tables") -> "list[Reading]":
        """The JSON form of nodevet.evidence.process_activity.Sleep, the most frequent first."""
        listed = sorted(self.sleeps.items(), key=lambda item: -item[1]["looks"])
        return [self.record(tables, name, target, sleep) for (name, target), sleep in listed]

    def record(
        self, tables: "Tables", name: str, target: str, sleep: "dict[str, Any]"
    ) -> "Reading":
        record = Reading(call=name, looks=sleep["looks"])
        if target.startswith("/"):
            record["path"] = target[:4096]
            record.take("positions", positions, sleep)
            record.update(attempt(tables.mount, sleep["mnt_id"])[0] or {})
        else:
            record.update(attempt(tables.connections, name, target, sleep["fd"])[0] or {})
        return record


class Tables(object):
    """The mounts and connections of one process. Each table is read once, when it is needed."""

    def __init__(self, root: str, pid: int, shared: "Connections | None" = None) -> None:
        """`shared`: by all processes, which mostly have the same connections."""
        self.root = root
        self.shared = shared or Connections(root)
        self.place = "/proc/{}/".format(pid)
        self.read_tables: "dict[str, bytes]" = {}

    def table(self, name: str) -> bytes:
        if name not in self.read_tables:
            data, _ = attempt(read_bytes, self.root, self.place + name, LARGEST)
            self.read_tables[name] = data or b""
        return self.read_tables[name]

    def mount(self, mount_id: str) -> "dict[str, str | None]":
        """{point, filesystem, disk} of a mount."""
        for row in self.table("mountinfo").split(b"\n"):
            words = row.decode("utf-8", "backslashreplace").split(" ")
            if words[:1] == [mount_id] and "-" in words:
                kind = words[words.index("-") + 1]
                return {"point": words[4], "filesystem": kind, "disk": self.disk(words[2])}
        return {}

    def disk(self, device: str) -> "str | None":
        """The disk of a device; of a partition, the whole disk; None without a disk, as for NFS."""
        link = "/sys/dev/block/" + device
        place = attempt(os.readlink, path_under(self.root, link))[0]
        if place is None or "/" not in place:
            return None
        parts = place.split("/")
        is_part = os.path.exists(path_under(self.root, link) + "/partition")
        return str(parts[-2] if is_part else parts[-1])

    def connections(self, call: str, target: str, fd: int) -> "dict[str, Any]":
        """{listens, peer, connections} of the sockets that a thread waits for in this call."""
        if call not in POLLS and not target:
            return {}
        inodes = {
            each.group(1) for each in map(SOCKET.match, self.targets(call, target, fd)) if each
        }
        if not inodes:
            return {"listens": False, "connections": 0} if call.startswith("epoll") else {}
        rows = self.shared.rows(self.place)
        own = [words for words in rows if words[9] in inodes]
        ports = {words[1].rpartition(":")[2] for words in rows if words[3] == LISTEN}
        open_rows = [words for words in own if words[3] == ESTABLISHED]
        served = [words for words in own if words[1].rpartition(":")[2] in ports]
        if self.shared.is_cut and not served:
            return {}
        found = Reading(listens=bool(served), connections=len(open_rows))
        if open_rows:
            found["peer"] = address(open_rows[0][2])
            if call in CALLS:
                found.take("tcp", self.shared.state, self.place, open_rows[0])
        return found

    def targets(self, call: str, target: str, fd: int) -> "list[str]":
        """The sockets that it waits for: one, those of an epoll, or for poll all open ones."""
        folder = path_under(self.root, self.place + "fd")
        if call in POLLS:
            fds = sorted(attempt(os.listdir, folder)[0] or ())[:FDS]
        elif call.startswith("epoll"):
            info = read_bytes(self.root, "{}fdinfo/{}".format(self.place, fd), LARGEST)
            fds = [each.decode() for each in TARGET.findall(info)[:FDS]]
        else:
            return [target]
        return [attempt(os.readlink, "{}/{}".format(folder, each))[0] or "" for each in fds]


def address(text: str) -> str:
    """`10.0.0.5:443` of an address of /proc/net/tcp. Raises ValueError."""
    import socket

    data, port = end_of(text)
    if len(data) == 16 and data[:12] == b"\0" * 10 + b"\xff\xff":
        data = data[12:]
    family = socket.AF_INET if len(data) == 4 else socket.AF_INET6
    name = socket.inet_ntop(family, data)
    return ("{}:{}" if len(data) == 4 else "[{}]:{}").format(name, port)
