"""The files that hold a node's settings, line by line. Runs none of them."""

import fnmatch
import os
import re

from nodevet.remote.probe.files import names, path_under, read_bytes, reason, text_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

LIMIT = 1 << 18  # bytes read of a file
ETC = ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")  # first wins
OURS = re.compile(r"(?:[0-9]+-)?nodevet-")
CRON = (
    "/etc/cron.d",
    "/etc/cron.hourly",
    "/etc/cron.daily",
    "/etc/cron.weekly",
    "/etc/cron.monthly",
    "/var/spool/cron",
    "/var/spool/cron/crontabs",
    "/var/spool/cron/tabs",
)
SINGLE = (
    "/etc/crontab",
    "/etc/anacrontab",
    "/etc/rc.local",
    "/etc/rc.d/rc.local",
    "/etc/rc.d/boot.local",
)


class NodeFiles(object):
    """The files of one node, each read once. `unread`: {path: why it could not be read}."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.unread: "dict[str, str]" = {}
        self.cached_lines: "dict[str, list[tuple[int, str]]]" = {}

    def lines(self, path: str) -> "list[tuple[int, str]]":
        """(number, line) without comments and empty lines; continued lines are joined."""
        if path not in self.cached_lines:
            self.cached_lines[path] = list(self._lines(path))
        return self.cached_lines[path]

    def _lines(self, path: str) -> "Iterator[tuple[int, str]]":
        text = self.text(path)
        start, joined = 0, ""
        for number, line in enumerate(text_lines(text), 1):
            start = start if joined else number
            joined += line
            if joined.endswith("\\"):
                joined = joined[:-1] + " "
                continue
            if joined.strip() and joined.lstrip()[0] not in "#;":
                yield start, joined
            joined = ""
        if joined.strip():
            yield start, joined

    def text(self, path: str) -> str:
        try:
            return read_bytes(self.root, path, LIMIT).decode("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return ""
        except OSError as error:
            self.unread[path] = reason(error)
            return ""

    def entries(self, path: str, suffix: str = "") -> "list[str]":
        """The names in a folder, without nodevet's own; empty if there is no folder."""
        try:
            entries = names(self.root, path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except (OSError, ValueError) as error:
            self.unread[path] = reason(error)
            return []
        return [name for name in entries if name.endswith(suffix) and not OURS.match(name)]

    def files_in(self, folder: str) -> "list[str]":
        """Paths of the files in a folder."""
        paths = [folder + "/" + name for name in self.entries(folder)]
        return [path for path in paths if self.is_file(path)]

    def matching(self, path: str) -> "list[str]":
        """The files that match, if the last part of a path is a pattern; else the path."""
        folder, _, last = path.rpartition("/")
        if not re.search("[*?[]", last):
            return [path]
        return [
            file for file in self.files_in(folder) if fnmatch.fnmatch(file, folder + "/" + last)
        ]

    def is_file(self, path: str) -> bool:
        return os.path.isfile(path_under(self.root, path))

    def drop_in_folder(self, kind: str) -> "list[str]":
        """Paths in /etc/<kind>, /run/<kind>, ...; of equal names the first, as in systemd."""
        return self._first_of_names(kind, ".conf")

    def _first_of_names(self, kind: str, suffix: str) -> "list[str]":
        paths: "dict[str, str]" = {}
        for top in ETC:
            for name in self.entries(top + "/" + kind, suffix):
                paths.setdefault(name, top + "/" + kind + "/" + name)
        return [paths[name] for name in sorted(paths)]

    def jobs(self) -> "Iterator[str]":
        """Paths of crontabs, cron scripts and rc.local."""
        yield from SINGLE
        for folder in CRON:
            for name in self.entries(folder):
                yield folder + "/" + name

    def rules(self) -> "list[str]":
        """Paths of udev's rules."""
        return self._first_of_names("udev/rules.d", ".rules")
