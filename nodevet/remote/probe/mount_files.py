"""What /etc/fstab and units of type mount say about a path."""

import os
import re

from nodevet.remote.fstab import PATH as FSTAB
from nodevet.remote.fstab import device_path, mount_fields, mount_unit
from nodevet.remote.probe.files import (
    Reading,
    attempt,
    names_or_empty,
    path_under,
    read,
    resolve,
    text_lines,
)
from nodevet.remote.probe.swaps import SECRET
from nodevet.remote.systemd import UNIT_PATH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

FILES = "fstab"
"""A name in a request: read for each requested path what the files say about it."""
GENERATED = "/run/systemd/generator"  # from /etc/fstab
FIELDS = ("type", "source", "options")
LOCAL = ("ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "tmpfs", "overlay")
"""A folder of these file systems can be read without waiting for a server."""
OPTION = 4096  # characters
OPTIONS = 128
ROW = re.compile(r"^(What|Type|Options)[ \t]*=[ \t]*(.*)$", re.MULTILINE)


def fstab_rows(root: str, point: str) -> "Iterator[tuple[str, str, str, list[str]]]":
    """(file, source, type, options) of each line for a path. Raises OSError, ValueError."""
    try:
        text = read(root, FSTAB)
    except FileNotFoundError:
        return
    for fields in map(mount_fields, text_lines(text)):
        if fields is not None and (fields[1].rstrip("/") or "/") == point:
            yield FSTAB, fields[0], fields[2], fields[3]


def unit_rows(root: str, point: str) -> "Iterator[tuple[str, str, str, list[str]]]":
    """The same of the unit that a person or a package wrote. Raises OSError, ValueError."""
    name = mount_unit(point)
    for folder in UNIT_PATH:
        if folder.startswith(GENERATED):
            continue
        entries = names_or_empty(root, folder)
        if name + ".d" in entries:
            raise ValueError("{}/{}.d changes its unit".format(folder, name))
        if name not in entries:
            continue
        path = folder + "/" + name
        text = read(root, path)
        if "\\\n" in text:
            raise ValueError(path + " has lines that continue on the next line")
        rows = dict(ROW.findall(text))
        options = rows.get("Options", "").split(",")
        yield path, rows.get("What", ""), rows.get("Type", "auto"), options
        return


def configured(root: str, path: str) -> "tuple[str, str, str, list[str]]":
    """(file, source, type, options); all empty if nothing names the path. Raises OSError,
    ValueError."""
    point = "/" + "/".join(part for part in path.split("/") if part)
    rows = list(fstab_rows(root, point)) + list(unit_rows(root, point))
    if len(rows) > 1:
        raise ValueError("named more than once: " + ", ".join(row[0] for row in rows[:3]))
    return rows[0] if rows else ("", "", "", [])


def checked(options: "list[str]") -> "list[str]":
    """The options without `defaults`. Raises ValueError if one holds a password."""
    options = [option for option in options if option not in ("", "defaults")]
    if SECRET.search(",".join(options)):
        raise ValueError("an option holds a password")
    if len(options) > OPTIONS or any(len(option) > OPTION for option in options):
        raise ValueError("more than {} options, or a longer one".format(OPTIONS))
    return options


def device(root: str, source: str) -> str:
    """The source as the kernel names it. Raises OSError."""
    path = device_path(source)
    return (resolve(root, path) if path.startswith("/dev/disk/") else path)[:OPTION]


def is_empty(root: str, path: str, kind: str) -> bool:
    """Whether the folder at a path has no entries. Raises OSError, ValueError if its file system
    may hang."""
    if kind not in LOCAL:
        raise ValueError("its folder is on " + kind)
    with os.scandir(path_under(root, path)) as entries:
        return next(entries, None) is None


def configured_mount(root: str, path: str, kind: str) -> "Reading":
    """The record of a path: nodevet.evidence.mounts.ConfiguredMount. `kind`: the type of the file
    system that has it now."""
    record = Reading(name=path)
    record.take("empty", is_empty, root, path, kind)
    found, why = attempt(configured, root, path)
    if found is None:
        record.fail("file", why)
        record.fail_all(FIELDS, why)
        return record
    file, source, kind_at_boot, options = found
    record.update(file=file, type=kind_at_boot[:OPTION])
    record.take("source", device, root, source)
    record.take("options", checked, options)
    return record
