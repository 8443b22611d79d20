"""The file systems that a node needs room in: statvfs(3) and /proc/self/mounts.

A file system whose server is gone blocks whoever asks it, so nothing below a network
mount is asked; what it is stands in /proc/self/mounts. A baseline may name further paths.
"""

import os
import re
import stat

from nodevet.remote.probe.files import (
    BOOT_ID,
    LINKS,
    Absent,
    Reading,
    attempt,
    read,
    read_bytes,
    reason,
    silent,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

PATHS = ("/", "/tmp", "/var", "/var/log", "/var/tmp", "/dev/shm", "/home", "/run")  # noqa: S108
MOUNTS = "/proc/self/mounts"
MOUNTS_LIMIT = 16 << 20  # bytes; a node of many containers has thousands of mounts
FIELDS = ("size_b", "available_b", "inodes", "inodes_available", "read_only", "immutable")
REMOTE = frozenset(
    "9p afs autofs beegfs ceph cifs fhgfs fuse gfs2 glusterfs gpfs lustre ncpfs nfs nfs4 orangefs"
    " panfs pvfs2 smb3 smbfs wekafs".split()
)
IMAGES = frozenset("cramfs erofs iso9660 romfs squashfs".split())
ESCAPE = re.compile(r"\\([0-7]{3})")


def parse_mounts(text: str) -> "dict[str, tuple[str, list[str]]]":
    """{mount point: (type, options)}; of several mounts on one point the last, which is seen.

    >>> parse_mounts("/dev/vda / ext4 rw,relatime 0 0")
    {'/': ('ext4', ['rw', 'relatime'])}
    """
    mounts = {}
    for row in text.splitlines():
        fields = row.split(" ")
        if len(fields) < 4:
            raise ValueError("not a row of " + MOUNTS)
        point = ESCAPE.sub(lambda match: chr(int(match.group(1), 8)), fields[1])
        mounts[point] = (fields[2], fields[3].split(","))
    return mounts


def mount_of(mounts: "dict[str, tuple[str, list[str]]]", path: str) -> "tuple[str, list[str]]":
    """(type, options) of the mount that a path without links lies on. Raises LookupError."""
    while path not in mounts:
        if path == "/":
            raise LookupError("no mount contains it")
        path = os.path.dirname(path)
    return mounts[path]


def is_remote(kind: str) -> bool:
    return kind in REMOTE or (kind.startswith("fuse.") and kind != "fuse.fuse-overlayfs")


def is_immutable(kind: str, options: "Sequence[str]") -> bool:
    """Whether it can never be written: an image, or an overlay without an upper layer, as
    the root of an image-based system is (composefs).

    >>> is_immutable("overlay", ["ro", "lowerdir=/lower::/objects"])
    True
    """
    if kind == "overlay":
        return not any(option.startswith("upperdir=") for option in options)
    return kind in IMAGES


def resolve(mounts: "dict[str, tuple[str, list[str]]]", path: str) -> str:
    """`path` without links, followed no further than to a network file system. Raises OSError."""
    done, ahead, links = "/", path.split("/"), 0
    while ahead:
        part = ahead.pop(0)
        if part in ("", "."):
            continue
        if part == "..":
            done = os.path.dirname(done)
            continue
        place = os.path.join(done, part)
        if is_remote(mount_of(mounts, place)[0]):
            return place
        if stat.S_ISLNK(os.lstat(place).st_mode):
            links += 1
            if links > LINKS:
                raise ValueError("more than {} links".format(LINKS))
            target = os.readlink(place)
            done = "/" if target.startswith("/") else done
            ahead = target.split("/") + ahead
        else:
            done = place
    return done


def file_system(
    mounts: "dict[str, tuple[str, list[str]]]", path: str, place: str
) -> "tuple[object, Reading]":
    """(what tells it from the others, its record). Raises OSError, LookupError, ValueError."""
    place = resolve(mounts, place)
    kind, options = mount_of(mounts, place)
    record = Reading(path=path, type=kind, remote=is_remote(kind))
    if record["remote"]:
        record.fail_all(FIELDS, "network file systems are not read")
        return place, record
    found = os.statvfs(place)
    record["size_b"] = found.f_blocks * found.f_frsize
    record["available_b"] = found.f_bavail * found.f_frsize
    record["inodes"] = found.f_files
    record["inodes_available"] = found.f_favail
    record["immutable"] = is_immutable(kind, options)
    # ext4 since Linux 6.15 says emergency_ro, and not ro, once an error made it read-only
    record["read_only"] = bool(found.f_flag & os.ST_RDONLY) or "emergency_ro" in options
    return (os.stat(place).st_dev, record["read_only"]), record


def is_here(root: str) -> bool:
    """Whether the tree is that of the running kernel, and not a captured one."""
    if root == "/":
        return True
    there, here = (attempt(read, place, BOOT_ID)[0] for place in (root, "/"))
    return there is not None and there == here


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", silent)
    if not is_here(root):
        raise Absent("a captured tree has no file systems of its own")
    text = read_bytes("/", MOUNTS, MOUNTS_LIMIT).decode("utf-8", "backslashreplace")
    mounts = parse_mounts(text)
    asked = [path for path in request.get("asks", {}).get("filesystems", ()) if path[:1] == "/"]
    found, seen = [], set()
    for path in list(PATHS) + sorted(set(asked).difference(PATHS)):
        note(path)
        try:
            key, record = file_system(mounts, path, os.path.join(root, path.lstrip("/")))
        except FileNotFoundError:
            if path not in asked:
                continue
            record = Reading(path=path, missing=True)
            record.fail_all(("type", "remote") + FIELDS, "ENOENT")
            found.append(record)
            continue
        except (OSError, LookupError, ValueError) as error:
            record = Reading(path=path)
            record.fail_all(("type", "remote") + FIELDS, reason(error))
            found.append(record)
            continue
        if key not in seen or path in asked:
            seen.add(key)
            found.append(record)
    return Reading(filesystems=found, found=[record["path"] for record in found])
