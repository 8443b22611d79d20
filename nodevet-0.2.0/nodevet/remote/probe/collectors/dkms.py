"""The modules of DKMS, the kernels that they are installed for, and the bootable kernels.

/var/lib/dkms/<module>/kernel-<release>-<arch>, a link to the build for that kernel (dkms(8)), the
modules' files in /lib/modules/<release>, /boot/vmlinuz-<release>.
"""

import os

from nodevet.remote.probe.files import (
    Absent,
    Reading,
    TransientError,
    attempt,
    exists,
    line,
    names,
    names_or_empty,
    path_under,
    quote,
)
from nodevet.remote.probe.package_manager import BUSY, is_busy, is_unfinished
from nodevet.remote.probe.patterns import Pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TREE = "/var/lib/dkms"
MODULES = "/lib/modules"
RELEASE = "/proc/sys/kernel/osrelease"
PLACES = ("updates/dkms", "extra", "updates", "extra/dkms", "weak-updates")
MOST = 256  # modules, kernels
LINK = Pattern(r"kernel-(.{1,200})-([A-Za-z0-9_]{2,20})\Z")
TARGET = Pattern(r"([^/]{1,100})/([^/]{1,200})/([^/]{1,20})/?\Z")
OBJECT = Pattern(r"(.{1,100}\.ko)(?:\.(?:xz|gz|zst))?\Z")


def parse_link(name: str, target: str) -> "tuple[str, str] | None":
    """(kernel, version) of DKMS's link; None for another name. Raises ValueError.

    >>> parse_link("kernel-5.15.0-105-generic-x86_64", "550.90.07/5.15.0-105-generic/x86_64")
    ('5.15.0-105-generic', '550.90.07')
    """
    link = LINK.match(name)
    if link is None:
        return None
    parts = TARGET.match(target)
    if parts is None or (parts.group(2), parts.group(3)) != link.groups():
        raise ValueError("{} leads to {}".format(quote(name), quote(target)))
    return parts.group(2), parts.group(1)


def objects(root: str, folder: str) -> "set[str]":
    """The modules in a folder, without suffixes of compression. Raises OSError, ValueError."""
    return {match.group(1) for match in map(OBJECT.match, names(root, folder)) if match}


def build(root: str, module: str, name: str) -> "Reading | None":
    """The record of a link; None for another entry."""
    folder = TREE + "/" + module
    try:
        target = os.readlink(os.path.join(path_under(root, folder), name))
    except OSError:
        return None
    parsed = parse_link(name, os.fsdecode(target))
    if parsed is None:
        return None
    kernel, version = parsed
    record = Reading(kernel=kernel, version=version)
    record.take("missing", count_missing, root, "{}/{}/module".format(folder, target), kernel)
    return record


def count_missing(root: str, folder: str, kernel: str) -> int:
    """How many built modules the kernel lacks. Raises OSError, ValueError."""
    objects_left = objects(root, folder)
    if not objects_left:
        raise ValueError("nothing was built")
    for folder_name in PLACES:
        present, why = attempt(objects, root, "/".join((MODULES, kernel, folder_name)))
        objects_left -= present or set()
        if why not in (None, "ENOENT", "ENOTDIR"):
            raise ValueError("{}: {}".format(folder_name, why))
    return len(objects_left)


def is_added(root: str, name: str, version: str) -> bool:
    """Whether DKMS has the source of a version. Raises NotHeld."""
    return exists(root, "{}/{}/{}/source".format(TREE, name, version))


def versions_of(root: str, name: str) -> "list[str]":
    """The versions that DKMS can build. Raises OSError, ValueError."""
    entries = names(root, TREE + "/" + name)
    return [entry for entry in entries if is_added(root, name, entry)][:MOST]


def headers(root: str, kernels: "list[str]") -> "list[str]":
    """The kernels whose headers are installed, where dkms(8) looks for them. Raises NotHeld."""
    return [
        kernel for kernel in kernels if exists(root, "{}/{}/build/include".format(MODULES, kernel))
    ]


def module_of(root: str, name: str) -> "Reading":
    record = Reading(name=name[:200])
    record.take("versions", versions_of, root, name)
    try:
        entries = names(root, TREE + "/" + name)
        builds = [row for row in (build(root, name, entry) for entry in entries) if row]
        record["builds"] = builds[:MOST]
    except (OSError, ValueError) as error:
        record.fail("builds", str(error)[:200])
    return record


def has_kernel(root: str, release: str) -> bool:
    """Whether a release has a kernel to boot. Raises OSError."""
    for folder, name in (("/boot", "vmlinuz-" + release), (MODULES + "/" + release, "vmlinuz")):
        try:
            os.lstat(path_under(root, folder) + "/" + name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        return True
    return False


def kernels(root: str) -> "list[str]":
    """The bootable releases. Raises OSError, ValueError."""
    releases = [release for release in names(root, MODULES) if has_kernel(root, release)]
    if not releases:
        raise ValueError("no kernel is installed here")
    if len(releases) > MOST:
        raise ValueError("more than {} kernels".format(MOST))
    return releases


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    entries = names_or_empty(root, TREE)
    folders = [name for name in entries if os.path.isdir(path_under(root, TREE + "/" + name))]
    if not folders:
        raise Absent("DKMS has no modules here")
    if len(folders) > MOST:
        raise ValueError("more than {} modules".format(MOST))
    if is_unfinished(root) and is_busy(root):  # it builds modules for new kernels
        raise TransientError(BUSY)
    section = Reading()
    section.take("running", line, root, RELEASE)
    section.take("kernels", kernels, root)
    listed = [section["running"]] + (section["kernels"] or [])
    section.take("headers", headers, root, sorted({kernel for kernel in listed if kernel}))
    section["modules"] = [module_of(root, name) for name in folders]
    return section
