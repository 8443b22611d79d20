"""tuned's active profile, the profiles that it includes, and their scripts."""

import os
import re

from nodevet.remote.probe.files import exists, read, text_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

PROFILES = ("/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned")
ACTIVE = ("/etc/tuned/active_profile", "/etc/tuned/post_loaded_profile")
MOST_INCLUDED = 16
SECTION = re.compile(r"\s*\[(.*)\]\s*\Z")


class ProfileFiles(object):
    """The files of a node. Every method may raise OSError and ValueError."""

    def __init__(self, root: str) -> None:
        self.root = root

    def text(self, path: str) -> str:
        return read(self.root, path) if self.is_file(path) else ""

    def lines(self, path: str) -> "list[tuple[int, str]]":
        rows = enumerate(text_lines(self.text(path)), 1)
        return [(number, row) for number, row in rows if row.strip() and row.strip()[0] not in "#;"]

    def is_file(self, path: str) -> bool:
        return exists(self.root, path)


class TunedProfile(object):
    """`files`: the paths of tuned.conf, in the order in which tuned reads them; `missing`: a
    profile that does not exist, so that its settings are unknown; empty if all exist.

    `node`: `ProfileFiles`, or an object with the same methods."""

    def __init__(self, node: "Any") -> None:
        self.node = node
        self.files = []
        self.missing = ""
        waiting = [name for path in ACTIVE for name in node.text(path).split()]
        visited: "list[str]" = []
        while waiting and len(visited) < MOST_INCLUDED:
            name = waiting.pop(0)
            if name in visited:
                continue
            visited.append(name)
            path = self.path(name.lstrip("-"))
            if path:
                self.files.append(path)
                waiting += self.includes(path)
            elif not name.startswith("-"):  # tuned ignores a missing "-name"
                self.missing = self.missing or name

    def path(self, name: str) -> "str | None":
        paths = ["{}/{}/tuned.conf".format(folder, name) for folder in PROFILES]
        return next((path for path in paths if "/" not in name and self.node.is_file(path)), None)

    def includes(self, path: str) -> "list[str]":
        return [
            name
            for _, section, key, value in self.settings(path)
            if (section, key) == ("main", "include")
            for name in value.replace(",", " ").split()
        ]

    def settings(self, path: str) -> "Iterator[tuple[int, str, str, str]]":
        """(number, section, key, value) of a file."""
        section = "main"
        for number, line in self.node.lines(path):
            match = SECTION.match(line)
            if match:
                section = match.group(1).strip()
                continue
            key, equals, value = line.partition("=")
            if equals:
                yield number, section, key.strip(), value.strip()

    def scripts(self) -> "Iterator[tuple[str, int, str]]":
        """(file, number, path) of the scripts that the profiles run."""
        for path in self.files:
            folder = os.path.dirname(path)
            for number, _, key, value in self.settings(path):
                if key == "script":
                    scripts = value.replace(",", " ").replace("${i:PROFILE_DIR}", folder)
                    for word in scripts.split():
                        yield path, number, os.path.join(folder, word)
