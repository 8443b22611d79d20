"""The scripts that a command calls, and the scripts that those call."""

import os
import re
import shlex
import stat

from nodevet.remote.probe.files import path_under, read_bytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from nodevet.remote.managers.node_files import NodeFiles

MOST_PER_LINE = 8  # scripts of one line
MAX_DEPTH = 3  # scripts that call one another
MOST_FOLLOWED = 64  # scripts of one command
MOST_OPENED = 4096  # files of a node, to see whether they are scripts
HEAD = 512  # bytes of such a file
LOCAL = ("/usr/local/sbin", "/usr/local/bin")  # a site's programs, called by name
SHELL = re.compile(r"(?:/\S*/)?(?:(?:ba|da|z|k|a)?sh|python[0-9.]*|perl|source|\.)\Z")
RUN_PARTS = re.compile(r"(?:/\S*/)?run-parts\Z")
OUTPUT_FILE = re.compile(r"[0-9]*>>?\s*[^\s;|&]+")  # a command only writes to it
PATH_BEGINS = re.compile(r"""(?:\A|[\s;|&()`$"'\\])/""")
QUOTING = re.compile(r"""["'\\]""")
UDEV = re.compile(r'(?:RUN|PROGRAM|IMPORT)(?:\{[a-z]+\})?\s*(?:\+|:|=)?=\s*e?"((?:[^"\\]|\\.)*)"')
UDEV_FOLDERS = ("/etc/udev/", "/usr/lib/udev/", "/lib/udev/")


class Programs(object):
    """The scripts of one node."""

    def __init__(self, node: "NodeFiles") -> None:
        self.node = node
        self.file_kinds: "dict[str, tuple[bool, bool, bool]]" = {}
        self.answers: "dict[str, list[str]]" = {}
        self.local = {
            name: folder + "/" + name for folder in reversed(LOCAL) for name in node.entries(folder)
        }

    def scripts(self, line: str) -> "list[str]":
        """Paths of the scripts that a command runs, directly or through other scripts."""
        if line not in self.answers:
            self.answers[line] = []
            self._follow(line, MAX_DEPTH, self.answers[line])
        return self.answers[line]

    def _follow(self, line: str, depth: int, scripts: "list[str]") -> None:
        for path in self.named_scripts(line):
            if path in scripts:
                continue
            if len(scripts) == MOST_FOLLOWED:
                self.node.unread[path] = "too many scripts are called to read all of them"
                return
            scripts.append(path)
            if depth > 1:
                for _, line_of_script in self.node.lines(path):
                    self._follow(line_of_script, depth - 1, scripts)

    def named_scripts(self, line: str) -> "list[str]":
        """Paths of the scripts that a line calls, by path or by name in /usr/local."""
        line = OUTPUT_FILE.sub(" ", line)
        if not PATH_BEGINS.search(line):  # few lines have a path, and shlex is slow
            text = QUOTING.sub("", line)
            if not any(name in text for name in self.local):
                return []
        try:
            words = shlex.split(line)
        except ValueError:
            words = line.split()
        words_of_line = [part for word in words for part in re.split(r"[\s;|&()`$]+", word) if part]
        scripts, is_shell, is_run_parts = [], False, False
        for word in words_of_line:
            path = word if word.startswith("/") else self.local.get(word, "")
            if path and is_run_parts:
                scripts += self.folder_scripts(path)
            elif path and len(scripts) < MOST_PER_LINE and self.is_script(path, is_shell):
                scripts.append(path)
            if not word.startswith("-"):
                is_shell = SHELL.match(word) is not None
                is_run_parts = RUN_PARTS.match(word) is not None
        return scripts

    def folder_scripts(self, folder: str) -> "list[str]":
        """The scripts of a folder that run-parts(8) runs."""
        paths = self.node.files_in(folder)
        return [path for path in paths if self.is_script(path, False) and self.file_kinds[path][2]]

    def is_script(self, path: str, run_by_shell: bool) -> bool:
        """Whether a file is a script: it has #!, or is text that may be run or a shell runs."""
        if path not in self.file_kinds:
            if len(self.file_kinds) == MOST_OPENED:
                self.node.unread[path] = "too many files are named in scripts to read all of them"
                return False
            self.file_kinds[path] = self._file_kind(path)
        has_shebang, is_text, is_executable = self.file_kinds[path]
        return has_shebang or (is_text and (is_executable or run_by_shell))

    def _file_kind(self, path: str) -> "tuple[bool, bool, bool]":
        """(begins with #!, is text, is executable)."""
        try:
            head = read_bytes(self.node.root, path, HEAD)
            mode = os.stat(path_under(self.node.root, path)).st_mode
        except (OSError, ValueError):
            return False, False, False
        is_text = bool(head) and b"\0" not in head
        return head.startswith(b"#!"), is_text, stat.S_IMODE(mode) & 0o111 != 0

    def rule_scripts(self, line: str) -> "list[str]":
        """Paths of the scripts that a udev rule runs; without a path it is in udev's folder."""
        scripts = []
        for command in UDEV.findall(line):
            first, _, rest = command.replace('\\"', '"').lstrip().partition(" ")
            if not first.startswith("/"):
                candidates = (folder + first for folder in UDEV_FOLDERS)
                first = next((path for path in candidates if self.is_script(path, False)), first)
            scripts += self.scripts(first + " " + rest)
        return scripts
