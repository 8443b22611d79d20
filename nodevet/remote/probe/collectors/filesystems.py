"""The file systems that a node needs space in: statvfs(3) and /proc/self/mounts.

A dead server blocks any access to its file system, so nodevet touches nothing below a network
mount; its type is in /proc/self/mounts. A baseline may name further paths.

A container may have mounted the machine's files read-only. What the machine itself may write is in
its /proc/1/mounts.
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
    no_note,
    read,
    read_bytes,
    reason,
    text_lines,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

PATHS = ("/", "/tmp", "/var", "/var/log", "/var/tmp", "/dev/shm", "/home", "/run")  # noqa: S108
MOUNTS = "/proc/self/mounts"
MACHINE_MOUNTS = "/proc/1/mounts"
MOUNTS_LIMIT = 16 << 20  # bytes; a node of many containers has thousands of mounts
FIELDS = ("size_b", "available_b", "inodes", "inodes_available", "read_only", "immutable")
REMOTE = frozenset(
    "9p afs autofs beegfs ceph cifs fhgfs fuse gfs2 glusterfs gpfs lustre ncpfs nfs nfs4 orangefs"
    " panfs pvfs2 smb3 smbfs wekafs".split()
)
IMAGES = frozenset("cramfs erofs iso9660 romfs squashfs".split())
ESCAPE = re.compile(r"\\([0-7]{3})")


def parse_mounts(text: str) -> "dict[str, tuple[str, list[str]]]":
    """{mount point: (type, options)}; of several mounts on one point the last, visible one.

    >>> parse_mounts("/dev/vda / ext4 rw,relatime 0 0")
    {'/': ('ext4', ['rw', 'relatime'])}
    """
    mounts = {}
    for row in text_lines(text):
        fields = row.split(" ")
        if len(fields) < 4:
            raise ValueError("not a row of " + MOUNTS)
        point = ESCAPE.sub(lambda match: chr(int(match.group(1), 8)), fields[1])
        mounts[point] = (fields[2], fields[3].split(","))
    return mounts


def mount_of(mounts: "dict[str, tuple[str, list[str]]]", path: str) -> "tuple[str, list[str]]":
    """(type, options) of the mount of a path without links. Raises LookupError."""
    while path not in mounts:
        if path == "/":
            raise LookupError("no mount contains it")
        path = os.path.dirname(path)
    return mounts[path]


def is_remote(kind: str) -> bool:
    return kind in REMOTE or (kind.startswith("fuse.") and kind != "fuse.fuse-overlayfs")


def is_immutable(kind: str, options: "Sequence[str]") -> bool:
    """Whether it is never writable: an image, or an overlay without an upper layer, such as the
    root of an image-based system (composefs).

    >>> is_immutable("overlay", ["ro", "lowerdir=/lower::/objects"])
    True
    """
    if kind == "overlay":
        return not any(option.startswith("upperdir=") for option in options)
    return kind in IMAGES


def resolve(mounts: "dict[str, tuple[str, list[str]]]", path: str, root: str = "/") -> str:
    """A path below `root` with links resolved there, up to a network file system. Raises
    OSError."""
    resolved, parts, links = root, path[len(root) :].split("/"), 0
    while parts:
        part = parts.pop(0)
        if part in ("", "."):
            continue
        if part == "..":
            resolved = resolved if resolved == root else os.path.dirname(resolved)
            continue
        path_to_part = os.path.join(resolved, part)
        if is_remote(mount_of(mounts, path_to_part)[0]):
            return path_to_part
        if stat.S_ISLNK(os.lstat(path_to_part).st_mode):
            links += 1
            if links > LINKS:
                raise ValueError("more than {} links".format(LINKS))
            target = os.readlink(path_to_part)
            resolved = root if target.startswith("/") else resolved
            parts = target.split("/") + parts
        else:
            resolved = path_to_part
    return resolved


def file_system(
    mounts: "dict[str, tuple[str, list[str]]]", path: str, place: str, root: str = "/"
) -> "tuple[object, Reading]":
    """(its identity, its record). Raises OSError, LookupError, ValueError."""
    place = resolve(mounts, place, root)
    kind, options = mount_of(mounts, place)
    record = Reading(path=path, type=kind, remote=is_remote(kind))
    if record["remote"]:
        record.fail_all(FIELDS, "network file systems are not read")
        return place, record
    status = os.statvfs(place)
    record["size_b"] = status.f_blocks * status.f_frsize
    record["available_b"] = status.f_bavail * status.f_frsize
    record["inodes"] = status.f_files
    record["inodes_available"] = status.f_favail
    record["immutable"] = is_immutable(kind, options)
    if root == "/":
        options = options + ["ro"] * bool(status.f_flag & os.ST_RDONLY)
        record["read_only"] = is_read_only(options)
    else:
        record.take("read_only", is_read_only_there, root, place[len(root) :])
    return (os.stat(place).st_dev, record["read_only"]), record


def is_read_only(options: "Sequence[str]") -> bool:
    """ext4 since Linux 6.15 says emergency_ro, and not ro, once an error made it read-only."""
    return "ro" in options or "emergency_ro" in options


def is_read_only_there(root: str, path: str) -> bool:
    """Whether the machine at `root` may not write to a path. Raises OSError, LookupError,
    ValueError."""
    return is_read_only(mount_of(read_mounts(root, MACHINE_MOUNTS), path or "/")[1])


def read_mounts(root: str, file: str) -> "dict[str, tuple[str, list[str]]]":
    """Raises OSError, ValueError."""
    data = read_bytes(root, file, MOUNTS_LIMIT)
    return parse_mounts(data.decode("utf-8", "backslashreplace"))


def is_here(root: str) -> bool:
    """Whether the tree is the running kernel's, not a captured one."""
    if root == "/":
        return True
    boot_id, own_boot_id = (attempt(read, base, BOOT_ID)[0] for base in (root, "/"))
    return boot_id is not None and boot_id == own_boot_id


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", no_note)
    if not is_here(root):
        raise Absent("a captured tree has no file systems of its own")
    mounts = read_mounts("/", MOUNTS)
    asked_paths = [
        path for path in request.get("asks", {}).get("filesystems", ()) if path[:1] == "/"
    ]
    records, keys = [], set()
    for path in list(PATHS) + sorted(set(asked_paths).difference(PATHS)):
        note(path)
        try:
            key, record = file_system(mounts, path, os.path.join(root, path.lstrip("/")), root)
        except FileNotFoundError:
            if path not in asked_paths:
                continue
            record = Reading(path=path, missing=True)
            record.fail_all(("type", "remote") + FIELDS, "ENOENT")
            records.append(record)
            continue
        except (OSError, LookupError, ValueError) as error:
            record = Reading(path=path)
            record.fail_all(("type", "remote") + FIELDS, reason(error))
            records.append(record)
            continue
        if key not in keys or path in asked_paths:
            keys.add(key)
            records.append(record)
    return Reading(filesystems=records, found=[record["path"] for record in records])
