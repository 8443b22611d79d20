"""Whether dpkg or rpm is changing packages right now: what their databases say then passes."""

import errno
import fcntl
import os
import re
import struct

from nodevet.remote.probe.files import (
    SectionError,
    TransientError,
    attempt,
    names,
    path_under,
    read,
)

UPDATES = "/var/lib/dpkg/updates"  # what dpkg has done and not yet written into the status file
JOURNAL = re.compile(r"[0-9]+\Z")
DPKG_LOCKS = ("/var/lib/dpkg/lock", "/var/lib/dpkg/lock-frontend")
RPM_LOCKS = ("/var/lib/rpm/.rpm.lock", "/usr/lib/sysimage/rpm/.rpm.lock")
HALFWAY = ("half-installed", "unpacked", "half-configured", "triggers-awaited", "triggers-pending")
AT_WORK = "the package manager is at work"
INTERRUPTED = (
    "dpkg was interrupted: {} is not empty; `dpkg --configure -a` finishes its work".format(UPDATES)
)
FLOCK = "hhqqi4x"  # struct flock of fcntl(2) on 64-bit Linux
ROW = re.compile(r"POSIX +\S+ +WRITE +[0-9-]+ ([0-9a-f]+):([0-9a-f]+):([0-9]+) ")


def is_unfinished(root: str) -> bool:
    """Whether dpkg is at work, or was interrupted, so that its status file is not whole. Raises
    OSError."""
    try:
        entries = names(root, UPDATES)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return any(JOURNAL.match(name) for name in entries)


def is_at_work(root: str) -> bool:
    """Whether a process holds a lock of dpkg's or rpm's to write; never in the tree of another
    machine."""
    return root == "/" and any(map(is_held, DPKG_LOCKS + RPM_LOCKS))


def refuse_unfinished(root: str) -> None:
    """Raise TransientError if dpkg works, so that its status file is not whole; SectionError
    if dpkg was interrupted. Raises OSError."""
    if is_unfinished(root):
        if is_at_work(root):
            raise TransientError(AT_WORK)
        if is_unfinished(root):  # not because dpkg ended meanwhile
            raise SectionError(INTERRUPTED)


def is_held(path: str) -> bool:
    """Whether a process has locked a file to write it: by the kernel, or if this user may not open
    the file, by the list of all locks."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError as error:
        return error.errno in (errno.EACCES, errno.EPERM) and is_listed(path)
    try:
        asked = struct.pack(FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
        kind: int = struct.unpack(FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, asked))[0]
        return kind != fcntl.F_UNLCK
    finally:
        os.close(file)


def is_listed(path: str) -> bool:
    """Whether /proc/locks has a lock to write of a file, by its device and inode. A device without
    a major number, as of btrfs and overlayfs, has another number there: then by its inode."""
    file = attempt(lambda: os.stat(path_under("/", path)))[0]
    rows = ROW.findall(attempt(read, "/", "/proc/locks")[0] or "")
    return file is not None and any(
        int(inode) == file.st_ino
        and (not os.major(file.st_dev) or os.makedev(int(major, 16), int(minor, 16)) == file.st_dev)
        for major, minor, inode in rows
    )
