"""What root runs now, by name and command line. A process of another user may call itself anything,
and sets nothing that a fix does."""

import re

from nodevet.remote.probe.files import names, read_bytes

ROOT = re.compile(r"(?m)^Uid:\s+0\s")
NAME = re.compile(r"(?m)^Name:\s+(\S.*)$")
STATUS = 1 << 12  # bytes
WORDS = 1 << 12  # bytes of a command line


def root_processes(root: str) -> "list[tuple[str, str]]":
    """(name, command line) of each process of root; none if there is no /proc."""
    try:
        pids = [name for name in names(root, "/proc") if name.isdigit()]
    except (OSError, ValueError):
        return []
    return [found for found in (process(root, pid) for pid in pids) if found]


def process(root: str, pid: str) -> "tuple[str, str] | None":
    """None if it is not root's, or is gone."""
    try:
        status = text(root, "/proc/{}/status".format(pid), STATUS)
        name = NAME.search(status)
        if not name or not ROOT.search(status):
            return None
        return name.group(1), text(root, "/proc/{}/cmdline".format(pid), WORDS).replace("\0", " ")
    except (OSError, ValueError):
        return None


def text(root: str, path: str, limit: int) -> str:
    return read_bytes(root, path, limit).decode("utf-8", "replace")
