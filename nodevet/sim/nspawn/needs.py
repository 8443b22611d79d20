"""What simulated nodes need of this machine, and how to get what is missing."""

import os
import shutil
from collections.abc import Iterator
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
HEADERS = {"/usr/include/fuse3/fuse.h": "libfuse3-dev", "/usr/include/stdio.h": "libc6-dev"}
INIT = Path("/usr/lib/systemd/systemd")
SBIN = "/usr/sbin:/sbin:/usr/local/sbin"


class NeedError(Exception):
    """Nodes cannot be simulated here; the message says what is missing and how to get it."""


def program(name: str) -> str | None:
    """Where a program is, also below sbin, which is not on every PATH."""
    return shutil.which(name) or shutil.which(name, path=SBIN)


def missing() -> tuple[str, ...]:
    """What is missing, a sentence each; empty where nodes can be simulated."""
    return tuple(_missing())


def _missing() -> Iterator[str]:
    if os.geteuid() != 0:
        yield "simulated nodes need root (namespaces, mounts): run it with sudo"
    packages = {package for name, package in PROGRAMS.items() if program(name) is None}
    packages |= {package for path, package in HEADERS.items() if not Path(path).exists()}
    if not INIT.exists():
        packages.add("systemd")
    if packages:
        wanted = " ".join(sorted(packages))
        yield f"not installed: {wanted} (Debian, Ubuntu: apt install {wanted})"
    if not Path("/dev/fuse").exists():
        yield "no /dev/fuse: load the module (modprobe fuse), or let this container have it"
    filesystems = Path("/proc/filesystems").read_text(encoding="ascii").split()
    if "overlay" not in filesystems and os.geteuid() == 0:
        yield "the kernel has no overlay file system: load the module (modprobe overlay)"


def check() -> None:
    """Raises NeedError, all that is missing in one message."""
    found = missing()
    if found:
        raise NeedError("; ".join(found))
