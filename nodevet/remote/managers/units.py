"""Units of systemd as they are on the disk: which file counts, what starts it, what it runs."""

import os
import re
import shlex

from nodevet.remote.probe.files import names, path_under
from nodevet.remote.systemd import TRANSIENT, UNIT_PATH

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable

    from nodevet.remote.managers.node_files import NodeFiles

EXEC = re.compile(r"\s*(Exec[A-Za-z]*)\s*=\s*[-@:+!|]*(.*)")
PULLS = re.compile(r"\s*(?:Wants|Requires|BindsTo|Upholds)\s*=(.*)")
ENVIRONMENT = re.compile(r"\s*(Environment(?:File)?)\s*=\s*(.*)")
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
EXPANDED = 1 << 16  # characters of a command with its variables
AT_BOOT = ("multi-user.target", "basic.target", "sysinit.target")
TRIGGERS = {"timer": "Unit", "path": "Unit", "socket": "Service"}  # kind: what names the service
SYSTEMD_WANTS = re.compile(r"SYSTEMD_WANTS\}\s*\+?=\s*e?\"([^\"]*)\"")


class UnitFiles(object):
    """Those of one node; masked ones are left out."""

    def __init__(self, node: "NodeFiles") -> None:
        self.node = node
        self.services = self.chosen("service")
        self.others = {kind: self.chosen(kind) for kind in TRIGGERS}
        self.targets = self.chosen("target")
        self.folders = {top: set(self._names(top)) for top in UNIT_PATH}
        self.started = self._pulled(self._started())
        for name in self.started:  # an instance has drop-ins of its own
            if name not in self.services and template(name) in self.services:
                self.services[name] = self.services[template(name)]
        self.triggers = self._triggers()

    def chosen(self, kind: str) -> "dict[str, str]":
        """name -> path of every unit of a kind, the one that systemd takes."""
        found: "dict[str, str]" = {}
        for folder in UNIT_PATH:
            for name in self.node.entries(folder, "." + kind):
                found.setdefault(name, folder + "/" + name)
        return {name: path for name, path in found.items() if not self.is_masked(path)}

    def is_masked(self, path: str) -> bool:
        return os.path.realpath(path_under(self.node.root, path)) == "/dev/null"

    def files(self, name: str, path: str) -> "list[str]":
        """The file of a unit and its drop-ins, in the order in which systemd reads them."""
        return [path] + self.drop_ins(name)

    def drop_ins(self, name: str) -> "list[str]":
        """Paths of a unit's drop-ins: by their names, of equal names the first."""
        found: "dict[str, str]" = {}
        for owner in drop_in_owners(name):
            for top in UNIT_PATH:
                if owner + ".d" not in self.folders[top]:
                    continue
                folder = "{}/{}.d".format(top, owner)
                for entry in self.node.entries(folder, ".conf"):
                    found.setdefault(entry, folder + "/" + entry)
        return [found[entry] for entry in sorted(found) if not self.is_masked(found[entry])]

    def commands(self, name: str) -> "list[tuple[str, int, str]]":
        """(file, line number, command) of all that a service runs, with its variables; one that is
        empty takes away those before it."""
        rows: "dict[str, list[tuple[str, int, str]]]" = {}
        values = self.environment(name)
        for file in self.files(name, self.services[name]):
            for number, line in self.node.lines(file):
                command = EXEC.match(line)
                if command is None:
                    continue
                key, text = command.groups()
                rows.setdefault(key, [])
                if text.strip():
                    rows[key].append((file, number, expanded(text, values)))
                else:
                    rows[key] = []
        return [row for key in sorted(rows) for row in rows[key]]

    def environment(self, name: str) -> "dict[str, str]":
        """The variables of a service: those of a file come after those of the unit."""
        own: "list[str]" = []
        files: "list[str]" = []
        for file in self.files(name, self.services[name]):
            for _, line in self.node.lines(file):
                match = ENVIRONMENT.match(line)
                if match:
                    key, text = match.groups()
                    kept = files if key == "EnvironmentFile" else own
                    kept[len(kept) if text.strip() else 0 :] = [text] if text.strip() else []
        values = assignments(own)
        for pattern in files:
            for path in self.node.matching(specified(pattern.strip().lstrip("-"), name)):
                values.update(assignments(line for _, line in self.node.lines(path)))
        return values

    def starters(self, name: str) -> "list[str]":
        """Whatever starts a service, itself first: the unit and what triggers it."""
        return [name] + sorted(self.triggers.get(name, ()))

    def is_started(self, name: str) -> bool:
        """Whether a unit is started at boot or by a device; in a recorded tree, also whether it is
        a transient one, which would not be there if it were not loaded."""
        transient = self.node.root != "/" and self.path(name).startswith(TRANSIENT)
        return transient or name in self.started

    def path(self, name: str) -> str:
        kind = name.rpartition(".")[2]
        known = {"service": self.services, "target": self.targets}
        found = known.get(kind) or self.others.get(kind, {})
        return found.get(name, "")

    def _started(self) -> "set[str]":
        """Names in *.wants, *.requires and *.upholds, and of SYSTEMD_WANTS in udev's rules."""
        found = set()
        for top in UNIT_PATH:
            for folder in self.node.entries(top):
                if folder.endswith((".wants", ".requires", ".upholds")):
                    found.update(self.node.entries(top + "/" + folder))
        for path in self.node.rules():
            for _, line in self.node.lines(path):
                for words in SYSTEMD_WANTS.findall(line):
                    found.update(words.split())
        return found | {template(name) for name in found}

    def _names(self, top: str) -> "list[str]":
        try:
            return names(self.node.root, top)
        except (OSError, ValueError):
            return []

    def _pulled(self, started: "set[str]") -> "set[str]":
        """With the units that these pull in, and those in turn."""
        waiting, found = [*AT_BOOT, *sorted(started)], set(started)
        while waiting:
            name = waiting.pop()
            path = self.path(name) or self.path(template(name))
            for file in ([path] if path else []) + self.drop_ins(name):
                for _, line in self.node.lines(file):
                    match = PULLS.match(line)
                    pulled = specified(match.group(1), name).split() if match else []
                    waiting += [each for each in pulled if each not in found]
                    found.update(pulled)
        return found

    def _triggers(self) -> "dict[str, set[str]]":
        """service -> the timers, paths and sockets that start it, started or not."""
        found: "dict[str, set[str]]" = {}
        names = {name for paths in self.others.values() for name in paths}
        for name in names | {one for one in self.started if one.rpartition(".")[2] in TRIGGERS}:
            for service in self._starts(name):
                found.setdefault(service, set()).add(name)
                found.setdefault(template(service), set()).add(name)
        return found

    def _starts(self, name: str) -> "list[str]":
        """The services that a trigger starts: those that it names, or the one of its name."""
        stem, _, kind = name.rpartition(".")
        path = self.path(name) or self.path(template(name))
        pattern = re.compile(r"\s*{}\s*=\s*(\S+)\s*\Z".format(TRIGGERS[kind]))
        named = [
            match.group(1)
            for file in (self.files(name, path) if path else ())
            for _, line in self.node.lines(file)
            for match in [pattern.match(line)]
            if match
        ]
        named = [specified(word, name) for word in named]
        return named or [stem + ".service"]


def specified(text: str, name: str) -> str:
    """A text of a unit with what stands for its name and its parts.

    >>> specified("%p-%i.service", "a@1.timer")
    'a-1.service'
    """
    stem = name.rpartition(".")[0]
    prefix, _, instance = stem.partition("@")
    for mark, value in (("%i", instance), ("%I", instance), ("%p", prefix), ("%N", stem)):
        text = text.replace(mark, value)
    return text


def assignments(lines: "Iterable[str]") -> "dict[str, str]":
    """{variable: value} of lines with NAME=value, quoted or not.

    >>> assignments(['A=1 "B=2 3"', "C='4'"])
    {'A': '1', 'B': '2 3', 'C': '4'}
    """
    found = {}
    for line in lines:
        try:
            words = shlex.split(line)
        except ValueError:
            words = [line]
        for word in words:
            key, equals, value = word.partition("=")
            if equals:
                found[key.strip()] = value
    return found


def expanded(text: str, values: "dict[str, str]") -> str:
    """A command with the values of its variables; as it is if that would be too long.

    >>> expanded("nvidia-smi $A ${B} $C", {"A": "-pl 5", "B": "x"})
    'nvidia-smi -pl 5 x $C'
    """
    found = VARIABLE.sub(lambda it: values.get(it.group(1) or it.group(2), it.group(0)), text)
    return found if len(found) <= EXPANDED else text


def template(name: str) -> str:
    """The template of an instance: a@1.service -> a@.service; another name as it is."""
    return re.sub(r"@.*\.", "@.", name)


def drop_in_owners(name: str) -> "list[str]":
    """Whose drop-ins a unit has: its own, its template's, a prefix's, its type's (systemd.unit(5)).

    >>> drop_in_owners("a-b@c.service")
    ['a-b@c.service', 'a-b@.service', 'a-.service', 'service']
    """
    stem, _, kind = name.rpartition(".")
    prefix, at, _ = stem.partition("@")
    owners = [name] + (["{}@.{}".format(prefix, kind)] if at else [])
    while "-" in prefix.rstrip("-"):
        prefix = prefix.rstrip("-")
        prefix = prefix[: prefix.rindex("-") + 1]
        owners.append("{}.{}".format(prefix, kind))
    return owners + [kind]
