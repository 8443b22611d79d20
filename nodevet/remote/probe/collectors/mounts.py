"""What is mounted where: /proc/1/mountinfo, else /proc/self/mountinfo; see proc(5).

A mount is looked up as the kernel looks up its path, from the root on: what is mounted over it,
or over a directory above it, hides it. Nothing is touched but these files: an automount that was
not used yet stays so, and a server that is gone blocks nobody.
"""

import re

from nodevet.remote.probe.files import Reading, is_this_machine, read_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Container

FIRST = "/proc/1/mountinfo"  # what the machine has mounted, whatever the one who asks has
OWN = "/proc/self/mountinfo"
LIMIT = 32 << 20  # bytes; a host of many containers has thousands of mounts
MOUNTS = 1 << 17  # twice as many as the kernel allows in a namespace unless told otherwise
OTHERS = 256
OPTIONS = 128  # of a mount, or of its file system
OPTION = 4096  # characters of one: those of overlays name many folders
PATH = 1024  # characters
OF_A_MOUNT = ("type", "source", "root", "options", "super_options")
ESCAPE = re.compile(r"\\([0-7]{3})")
PSEUDO = frozenset(
    "autofs binfmt_misc bpf cgroup cgroup2 configfs debugfs devpts devtmpfs efivarfs fusectl"
    " hugetlbfs mqueue nsfs overlay proc pstore ramfs rpc_pipefs securityfs selinuxfs squashfs"
    " sysfs tmpfs tracefs fuse.lxcfs fuse.snapfuse fuse.gvfsd-fuse fuse.portal".split()
)
OF_CONTAINERS = re.compile(
    r"/(?:var/lib/(?:kubelet|docker|containers|containerd|lxc|lxd|rancher)|run|snap|var/snap)/"
)


def parse_mounts(text: str) -> "list[list[str]]":
    """[[id, parent, device, root, point, options, the rest]] of mountinfo. Raises ValueError."""
    rows = [row.split(" ", 6) for row in text.splitlines()]
    if any(len(row) != 7 for row in rows):
        raise ValueError("not a row of mountinfo")
    if len(rows) > MOUNTS:
        raise ValueError("more than {} mounts".format(MOUNTS))
    return rows


def plain(text: str) -> str:
    r"""A path without the escapes of mountinfo.

    >>> plain(r"/a\040b")
    '/a b'
    """
    return ESCAPE.sub(lambda match: chr(int(match.group(1), 8)), text) if "\\" in text else text


class MountTree(object):
    """The mounts of a machine, to be looked up by path."""

    def __init__(self, rows: "list[list[str]]") -> None:
        self.rows = rows
        ids = {row[0] for row in rows}
        self.on = {(row[1], plain(row[4])): row for row in rows if row[0] != row[1]}
        tops = [row for row in rows if row[4] == "/" and (row[1] not in ids or row[1] == row[0])]
        if not tops:
            raise ValueError("no root among the mounts")
        self.top = tops[-1]
        # what is on a mount that is not listed is taken to be seen
        self.loose = {plain(row[4]): row for row in rows if row[1] not in ids and row[4] != "/"}

    def at(self, path: str) -> "list[str]":
        """The mount that a path lies on; the path has no links. Raises nothing."""
        mount = self.over(self.top, "/")
        place = ""
        for part in path.split("/"):
            if part:
                place += "/" + part
                mount = self.over(mount, place)
        return mount

    def over(self, mount: "list[str]", place: str) -> "list[str]":
        """What is seen at a place of a mount: the mount itself, or the last one on top of it."""
        for _ in self.rows:
            above = self.on.get((mount[0], place)) or self.loose.get(place)
            if above is None or above is mount:
                break
            mount = above
        return mount


def described(path: str, row: "list[str]") -> "Reading":
    """What is mounted at a path, from its row. Raises ValueError."""
    fields = row[6].split(" ")
    end = fields.index("-")
    kind, source, super_options = (fields[end + 1 :] + ["", "", ""])[:3]
    record = Reading(
        name=path, type=kind[:PATH], source=plain(source)[:PATH], root=plain(row[3])[:PATH]
    )
    record.take("options", words, row[5])
    record.take("super_options", words, super_options)
    return record


def words(text: str) -> "list[str]":
    """The options of a mount. Raises ValueError for more than a mount has, or a longer one."""
    found = [plain(word) for word in text.split(",") if word]
    if len(found) > OPTIONS or any(len(word) > OPTION for word in found):
        raise ValueError("more than {} options, or a longer one".format(OPTIONS))
    return found


def asked_for(tree: "MountTree", path: str) -> "Reading":
    """What is at a path that a baseline names."""
    if not path.startswith("/") or len(path) > PATH:
        raise ValueError("not an absolute path")
    place = "/" + "/".join(part for part in path.split("/") if part)
    row = tree.at(place)
    record = described(path, row)
    automount = record["type"] == "autofs"
    mounted = plain(row[4]) == place and not automount
    if not mounted:
        record = Reading(name=path)
        record.fail_all(OF_A_MOUNT, "an automount" if automount else "not mounted")
    record.update(mounted=mounted, automount=automount)
    return record


def one(tree: "MountTree", path: str) -> "Reading":
    record = Reading()
    record.take("found", asked_for, tree, path)
    found: "Reading | None" = record["found"]
    if found is None:
        found = Reading(name=path)
        found.fail_all(("mounted", "automount") + OF_A_MOUNT, record["errors"]["found"])
    return found


def others(tree: "MountTree", asked: "Container[str]") -> "list[dict[str, object]]":
    """The mounts that hold data, those of containers left out. Raises ValueError."""
    found: "dict[str, dict[str, object]]" = {}
    for row in tree.rows:
        kind = row[6].rpartition(" - ")[2].partition(" ")[0]
        if kind in PSEUDO or OF_CONTAINERS.match(row[4]):
            continue
        point = plain(row[4])
        if point in asked or len(point) > PATH or tree.at(point) is not row:
            continue
        if len(found) == OTHERS:
            raise ValueError("more than {} of them".format(OTHERS))
        found[point] = dict(described(point, row), mounted=True, automount=False)
    return [found[point] for point in sorted(found)]


def read_mounts(root: str, file: str) -> str:
    text = read_bytes(root, file, LIMIT + 1)
    if len(text) > LIMIT:
        raise ValueError("longer than {} MiB".format(LIMIT >> 20))
    return text.decode("utf-8", "backslashreplace")


def of_machine(root: str, first: str, own: str, whole_machine: bool) -> str:
    """The text of the first process' file; of a captured tree, or of a machine that hides its
    processes, our own. Raises OSError, ValueError."""
    try:
        return read_mounts(root, first)
    except OSError:
        if root != "/" and is_this_machine(root, whole_machine):
            raise  # our own would be those of the container that we are in
        return read_mounts(root, own)


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    text = of_machine(root, FIRST, OWN, request.get("whole_machine", False))
    tree = MountTree(parse_mounts(text))
    asked = sorted(set(request.get("asks", {}).get("mounts", ())))
    found = Reading(mounts=[one(tree, path) for path in asked])
    found.take("others", others, tree, frozenset(asked))
    return found
