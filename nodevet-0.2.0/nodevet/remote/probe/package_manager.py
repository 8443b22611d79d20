"""Whether dpkg or rpm is changing packages, so that their databases are about to change."""

import errno
import fcntl
import os
import re
import struct

from nodevet.remote.probe.files import (
    SectionError,
    TransientError,
    attempt,
    names_or_empty,
    path_under,
    read,
)

UPDATES = "/var/lib/dpkg/updates"  # changes that are not in the status file yet
JOURNAL = re.compile(r"[0-9]+\Z")
DPKG_LOCKS = ("/var/lib/dpkg/lock", "/var/lib/dpkg/lock-frontend")
RPM_LOCKS = ("/var/lib/rpm/.rpm.lock", "/usr/lib/sysimage/rpm/.rpm.lock")
HALFWAY = ("half-installed", "unpacked", "half-configured", "triggers-awaited", "triggers-pending")
BUSY = "the package manager is at work"
INTERRUPTED = (
    "dpkg was interrupted: {} is not empty; `dpkg --configure -a` finishes its work".format(UPDATES)
)
FLOCK = "hhqqi4x"  # struct flock of fcntl(2) on 64-bit Linux
ROW = re.compile(r"POSIX +\S+ +WRITE +[0-9-]+ ([0-9a-f]+):([0-9a-f]+):([0-9]+) ")


def is_unfinished(root: str) -> bool:
    """Whether dpkg is busy or was interrupted: its status file is incomplete. Raises OSError."""
    return any(JOURNAL.match(name) for name in names_or_empty(root, UPDATES))


def is_busy(root: str) -> bool:
    """Whether a process holds dpkg's or rpm's write lock; False for the tree of another machine."""
    return root == "/" and any(map(is_held, DPKG_LOCKS + RPM_LOCKS))


def refuse_unfinished(root: str) -> None:
    """Raise TransientError if dpkg is busy, SectionError if it was interrupted, or OSError."""
    if is_unfinished(root):
        if is_busy(root):
            raise TransientError(BUSY)
        if is_unfinished(root):  # dpkg may have ended meanwhile
            raise SectionError(INTERRUPTED)


def is_held(path: str) -> bool:
    """Whether a process has a write lock of a file: by fcntl(2), or by /proc/locks if this user may
    not open the file."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        return error.errno in (errno.EACCES, errno.EPERM) and is_listed(path)
    try:
        request = struct.pack(FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
        kind: int = struct.unpack(FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, request))[0]
        return kind != fcntl.F_UNLCK
    finally:
        os.close(file)


def is_listed(path: str) -> bool:
    """Whether /proc/locks has a write lock of a file, by device and inode. A device without a major
    number (btrfs, overlayfs) has another number there: then by inode."""
    file = attempt(lambda: os.stat(path_under("/", path)))[0]
    rows = ROW.findall(attempt(read, "/", "/proc/locks")[0] or "")
    return file is not None and any(
        int(inode) == file.st_ino
        and (not os.major(file.st_dev) or os.makedev(int(major, 16), int(minor, 16)) == file.st_dev)
        for major, minor, inode in rows
    )
