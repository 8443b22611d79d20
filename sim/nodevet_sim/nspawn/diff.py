"""What has changed on a node's disk since its first boot.

Only the upper layer of its overlay is walked: everything else is as on this machine. The current
state of a path comes from the overlay itself, so that copies of lower files, and files that were
only copied up, are not changes.
"""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

OF_SYSTEMD = {  # paths that may differ, with all below them: who writes there while a node runs
    "/etc/.updated": "systemd-update-done, at the first boot",
    "/var/.updated": "systemd-update-done, at the first boot",
    "/var/cache/ldconfig": "ldconfig, at the first boot",
    "/var/lib/private": "systemd, for units with DynamicUser=",
    "/var/lib/systemd/catalog": "systemd-journal-catalog-update, at the first boot",
    "/var/lib/systemd/coredump": "systemd-coredump",
    "/var/lib/systemd/credential.secret": "systemd-creds, at the first boot",
    "/var/lib/systemd/random-seed": "systemd-random-seed, at each boot and shutdown",
    "/var/lib/systemd/timers": "systemd: when each timer last elapsed",
    "/var/lib/systemd/timesync": "systemd-timesyncd: the time of the last look at a clock",
    "/var/log/README": "systemd-tmpfiles, at each boot",
    "/var/log/btmp": "sshd: logins that failed",
    "/var/log/journal": "journald",
    "/var/log/lastlog": "sshd: the last login of each user",
    "/var/log/private": "systemd, for units with DynamicUser=",
    "/var/log/wtmp": "sshd and systemd: logins and boots",
}
COMPILED = "__pycache__"  # folders in which Python keeps what it imports
PRIVATE = "systemd-private-"  # folders of units with a /tmp of their own, in /tmp and /var/tmp
HIDES = "trusted.overlay.opaque"
_KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "folder",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "pipe",
    stat.S_IFSOCK: "socket",
    stat.S_IFCHR: "device",
    stat.S_IFBLK: "device",
}


class DiskEntry(NamedTuple):
    """One path of a disk."""

    kind: str  # file, folder, link, pipe, socket, device
    mode: int  # permissions
    owner: int
    group: int
    size: int  # bytes; 0 for what is not a file
    what: str  # sha256 of a file, target of a link, major:minor of a device

    def __str__(self) -> str:
        words = [f"{self.kind:6}", f"{self.mode:04o}", f"{self.owner}:{self.group}"]
        return " ".join([*words, str(self.size), self.what]).rstrip()


class DiskChange(NamedTuple):
    """A path that is not what it was; None: not there."""

    path: str
    before: DiskEntry | None
    after: DiskEntry | None


Listing = Mapping[str, DiskEntry | None]
"""What each path is; None: removed. A path that is not in it is as in the lower layer."""


def entry(path: Path, upper: Path | None = None) -> DiskEntry | None:
    """What a path is; None if nothing is there. `upper`: the same path in the upper layer."""
    try:
        return _entry(path, upper)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _entry(path: Path, upper: Path | None) -> DiskEntry:
    status = path.lstat()
    kind = _KINDS[stat.S_IFMT(status.st_mode)]
    size, what = 0, ""
    if kind == "file":
        size, what = _size_and_hash(path)
    elif kind == "link":
        what = str(path.readlink())
    elif kind == "device":
        what = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    elif kind == "folder" and upper is not None and _hides(upper):
        what = "hides what is below it"
    mode = stat.S_IMODE(status.st_mode)
    return DiskEntry(kind, mode, status.st_uid, status.st_gid, size, what)


def _size_and_hash(path: Path) -> tuple[int, str]:
    """Length in bytes, and sha256."""
    size, seen = 0, hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            size += len(data)
            seen.update(data)
    return size, seen.hexdigest()


def _hides(upper: Path) -> bool:
    try:
        return os.getxattr(upper, HIDES, follow_symlinks=False) == b"y"
    except OSError:  # it has none
        return False


def listing(upper: Path, root: Path, below: Path) -> dict[str, DiskEntry | None]:
    """The differences between a disk and its lower layer. `root`: where the overlay is mounted."""
    entries = {}
    for path in _paths(upper):
        inner = path.lstrip("/")
        now = entry(root / inner, upper / inner)
        if now != entry(below / inner):
            entries[path] = now
    return entries


def _paths(upper: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(upper):
        inner = "" if folder == str(upper) else f"/{Path(folder).relative_to(upper)}"
        folders[:] = [name for name in folders if not left_out(f"{inner}/{name}")]
        yield from (f"{inner}/{name}" for name in folders)
        yield from (f"{inner}/{name}" for name in names if not left_out(f"{inner}/{name}"))


def left_out(path: str) -> bool:
    """Whether systemd itself writes there, or Python when it runs.

    >>> left_out("/var/log/journal"), left_out("/var/log/journals"), left_out("/etc/fstab")
    (True, False, False)
    """
    folder, _, name = path.rpartition("/")
    private = folder in ("/tmp", "/var/tmp") and name.startswith(PRIVATE)  # noqa: S108
    return private or name == COMPILED or path in OF_SYSTEMD


def changes(before: Listing, after: Listing, below: Path) -> list[DiskChange]:
    """What differs between two listings of a disk, by path."""

    def entry_at(listed: Listing, path: str) -> DiskEntry | None:
        return listed[path] if path in listed else entry(below / path.lstrip("/"))

    every = [
        DiskChange(path, entry_at(before, path), entry_at(after, path))
        for path in sorted({*before, *after})
    ]
    return [change for change in every if change.before != change.after]
