"""Active swap, and what turns it on at boot: /proc/swaps, /etc/fstab, swap units."""

import os
import re
import stat

from nodevet.remote.fstab import PATH as FSTAB
from nodevet.remote.fstab import is_on_at_boot
from nodevet.remote.probe.files import (
    LINE,
    Reading,
    integer,
    names_or_empty,
    parsed,
    path_under,
    quote,
    read_bytes,
    resolve,
)
from nodevet.remote.probe.patterns import Pattern
from nodevet.remote.systemd import UNIT_PATH, unit_name_pattern

SWAPS = "/proc/swaps"
MOST = 64  # active swaps, of which a kernel has at most 32, and units
LIMIT = 1 << 16  # bytes of /etc/fstab, and of a unit
SECRET = Pattern(r"(?i)(?<![a-z])pass(?:wd|word|phrase)?\d*=|\bsecret\w*=")  # an option of mount
NAME = unit_name_pattern("swap")
WHAT = Pattern(r"^What=(.*)$", re.MULTILINE)
FROM_FSTAB = Pattern(r"^SourcePath=/etc/fstab$", re.MULTILINE)


def parse_swaps(text: str) -> "list[Reading]":
    """The rows of /proc/swaps. Raises ValueError.

    >>> parse_swaps("Filename Type Size Used Priority\\n/swap file 8 4 -2")[0]["used_kb"]
    4
    """
    rows = text.split("\n")
    if rows[0].split() != ["Filename", "Type", "Size", "Used", "Priority"]:
        raise ValueError("not the heading of {}: {}".format(SWAPS, quote(rows[0])))
    if len(rows) > MOST:
        raise ValueError("more than {} lines in {}".format(MOST, SWAPS))
    return [swap_area(row) for row in rows[1:]]


def swap_area(row: str) -> "Reading":
    words = row.split()
    if len(words) != 5:
        raise ValueError("not a row of {}: {}".format(SWAPS, quote(row)))
    return Reading(
        name=words[0],
        kind=words[1],
        size_kb=integer(words[2]),
        used_kb=integer(words[3]),
        priority=integer(words[4]),
    )


def fstab(root: str) -> "list[Reading]":
    """[{text, mode, owner, group}] of /etc/fstab; empty if no line turns on swap.

    Raises OSError, or ValueError if nodevet could not write it again unchanged, or if it holds a
    password.
    """
    path = os.path.join(path_under(root, os.path.dirname(FSTAB)), os.path.basename(FSTAB))
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return []
    if stat.S_ISLNK(status.st_mode):
        raise ValueError(FSTAB + " is a symbolic link")
    data = read_bytes(root, FSTAB, LIMIT + 1)
    if len(data) > LIMIT:
        raise ValueError("{} is larger than {} KiB".format(FSTAB, LIMIT >> 10))
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(FSTAB + " is not UTF-8 text")
    if not any(is_on_at_boot(line) for line in text.split("\n")):
        return []
    if SECRET.search(text):
        raise ValueError("a line of {} holds a password".format(FSTAB))
    mode = stat.S_IMODE(status.st_mode)
    return [Reading(text=text, mode=mode, owner=status.st_uid, group=status.st_gid)]


def units(root: str) -> "list[Reading]":
    """The swap units that others want, without those of /etc/fstab and masked ones."""
    unit_names: "set[str]" = set()
    for folder in UNIT_PATH:
        for name in names_or_empty(root, folder):
            if name.endswith((".wants", ".requires")):
                unit_names.update(filter(NAME.match, names_or_empty(root, folder + "/" + name)))
    if len(unit_names) > MOST:
        raise ValueError("more than {} units of type swap".format(MOST))
    records = [unit(root, name) for name in sorted(unit_names)]
    return [record for record in records if record is not None]


def unit(root: str, name: str) -> "Reading | None":
    """{name, path, what}; None without a file, if masked, or if of /etc/fstab."""
    for folder in UNIT_PATH:
        path = folder + "/" + name
        try:
            if resolve(root, path) == "/dev/null":
                return None
            text = read_bytes(root, path, LIMIT).decode("utf-8", "backslashreplace")
        except FileNotFoundError:
            continue
        if not text.strip() or FROM_FSTAB.search(text):
            return None
        record = Reading(name=name, path=path)
        record.take("what", what_of_unit, text)
        return record
    return None


def what_of_unit(text: str) -> str:
    """The last What= of a unit's file. Raises ValueError."""
    values = WHAT.findall(text)
    if not values:
        raise ValueError("its file has no What=")
    last: str = values[-1]
    return last.strip()[:LINE]


def take(memory: "Reading", root: str) -> None:
    """Set `swaps`, and `fstab` and `swap_units` if swap is active."""
    memory.take("swaps", parsed, root, SWAPS, parse_swaps)
    if memory["swaps"] is None:
        memory.fail_all(("fstab", "swap_units"), "swaps: " + memory["errors"]["swaps"])
        return
    memory["fstab"], memory["swap_units"] = [], []
    if memory["swaps"]:
        memory.take("fstab", fstab, root)
        memory.take("swap_units", units, root)
