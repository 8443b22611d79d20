"""What simulated nodes need of this machine, and how to get what is missing."""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROGRAMS = {  # program -> package on Debian and Ubuntu
    "systemd-nspawn": "systemd-container",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "mount": "mount",
    "gcc": "gcc",
    "pkg-config": "pkg-config",
    "fusermount3": "fuse3",
}
FILES = {
    "/usr/bin/python3": "python3",  # nodes see nothing of /usr/local
    "/usr/include/fuse3/fuse.h": "libfuse3-dev",
    "/usr/include/stdio.h": "libc6-dev",
}
INOTIFY = Path("/proc/sys/fs/inotify/max_user_instances")
INOTIFY_EACH = 3  # of a node: its systemd has two, D-Bus one
INIT = Path("/usr/lib/systemd/systemd")
SBIN = "/usr/sbin:/sbin:/usr/local/sbin"


class NeedError(Exception):
    """Nodes cannot be simulated here; the message says what is missing and how to get it."""


def program(name: str) -> str | None:
    """The path of a program, also below sbin, which is not on every PATH."""
    return shutil.which(name) or shutil.which(name, path=SBIN)


def missing() -> tuple[str, ...]:
    """What is missing, a sentence each; empty if nodes can be simulated."""
    return tuple(_missing())


def _missing() -> Iterator[str]:
    if os.geteuid() != 0:
        yield "simulated nodes need root (namespaces, mounts); run this with sudo"
    packages = {package for name, package in PROGRAMS.items() if program(name) is None}
    packages |= {package for path, package in FILES.items() if not Path(path).exists()}
    if not INIT.exists():
        packages.add("systemd")
    if packages:
        names = " ".join(sorted(packages))
        yield f"not installed: {names} (Debian, Ubuntu: apt install {names})"
    if not Path("/dev/fuse").exists():
        yield (
            "/dev/fuse is missing: load the module (modprobe fuse), "
            "or pass the device to this container"
        )
    filesystems = Path("/proc/filesystems").read_text(encoding="ascii").split()
    if "overlay" not in filesystems and os.geteuid() == 0:
        yield "the kernel does not support overlayfs: load the module (modprobe overlay)"


def check(nodes: int) -> None:
    """Raises NeedError, with all reasons in one message, if this machine cannot simulate so many
    nodes.
    """
    reasons = missing() or tuple(_no_room(nodes))
    if reasons:
        raise NeedError("; ".join(reasons))


def _no_room(nodes: int) -> Iterator[str]:
    """inotify(7) instances are counted for each user, and every node is of the same one."""
    limit = int(INOTIFY.read_text(encoding="ascii"))
    free, needed = limit - _inotify_instances(), nodes * INOTIFY_EACH
    if needed > free:
        more = max(1024, 2 * (limit - free + needed))
        yield (
            f"{nodes} nodes need {needed} inotify instances, but only {free} of {limit} are free: "
            f"sysctl -w fs.inotify.max_user_instances={more}"
        )


def _inotify_instances() -> int:
    """How many the processes of root have."""
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended
            if process.stat().st_uid == 0:
                links = (entry.readlink() for entry in (process / "fd").iterdir())
                count += sum(str(link) == "anon_inode:inotify" for link in links)
    return count
