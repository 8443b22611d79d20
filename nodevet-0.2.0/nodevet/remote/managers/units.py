"""systemd units on disk: which file counts, what starts a unit, what it runs."""

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
PULLS = re.compile(r"\s*(?:Wants|Requires|BindsTo|Upholds|OnFailure|OnSuccess)\s*=(.*)")
ACCEPT = re.compile(r"\s*Accept\s*=\s*(?:yes|true|on|1|y|t)\s*\Z", re.IGNORECASE)
ENVIRONMENT = re.compile(r"\s*(Environment(?:File)?)\s*=\s*(.*)")
VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
LONGEST_COMMAND = 1 << 16  # characters of a command with its variables
AT_BOOT = ("multi-user.target", "basic.target", "sysinit.target")
TRIGGERS = {
    "timer": "Unit",
    "path": "Unit",
    "socket": "Service",
}  # kind: key of the service
SYSTEMD_WANTS = re.compile(r"SYSTEMD_WANTS\}\s*\+?=\s*e?\"([^\"]*)\"")


class UnitFiles(object):
    """The units of one node, without masked ones."""

    def __init__(self, node: "NodeFiles") -> None:
        self.node = node
        self.services = self.units_of("service")
        self.others = {kind: self.units_of(kind) for kind in TRIGGERS}
        self.targets = self.units_of("target")
        self.folders = {top: set(self._names(top)) for top in UNIT_PATH}
        self.started_units = self._with_pulled_in(self._wanted_units())
        for name in self.started_units:  # an instance has drop-ins of its own
            if name not in self.services and template_of(name) in self.services:
                self.services[name] = self.services[template_of(name)]
        self.triggers = self._triggers()

    def units_of(self, kind: str) -> "dict[str, str]":
        """{name: path} of every unit of a kind, the file that systemd uses."""
        paths: "dict[str, str]" = {}
        for folder in UNIT_PATH:
            for name in self.node.entries(folder, "." + kind):
                paths.setdefault(name, folder + "/" + name)
        return {name: path for name, path in paths.items() if not self.is_masked(path)}

    def is_masked(self, path: str) -> bool:
        return os.path.realpath(path_under(self.node.root, path)) == "/dev/null"

    def files(self, name: str, path: str) -> "list[str]":
        """A unit's file and its drop-ins, in systemd's order."""
        return [path] + self.drop_ins(name)

    def drop_ins(self, name: str) -> "list[str]":
        """Paths of a unit's drop-ins, sorted by name; of equal names the first."""
        paths: "dict[str, str]" = {}
        for owner in drop_in_owners(name):
            for top in UNIT_PATH:
                if owner + ".d" not in self.folders[top]:
                    continue
                folder = "{}/{}.d".format(top, owner)
                for entry in self.node.entries(folder, ".conf"):
                    paths.setdefault(entry, folder + "/" + entry)
        return [paths[entry] for entry in sorted(paths) if not self.is_masked(paths[entry])]

    def commands(self, name: str) -> "list[tuple[str, int, str]]":
        """(file, line number, command) of all that a service runs, with its variables expanded. An
        empty line clears the commands before it."""
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
                    rows[key].append((file, number, expand_variables(text, values)))
                else:
                    rows[key] = []
        return [row for key in sorted(rows) for row in rows[key]]

    def environment(self, name: str) -> "dict[str, str]":
        """The variables of a service; those of EnvironmentFile= override those of the unit."""
        unit_lines: "list[str]" = []
        files: "list[str]" = []
        for file in self.files(name, self.services[name]):
            for _, line in self.node.lines(file):
                match = ENVIRONMENT.match(line)
                if match:
                    key, text = match.groups()
                    lines = files if key == "EnvironmentFile" else unit_lines
                    lines[len(lines) if text.strip() else 0 :] = [text] if text.strip() else []
        values = assignments(unit_lines)
        for pattern in files:
            for path in self.node.matching(expand_specifiers(pattern.strip().lstrip("-"), name)):
                values.update(assignments(line for _, line in self.node.lines(path)))
        return values

    def starters(self, name: str) -> "list[str]":
        """A service and the units that trigger it."""
        return [name] + sorted(self.triggers.get(name, ()))

    def is_started(self, name: str) -> bool:
        """Whether a unit is started at boot or by a device. In a recorded tree also whether it is
        transient: systemd deletes the file when it unloads the unit."""
        transient = self.node.root != "/" and self.path(name).startswith(TRANSIENT)
        return transient or name in self.started_units

    def path(self, name: str) -> str:
        kind = name.rpartition(".")[2]
        by_kind = {"service": self.services, "target": self.targets}
        paths = by_kind.get(kind) or self.others.get(kind, {})
        return paths.get(name, "")

    def _wanted_units(self) -> "set[str]":
        """Names in *.wants, *.requires and *.upholds, and of SYSTEMD_WANTS in udev's rules."""
        units = set()
        for top in UNIT_PATH:
            for folder in self.node.entries(top):
                if folder.endswith((".wants", ".requires", ".upholds")):
                    units.update(self.node.entries(top + "/" + folder))
        for path in self.node.rules():
            for _, line in self.node.lines(path):
                for words in SYSTEMD_WANTS.findall(line):
                    units.update(words.split())
        return units | {template_of(name) for name in units}

    def _names(self, top: str) -> "list[str]":
        try:
            return names(self.node.root, top)
        except (OSError, ValueError):
            return []

    def _with_pulled_in(self, started_units: "set[str]") -> "set[str]":
        """`started` and the units that these pull in, directly or not."""
        waiting, units = [*AT_BOOT, *sorted(started_units)], set(started_units)
        while waiting:
            name = waiting.pop()
            path = self.path(name) or self.path(template_of(name))
            for file in ([path] if path else []) + self.drop_ins(name):
                for _, line in self.node.lines(file):
                    match = PULLS.match(line)
                    unit_names = expand_specifiers(match.group(1), name).split() if match else []
                    waiting += [unit for unit in unit_names if unit not in units]
                    units.update(unit_names)
        return units

    def _triggers(self) -> "dict[str, set[str]]":
        """{service: the timers, paths and sockets that start it, started or not}."""
        triggers: "dict[str, set[str]]" = {}
        names = {name for paths in self.others.values() for name in paths}
        names.update(unit for unit in self.started_units if unit.rpartition(".")[2] in TRIGGERS)
        for name in names:
            for service in self._services_of(name):
                triggers.setdefault(service, set()).add(name)
                triggers.setdefault(template_of(service), set()).add(name)
        return triggers

    def _services_of(self, name: str) -> "list[str]":
        """The services that a trigger starts: those that it names, else that of its own name."""
        stem, _, kind = name.rpartition(".")
        path = self.path(name) or self.path(template_of(name))
        pattern = re.compile(r"\s*{}\s*=\s*(\S+)\s*\Z".format(TRIGGERS[kind]))
        services = [
            match.group(1)
            for file in (self.files(name, path) if path else ())
            for _, line in self.node.lines(file)
            for match in [pattern.match(line)]
            if match
        ]
        services = [expand_specifiers(word, name) for word in services]
        if kind == "socket" and self._accepts(name, path):
            return [stem + "@.service"]
        return services or [stem + ".service"]

    def _accepts(self, name: str, path: str) -> bool:
        """Whether a socket starts an instance for each connection: systemd.socket(5)."""
        files = self.files(name, path) if path else []
        return any(ACCEPT.match(line) for file in files for _, line in self.node.lines(file))


def expand_specifiers(text: str, name: str) -> str:
    """Replace the specifiers of a unit's name: systemd.unit(5).

    >>> expand_specifiers("%p-%i.service", "a@1.timer")
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
    values = {}
    for line in lines:
        try:
            words = shlex.split(line)
        except ValueError:
            words = [line]
        for word in words:
            key, equals, value = word.partition("=")
            if equals:
                values[key.strip()] = value
    return values


def expand_variables(text: str, values: "dict[str, str]") -> str:
    """A command with its variables expanded; unchanged if that would be too long.

    >>> expand_variables("nvidia-smi $A ${B} $C", {"A": "-pl 5", "B": "x"})
    'nvidia-smi -pl 5 x $C'
    """
    command = VARIABLE.sub(
        lambda match: values.get(match.group(1) or match.group(2), match.group(0)), text
    )
    return command if len(command) <= LONGEST_COMMAND else text


def template_of(name: str) -> str:
    """The template of an instance: a@1.service -> a@.service; other names unchanged."""
    return re.sub(r"@.*\.", "@.", name)


def drop_in_owners(name: str) -> "list[str]":
    """Whose drop-ins a unit has: its own, its template's, a prefix's, its type's (systemd.unit(5)).

    >>> drop_in_owners("a-b@c.service")
    ['a-b@c.service', 'a-b@.service', 'a-.service', 'service']
    """
    stem, _, kind = name.rpartition(".")
    prefix, is_instance, _ = stem.partition("@")
    owners = [name] + (["{}@.{}".format(prefix, kind)] if is_instance else [])
    while "-" in prefix.rstrip("-"):
        prefix = prefix.rstrip("-")
        prefix = prefix[: prefix.rindex("-") + 1]
        owners.append("{}.{}".format(prefix, kind))
    return owners + [kind]
