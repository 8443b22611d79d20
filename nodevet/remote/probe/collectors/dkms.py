"""Modules that DKMS builds, for which kernels they are installed, and which kernels could boot.

/var/lib/dkms/<module>/kernel-<release>-<arch>, a link to what was built of it for that kernel
(dkms(8)), the modules' files in /lib/modules/<release>, /boot/vmlinuz-<release>.
"""

import os

from nodevet.remote.probe.files import (
    Absent,
    Reading,
    TransientError,
    attempt,
    line,
    names,
    path_under,
    quote,
)
from nodevet.remote.probe.package_manager import AT_WORK, is_at_work, is_unfinished
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
    """(kernel, version) of DKMS's link for a kernel; None if the name is none. Raises ValueError.

    >>> parse_link("kernel-5.15.0-105-generic-x86_64", "550.90.07/5.15.0-105-generic/x86_64")
    ('5.15.0-105-generic', '550.90.07')
    """
    link = LINK.match(name)
    if link is None:
        return None
    found = TARGET.match(target)
    if found is None or (found.group(2), found.group(3)) != link.groups():
        raise ValueError("{} leads to {}".format(quote(name), quote(target)))
    return found.group(2), found.group(1)


def objects(root: str, folder: str) -> "set[str]":
    """The modules in a folder, without suffixes of compression. Raises OSError, ValueError."""
    return {match.group(1) for match in map(OBJECT.match, names(root, folder)) if match}


def build(root: str, module: str, name: str) -> "Reading | None":
    """One link as a record; None for another entry."""
    place = TREE + "/" + module
    try:
        target = os.readlink(os.path.join(path_under(root, place), name))
    except OSError:
        return None
    found = parse_link(name, os.fsdecode(target))
    if found is None:
        return None
    kernel, version = found
    record = Reading(kernel=kernel, version=version)
    record.take("missing", missing, root, "{}/{}/module".format(place, target), kernel)
    return record


def missing(root: str, folder: str, kernel: str) -> int:
    """How many of the modules that were built are not among the kernel's. Raises OSError,
    ValueError."""
    built = objects(root, folder)
    if not built:
        raise ValueError("nothing was built")
    for place in PLACES:
        there, why = attempt(objects, root, "/".join((MODULES, kernel, place)))
        built -= there or set()
        if why not in (None, "ENOENT", "ENOTDIR"):
            raise ValueError("{}: {}".format(place, why))
    return len(built)


def module_of(root: str, name: str) -> "Reading":
    record = Reading(name=name[:200])
    try:
        listed = names(root, TREE + "/" + name)
        builds = [each for each in (build(root, name, entry) for entry in listed) if each]
        record["builds"] = builds[:MOST]
    except (OSError, ValueError) as error:
        record.fail("builds", str(error)[:200])
    return record


def has_kernel(root: str, release: str) -> bool:
    """Whether there is one to boot; /boot may be closed to others. Raises OSError."""
    for folder, name in (("/boot", "vmlinuz-" + release), (MODULES + "/" + release, "vmlinuz")):
        try:
            os.lstat(path_under(root, folder) + "/" + name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        return True
    return False


def kernels(root: str) -> "list[str]":
    """The releases that are installed with a kernel to boot. Raises OSError, ValueError."""
    found = [release for release in names(root, MODULES) if has_kernel(root, release)]
    if not found:
        raise ValueError("no kernel is installed here")
    if len(found) > MOST:
        raise ValueError("more than {} kernels".format(MOST))
    return found


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    try:
        listed = names(root, TREE)
    except (FileNotFoundError, NotADirectoryError):
        raise Absent("DKMS has no modules here")
    folders = [name for name in listed if os.path.isdir(path_under(root, TREE + "/" + name))]
    if not folders:
        raise Absent("DKMS has no modules here")
    if len(folders) > MOST:
        raise ValueError("more than {} modules".format(MOST))
    if is_unfinished(root) and is_at_work(root):  # which builds modules for the kernels it installs
        raise TransientError(AT_WORK)
    found = Reading()
    found.take("running", line, root, RELEASE)
    found.take("kernels", kernels, root)
    found["modules"] = [module_of(root, name) for name in folders]
    return found
