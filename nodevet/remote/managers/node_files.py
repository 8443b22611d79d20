"""Where settings of a node are written down: files, line by line. Never runs any of them."""

import fnmatch
import os
import re

from nodevet.remote.probe.files import names, path_under, read_bytes, reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator

LIMIT = 1 << 18  # bytes of a file; the rest of a longer one is not read
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
    """The files of one node, each read once. `unread`: those that could not be, with why."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.unread: "dict[str, str]" = {}
        self.known: "dict[str, list[tuple[int, str]]]" = {}

    def lines(self, path: str) -> "list[tuple[int, str]]":
        """(number, line) of those that say something; those that go on are put together."""
        if path not in self.known:
            self.known[path] = list(self._lines(path))
        return self.known[path]

    def _lines(self, path: str) -> "Iterator[tuple[int, str]]":
        text = self.text(path)
        start, said = 0, ""
        for number, line in enumerate(text.splitlines(), 1):
            start = start if said else number
            said += line
            if said.endswith("\\"):
                said = said[:-1] + " "
                continue
            if said.strip() and said.lstrip()[0] not in "#;":
                yield start, said
            said = ""
        if said.strip():
            yield start, said

    def text(self, path: str) -> str:
        try:
            return read_bytes(self.root, path, LIMIT).decode("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return ""
        except OSError as error:
            self.unread[path] = reason(error)
            return ""

    def entries(self, path: str, end: str = "") -> "list[str]":
        """The names in a folder, ours left out; none if there is no folder."""
        try:
            found = names(self.root, path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except (OSError, ValueError) as error:
            self.unread[path] = reason(error)
            return []
        return [name for name in found if name.endswith(end) and not OURS.match(name)]

    def files_in(self, folder: str) -> "list[str]":
        """Paths of the files in a folder."""
        paths = [folder + "/" + name for name in self.entries(folder)]
        return [path for path in paths if self.is_file(path)]

    def matching(self, path: str) -> "list[str]":
        """A path, or the paths that it stands for if its last part is a pattern."""
        folder, _, last = path.rpartition("/")
        if not re.search("[*?[]", last):
            return [path]
        return [
            each for each in self.files_in(folder) if fnmatch.fnmatch(each, folder + "/" + last)
        ]

    def is_file(self, path: str) -> bool:
        return os.path.isfile(path_under(self.root, path))

    def drop_in_folder(self, kind: str) -> "list[str]":
        """Paths of /etc/<kind>, /run/<kind>, ...; of equal names the first, as systemd has it."""
        chosen: "dict[str, str]" = {}
        for top in ETC:
            for name in self.entries(top + "/" + kind, ".conf"):
                chosen.setdefault(name, top + "/" + kind + "/" + name)
        return [chosen[name] for name in sorted(chosen)]

    def jobs(self) -> "Iterator[str]":
        """Paths of what cron and rc.local run."""
        for path in SINGLE:
            yield path
        for folder in CRON:
            for name in self.entries(folder):
                yield folder + "/" + name

    def rules(self) -> "list[str]":
        """Paths of udev's rules."""
        chosen: "dict[str, str]" = {}
        for top in ETC:
            for name in self.entries(top + "/udev/rules.d", ".rules"):
                chosen.setdefault(name, top + "/udev/rules.d/" + name)
        return [chosen[name] for name in sorted(chosen)]
