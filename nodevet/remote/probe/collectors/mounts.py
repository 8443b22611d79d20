"""What is mounted where: /proc/1/mountinfo, else /proc/self/mountinfo; see proc(5).

It looks up a path as the kernel does, from the root: a later mount on the path or above it hides an
earlier one. It only reads these files, so it triggers no automount, and a dead server blocks
nothing.
"""

import re

from nodevet.remote.fstab import unescape
from nodevet.remote.probe.files import Reading, is_this_machine, read_bytes, text_lines
from nodevet.remote.probe.mount_files import FILES, configured_mount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Container

FIRST = "/proc/1/mountinfo"  # the machine's mounts
OWN = "/proc/self/mountinfo"
LIMIT = 32 << 20  # bytes; a host of many containers has thousands of mounts
MOUNTS = 1 << 17  # twice the kernel's default limit
OTHERS = 256
OPTIONS = 128  # of a mount, or of its file system
OPTION = 4096  # characters: overlays name many folders
PATH = 1024  # characters
MOUNT_FIELDS = ("type", "source", "root", "options", "super_options")
PSEUDO = frozenset(
    "autofs binfmt_misc bpf cgroup cgroup2 configfs debugfs devpts devtmpfs efivarfs fusectl"
    " hugetlbfs mqueue nsfs overlay proc pstore ramfs rpc_pipefs securityfs selinuxfs squashfs"
    " sysfs tmpfs tracefs fuse.lxcfs fuse.snapfuse fuse.gvfsd-fuse fuse.portal".split()
)
CONTAINER_MOUNTS = re.compile(
    r"/(?:var/lib/(?:kubelet|docker|containers|containerd|lxc|lxd|rancher)|run|snap|var/snap)/"
)


def parse_mounts(text: str) -> "list[list[str]]":
    """[[id, parent, device, root, point, options, the rest]] of mountinfo. Raises ValueError."""
    rows = [row.split(" ", 6) for row in text_lines(text)]
    if any(len(row) != 7 for row in rows):
        raise ValueError("not a row of mountinfo")
    if len(rows) > MOUNTS:
        raise ValueError("more than {} mounts".format(MOUNTS))
    return rows


class MountTree(object):
    """The mounts of a machine."""

    def __init__(self, rows: "list[list[str]]") -> None:
        self.rows = rows
        ids = {row[0] for row in rows}
        self.by_parent = {(row[1], unescape(row[4])): row for row in rows if row[0] != row[1]}
        tops = [row for row in rows if row[4] == "/" and (row[1] not in ids or row[1] == row[0])]
        if not tops:
            raise ValueError("no root among the mounts")
        self.top = tops[-1]
        # a mount whose parent is not listed counts as visible
        self.orphans = {
            unescape(row[4]): row for row in rows if row[1] not in ids and row[4] != "/"
        }

    def mount_at(self, path: str) -> "list[str]":
        """The mount of a path without links."""
        mount = self.topmost(self.top, "/")
        prefix = ""
        for part in path.split("/"):
            if part:
                prefix += "/" + part
                mount = self.topmost(mount, prefix)
        return mount

    def topmost(self, mount: "list[str]", place: str) -> "list[str]":
        """The visible mount at a place of a mount: itself, or the last one on top."""
        for _ in self.rows:
            covering = self.by_parent.get((mount[0], place)) or self.orphans.get(place)
            if covering is None or covering is mount:
                break
            mount = covering
        return mount


def type_of(row: "list[str]") -> str:
    """The type of a mount's file system. A private mount has nothing before the `-`."""
    return (" " + row[6]).partition(" - ")[2].partition(" ")[0]


def mount_record(path: str, row: "list[str]") -> "Reading":
    """The record of a mount from its row. Raises ValueError."""
    fields = row[6].split(" ")
    end = fields.index("-")
    kind, source, super_options = (fields[end + 1 :] + ["", "", ""])[:3]
    record = Reading(
        name=path, type=kind[:PATH], source=unescape(source)[:PATH], root=unescape(row[3])[:PATH]
    )
    record.take("options", parse_options, row[5])
    record.take("super_options", parse_options, super_options)
    return record


def parse_options(text: str) -> "list[str]":
    """The options of a mount. Raises ValueError for too many or too long ones."""
    options = [unescape(word) for word in text.split(",") if word]
    if len(options) > OPTIONS or any(len(word) > OPTION for word in options):
        raise ValueError("more than {} options, or a longer one".format(OPTIONS))
    return options


def record_at(tree: "MountTree", path: str) -> "Reading":
    """The record of a path that a baseline names. Raises ValueError."""
    if not path.startswith("/") or len(path) > PATH:
        raise ValueError("not an absolute path")
    point = "/" + "/".join(part for part in path.split("/") if part)
    row = tree.mount_at(point)
    record = mount_record(path, row)
    is_automount = record["type"] == "autofs"
    is_mounted = unescape(row[4]) == point and not is_automount
    if not is_mounted:
        record = Reading(name=path)
        record.fail_all(MOUNT_FIELDS, "an automount" if is_automount else "not mounted")
    record.update(mounted=is_mounted, automount=is_automount)
    return record


def requested_mount(tree: "MountTree", path: str) -> "Reading":
    record = Reading()
    record.take("found", record_at, tree, path)
    mount: "Reading | None" = record["found"]
    if mount is None:
        mount = Reading(name=path)
        mount.fail_all(("mounted", "automount") + MOUNT_FIELDS, record["errors"]["found"])
    return mount


def other_mounts(tree: "MountTree", requested: "Container[str]") -> "list[dict[str, object]]":
    """The other mounts with data, without those of containers. Raises ValueError."""
    records: "dict[str, dict[str, object]]" = {}
    for row in tree.rows:
        kind = type_of(row)
        if kind in PSEUDO or CONTAINER_MOUNTS.match(row[4]):
            continue
        point = unescape(row[4])
        if point in requested or len(point) > PATH or tree.mount_at(point) is not row:
            continue
        if len(records) == OTHERS:
            raise ValueError("more than {} of them".format(OTHERS))
        records[point] = dict(mount_record(point, row), mounted=True, automount=False)
    return [records[point] for point in sorted(records)]


def read_mounts(root: str, file: str) -> str:
    text = read_bytes(root, file, LIMIT + 1)
    if len(text) > LIMIT:
        raise ValueError("longer than {} MiB".format(LIMIT >> 20))
    return text.decode("utf-8", "backslashreplace")


def read_machine_file(root: str, first_file: str, own_file: str, whole_machine: bool) -> str:
    """The text of process 1's file; in a captured tree, or if /proc hides processes, of this
    process's. Raises OSError, ValueError."""
    try:
        return read_mounts(root, first_file)
    except OSError:
        if root != "/" and is_this_machine(root, whole_machine):
            raise  # this process has its container's mounts
        return read_mounts(root, own_file)


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    text = read_machine_file(root, FIRST, OWN, request.get("whole_machine", False))
    tree = MountTree(parse_mounts(text))
    asked = set(request.get("asks", {}).get("mounts", ()))
    requested = sorted(asked - {FILES})
    section = Reading(mounts=[requested_mount(tree, path) for path in requested])
    with_files = requested if FILES in asked else ()
    section["configured"] = [
        configured_mount(root, path, type_of(tree.mount_at(path))) for path in with_files
    ]
    section.take("others", other_mounts, tree, frozenset(requested))
    return section
