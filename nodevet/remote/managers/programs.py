"""The scripts that a command names, and those that they name: text that can be looked into."""

import os
import re
import shlex
import stat

from nodevet.remote.probe.files import path_under, read_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodevet.remote.managers.node_files import NodeFiles

NAMED = 8  # scripts of one line
DEEP = 3  # a script that a script calls, and so on
FOLLOWED = 64  # scripts of one command
LOOKED = 4096  # files of a node that are opened to see whether they are scripts
HEAD = 512  # bytes by which that is seen
LOCAL = ("/usr/local/sbin", "/usr/local/bin")  # where a site's own programs are called by name
SHELL = re.compile(r"(?:/\S*/)?(?:(?:ba|da|z|k|a)?sh|python[0-9.]*|perl|source|\.)\Z")
RUN_PARTS = re.compile(r"(?:/\S*/)?run-parts\Z")
WRITTEN = re.compile(r"[0-9]*>>?\s*[^\s;|&]+")  # what a command only writes to
UDEV = re.compile(r'(?:RUN|PROGRAM|IMPORT)(?:\{[a-z]+\})?\s*(?:\+|:|=)?=\s*e?"((?:[^"\\]|\\.)*)"')
UDEV_FOLDERS = ("/etc/udev/", "/usr/lib/udev/", "/lib/udev/")


class Programs(object):
    """Those of one node."""

    def __init__(self, node: "NodeFiles") -> None:
        self.node = node
        self.known: "dict[str, tuple[bool, bool, bool]]" = {}
        self.answers: "dict[str, list[str]]" = {}
        self.local = {
            name: folder + "/" + name for folder in reversed(LOCAL) for name in node.entries(folder)
        }

    def scripts(self, line: str) -> "list[str]":
        """Paths of the scripts that a command runs, and of those that they run in turn."""
        if line not in self.answers:
            self.answers[line] = []
            self._follow(line, DEEP, self.answers[line])
        return self.answers[line]

    def _follow(self, line: str, deep: int, found: "list[str]") -> None:
        for path in self.named(line):
            if path in found:
                continue
            if len(found) == FOLLOWED:
                self.node.unread[path] = "too many scripts are called to read all of them"
                return
            found.append(path)
            if deep > 1:
                for _, inner in self.node.lines(path):
                    self._follow(inner, deep - 1, found)

    def named(self, line: str) -> "list[str]":
        """Paths of the scripts that a line names: by path, or by name in /usr/local."""
        line = WRITTEN.sub(" ", line)
        try:
            words = shlex.split(line)
        except ValueError:
            words = line.split()
        inner = [part for word in words for part in re.split(r"[\s;|&()`$]+", word) if part]
        found, shell, parts = [], False, False
        for word in inner:
            path = word if word.startswith("/") else self.local.get(word, "")
            if path and parts:
                found += self.parts(path)
            elif path and len(found) < NAMED and self.is_script(path, shell):
                found.append(path)
            if not word.startswith("-"):
                shell = SHELL.match(word) is not None
                parts = RUN_PARTS.match(word) is not None
        return found

    def parts(self, folder: str) -> "list[str]":
        """The scripts of a folder that run-parts(8) runs."""
        paths = self.node.files_in(folder)
        return [path for path in paths if self.is_script(path, False) and self.known[path][2]]

    def is_script(self, path: str, called: bool) -> bool:
        """Whether a file is text that is run: it says so, may be, or a shell is `called` on it."""
        if path not in self.known:
            if len(self.known) == LOOKED:
                self.node.unread[path] = "too many files are named in scripts to read all of them"
                return False
            self.known[path] = self._text(path)
        says, text, runs = self.known[path]
        return says or (text and (runs or called))

    def _text(self, path: str) -> "tuple[bool, bool, bool]":
        """Whether it begins with #!, is text, and may be run."""
        try:
            head = read_bytes(self.node.root, path, HEAD)
            mode = os.stat(path_under(self.node.root, path)).st_mode
        except (OSError, ValueError):
            return False, False, False
        text = bool(head) and b"\0" not in head
        return head.startswith(b"#!"), text, stat.S_IMODE(mode) & 0o111 != 0

    def of_rule(self, line: str) -> "list[str]":
        """Paths of the scripts that a rule of udev runs; one without a path is udev's own."""
        found = []
        for command in UDEV.findall(line):
            first, _, rest = command.replace('\\"', '"').lstrip().partition(" ")
            if not first.startswith("/"):
                own = (folder + first for folder in UDEV_FOLDERS)
                first = next((path for path in own if self.is_script(path, False)), first)
            found += self.scripts(first + " " + rest)
        return found
