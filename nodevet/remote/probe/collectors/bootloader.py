"""The boot loader, and where it has the kernel's command line from.

/boot/grub/grub.cfg, /boot/grub/grubenv, /etc/default/grub, /etc/default/grub.d/*.cfg; which other
files and programs of boot loaders exist. It runs none of them but `grub-probe`, which says on what
/boot/grub lies.
"""

import re
import stat

from nodevet.remote.probe.files import (
    LINE,
    Reading,
    exists,
    hold_etc,
    names_or_empty,
    read,
    status_of,
    text_lines,
)
from nodevet.remote.probe.grub_config import ENVIRONMENT, PATH, command_lines
from nodevet.remote.program import find_program, output_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ASKED = True
FOLDERS = ("/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/")
PROGRAMS = ("update-grub", "grubby", "kernelstub", "sdbootutil", "grub2-mkconfig")
FILES = (PATH, "/boot/grub2/grub.cfg", "/etc/kernel/cmdline", "/etc/kernelstub/configuration")
SETTINGS = "/etc/default/grub"
SCRIPTS = "/etc/grub.d"
SETTING = re.compile(r"\s*(?:export\s+)?(GRUB_CMDLINE_LINUX(?:_DEFAULT)?)\+?=(.*)")
MOST = 512  # command lines, or settings
TOOLS = ("grub-probe", "grub-reboot", "grub-editenv")
WRITES = ("ext2", "xfs", "fat")  # file systems, in words of grub-probe; ext2 stands for ext4 too
BLOCK = 1024  # bytes of grubenv


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    hold_etc(root)
    section = Reading()
    section.take("programs", programs, root)
    section.take("files", lambda: [path for path in FILES if exists(root, path)])
    section.take("entries", entries, root)
    section.take("settings", settings, root)
    section.take("newer", newer, root)
    section.take("once", boot_once_obstacle, root)
    return section


def boot_once_obstacle(root: str) -> str:
    """Why GRUB cannot boot an entry for one boot only; empty if it can.

    For that it writes grubenv itself, when it boots. It cannot write through LVM, RAID or
    encryption, nor to btrfs or ZFS. Raises OSError, and ToolError if grub-probe fails.
    """
    missing = [tool for tool in TOOLS if not any(exists(root, path + tool) for path in FOLDERS)]
    if missing:
        return "there is no " + missing[0]
    try:
        status = status_of(root, ENVIRONMENT)
    except FileNotFoundError:
        return "there is no " + ENVIRONMENT
    if not stat.S_ISREG(status.st_mode) or status.st_size != BLOCK:
        return "{} is not a file of {} bytes".format(ENVIRONMENT, BLOCK)
    probe = find_program("grub-probe")
    layers = output_of([probe, "--target=abstraction", ENVIRONMENT]).split()
    if layers:
        return "/boot/grub is on {}, which GRUB does not write".format(" ".join(layers)[:60])
    system = output_of([probe, "--target=fs", ENVIRONMENT]).strip()
    return "" if system in WRITES else "GRUB does not write to " + system[:60]


def programs(root: str) -> "list[str]":
    """Raises NotHeld."""
    return [name for name in PROGRAMS if any(exists(root, folder + name) for folder in FOLDERS)]


def entries(root: str) -> "list[str]":
    """The different command lines of grub.cfg; none without it. Raises OSError, ValueError."""
    try:
        lines = sorted(set(command_lines(read(root, PATH))))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return within_limits(lines, lines)


def settings(root: str) -> "list[dict[str, object]]":
    """The lines that set a command line, in the order in which update-grub reads them. Raises
    OSError, ValueError."""
    rows: "list[dict[str, object]]" = []
    for path in setting_files(root):
        for number, row in enumerate(text_lines(read(root, path)), 1):
            match = SETTING.match(row)
            if match:
                rows.append(
                    {"file": path, "line": number, "name": match.group(1), "text": match.group(2)}
                )
    return within_limits(rows, [str(row["text"]) for row in rows])


def within_limits(rows: "list[Any]", texts: "list[str]") -> "list[Any]":
    """The rows. Raises ValueError if they are too many, or if a text is too long."""
    if len(rows) > MOST or any(len(text) > LINE for text in texts):
        raise ValueError("more than {} lines, or {} characters in one".format(MOST, LINE))
    return rows


def setting_files(root: str) -> "list[str]":
    folder = SETTINGS + ".d"
    found = [folder + "/" + name for name in names_or_empty(root, folder) if is_read(name)]
    return ([SETTINGS] if exists(root, SETTINGS) else []) + found


def is_read(name: str) -> bool:
    """Whether update-grub reads a file of this name: the pattern *.cfg of sh."""
    return name.endswith(".cfg") and not name.startswith(".")


def newer(root: str) -> "list[str]":
    """The settings and scripts that were changed after grub.cfg was written: what they say is not
    in it yet. Raises OSError."""
    try:
        written = status_of(root, PATH).st_mtime
    except (FileNotFoundError, NotADirectoryError):
        return []
    scripts = [SCRIPTS + "/" + name for name in names_or_empty(root, SCRIPTS)]
    paths = setting_files(root) + scripts
    return [path for path in paths if status_of(root, path).st_mtime > written][:MOST]
