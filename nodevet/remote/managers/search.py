"""Other managers that set what a fix sets, and would undo the fix now or at the next boot.

The search covers tmpfiles.d, sysctl.d, sysfs.conf, modprobe.d, modules-load.d; services that are
enabled or running, transient, or started by a timer, a path, a socket, a device or another unit
(Wants= and the like), with their drop-ins and the variables of their commands; cron, run-parts,
rc.local, SysV scripts, systemd's generators, udev rules; the hooks of Slurm, cloud-init, network
dispatchers, ifupdown, dhclient and modprobe; programs of supervisord; the profiles of root's
shells; the scripts that all of these call, three deep; tuned's profile and its scripts; cpupower
and the like. DCGM manages settings if it is configured to, not by running. Files named nodevet-*
are nodevet's own.

A unit counts, with all its drop-ins, if it is started at boot or runs now, or if such a unit starts
it as it ends. The drop-ins of other units change nothing.

The search does not cover what a compiled program does by itself, user managers, at(1), PAM,
plug-ins of Slurm, and commands from elsewhere over SSH. `agents` names configuration managers,
which manage the whole node.
"""

import fnmatch
import os
import re

from nodevet.remote.look import kind
from nodevet.remote.managers.hooks import Hooks
from nodevet.remote.managers.node_files import NodeFiles
from nodevet.remote.managers.patterns import names_key, pins
from nodevet.remote.managers.programs import Programs
from nodevet.remote.managers.startup import Startup
from nodevet.remote.managers.units import UnitFiles
from nodevet.remote.program import ToolError
from nodevet.remote.systemd import show_one
from nodevet.remote.tuned import TunedProfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from nodevet.remote.managers.patterns import Patterns

AFTER = "90-nodevet-"  # overrides a vendor's sysctl.d file that sorts before it
VENDORS = ("/usr/lib/", "/lib/", "/usr/local/lib/")
MOST = 20  # managers of one resource
QUOTES = re.compile("[\"']")
GLOB = re.compile(r"[*?[]")
BINDING = re.compile(r"^\s*(?:CPUAffinity|NUMAPolicy|NUMAMask|AllowedCPUs|AllowedMemoryNodes)\s*=")


def managers(request: "dict[str, Any]") -> "list[list[str]]":
    """The other managers of each resource, each with its place: file:line.

    A file that could not be read is listed too: it may hold one.
    """
    survey = Survey(request["root"])
    answers: "list[list[str]]" = []
    by_parts: "dict[object, list[str]]" = {}
    for resource in request["resources"]:
        patterns = patterns_of(request["root"], resource)
        if patterns is None:
            answers.append([])
            continue
        if patterns.parts not in by_parts:
            by_parts[patterns.parts] = survey.managers(patterns)
        places = by_parts[patterns.parts]
        places = places + [place for place in survey.tmpfiles(patterns) if place not in places]
        answers.append(places[:MOST])
    unread = ["{}: cannot be read: {}".format(*item) for item in sorted(survey.node.unread.items())]
    return [places + unread for places in answers]


def patterns_of(root: str, resource: "dict[str, str]") -> "Patterns | None":
    """What to search for; None if nothing else can set the resource."""
    patterns = getattr(kind(resource["kind"]), "patterns", None)
    return patterns(root, resource["name"]) if patterns else None


class Survey(object):
    def __init__(self, root: str) -> None:
        self.root = root
        self.node = NodeFiles(root)
        self.units = UnitFiles(self.node)
        self.programs = Programs(self.node)
        self.hooks = Hooks(self.node, self.units, self.is_live)
        self.profile = TunedProfile(self.node) if self.is_live("tuned.service") else None
        self.run_for_site = self.hooks.rows() + list(Startup(self.node, self.is_live).rows())
        self.run_for_site += self.profile.scripts() if self.profile else ()

    def managers(self, patterns: "Patterns") -> "list[str]":
        places = []
        if patterns.drop_ins:
            return self.drop_ins(patterns.drop_ins)
        if patterns.package:
            return list(self.preferences(patterns.package))
        places += self.services(patterns)
        places += self.tuned(patterns)
        places += self.files(patterns)
        places += self.slurm(patterns)
        places += self.sysctl(patterns)
        places += self.modules(patterns)
        words = patterns.words
        if words is not None:
            places += self.unit_places(words, patterns.unit, places)
            for file, number, command in self.run_for_site:
                places += self.command_places(words, file, number, command)
            for path in self.node.jobs():
                places += self.file_places(words, path)
            for path in self.node.rules():
                places += self.line_places(words, path)
                for _, line in self.node.lines(path):
                    for script in self.programs.rule_scripts(line):
                        places += self.line_places(words, script)
        return list(dict.fromkeys(places))

    def is_live(self, unit: str) -> bool:
        """Whether a service, or a unit that triggers it, is started at boot or runs now."""
        if unit not in self.units.services:
            return False
        starters = self.units.starters(unit)
        if any(map(self.units.is_started, starters)):
            return True
        return self.root == "/" and any(map(self.is_active, starters))

    def is_active(self, unit: str) -> bool:
        try:
            return show_one(unit, ("ActiveState",))["ActiveState"] in ("active", "activating")
        except ToolError:
            return True  # it may be

    def services(self, patterns: "Patterns") -> "list[str]":
        return ["unit " + name for name in patterns.services if self.is_live(name)]

    def line_places(self, pattern: "re.Pattern[str]", path: str) -> "list[str]":
        """Places of the matching lines of a file."""
        rows = self.node.lines(path)
        return [
            "{}:{}".format(path, number) for number, line in rows if line_matches(pattern, line)
        ]

    def file_places(self, words: "re.Pattern[str]", path: str) -> "list[str]":
        """Places in a file, and in the scripts that its lines call."""
        places = self.line_places(words, path)
        for _, line in self.node.lines(path):
            for script in self.programs.scripts(line):
                if script != path:
                    places += self.line_places(words, script)
        return places

    def command_places(
        self, words: "re.Pattern[str]", file: str, number: int, command: str
    ) -> "list[str]":
        """Places in a command, and in the scripts that it calls."""
        places = ["{}:{}".format(file, number)] if line_matches(words, command) else []
        for script in self.programs.scripts(command):
            places += self.line_places(words, script)
        return places

    def slurm(self, patterns: "Patterns") -> "list[str]":
        if patterns.slurm is None:
            return []
        rows, pattern = self.hooks.slurm_lines(), patterns.slurm
        return ["{}:{}".format(file, n) for file, n, line in rows if line_matches(pattern, line)]

    def unit_places(
        self, words: "re.Pattern[str]", unit: "str | None", services: "list[str]"
    ) -> "Iterator[str]":
        for name in sorted(self.units.services):
            if name == unit or "unit " + name in services:
                continue
            places = []
            for file, number, command in self.units.commands(name):
                places += self.command_places(words, file, number, command)
            if places and self.is_live(name):
                yield "unit {} ({})".format(name, places[0])

    def drop_ins(self, unit: str) -> "list[str]":
        """Other drop-ins that bind a unit to CPUs or memory."""
        paths = self.units.drop_ins(unit)
        return [place for path in paths for place in self.line_places(BINDING, path)]

    def files(self, patterns: "Patterns") -> "list[str]":
        places = []
        for path, pattern in patterns.files:
            places += self.line_places(re.compile(pattern), path)
        return places

    def preferences(self, package: str) -> "Iterator[str]":
        """Where apt's preferences pin a package."""
        top = "/etc/apt/preferences"
        for path in [top] + [top + ".d/" + name for name in self.node.entries(top + ".d")]:
            for number, line in self.node.lines(path):
                if pins(line, package):
                    yield "{}:{}".format(path, number)

    def tmpfiles(self, patterns: "Patterns") -> "list[str]":
        """Lines of tmpfiles.d and sysfs.conf that set a kernel file."""
        if not patterns.path:
            return []
        places = []
        for path in self.node.drop_in_folder("tmpfiles.d"):
            for number, line in self.node.lines(path):
                fields = tmpfiles_fields(line)
                if len(fields) > 1 and names_path(fields[1], patterns.path):
                    places.append("{}:{}".format(path, number))
        for path in ["/etc/sysfs.conf"] + [
            "/etc/sysfs.d/" + name for name in self.node.entries("/etc/sysfs.d", ".conf")
        ]:
            for number, line in self.node.lines(path):
                if names_path("/sys/" + line.partition("=")[0].strip(), patterns.path):
                    places.append("{}:{}".format(path, number))
        return places

    def sysctl(self, patterns: "Patterns") -> "list[str]":
        if not patterns.key:
            return []
        places = []
        for path in self.node.drop_in_folder("sysctl.d") + ["/etc/sysctl.conf"]:
            if path.startswith(VENDORS) and os.path.basename(path) < AFTER:
                continue
            for number, line in self.node.lines(path):
                name, equals, _ = line.partition("=")
                if equals and names_key(name.strip(), patterns.key):
                    places.append("{}:{}".format(path, number))
        return places

    def modules(self, patterns: "Patterns") -> "list[str]":
        if not patterns.module:
            return []
        if patterns.loaded:
            pattern = re.compile(r"^\s*{}\s*$".format(patterns.module))
            paths = ["/etc/modules"] + self.node.drop_in_folder("modules-load.d")
        else:
            pattern = re.compile(r"^\s*(?:blacklist|install)\s+{}(?:\s|$)".format(patterns.module))
            paths = self.node.drop_in_folder("modprobe.d")
        return [place for path in paths for place in self.line_places(pattern, path)]

    def tuned(self, patterns: "Patterns") -> "list[str]":
        """tuned, if its profile sets the resource or cannot be read."""
        if patterns.tuned is None or self.profile is None:
            return []
        missing, files = self.profile.missing, self.profile.files
        if missing:
            return ["unit tuned.service (profile {}: not found)".format(ascii(missing))]
        if not files:
            return ["unit tuned.service (no active profile)"]
        places = [place for path in files for place in self.line_places(patterns.tuned, path)]
        return ["unit tuned.service ({})".format(place) for place in places]


def line_matches(pattern: "re.Pattern[str]", line: str) -> bool:
    """Whether a line matches, with or without its quotes: nvidia-smi "-pl" 500."""
    return bool(pattern.search(line) or pattern.search(QUOTES.sub("", line)))


def tmpfiles_fields(line: str) -> "list[str]":
    """The fields of a line of tmpfiles.d(5), without quotes and escapes of C.

    >>> tmpfiles_fields('w "/sys/a b" - - - - "1"')
    ['w', '/sys/a b', '-', '-', '-', '-', '1']
    """
    fields = re.findall(r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\\.|[^\s"'\\])+""", line)
    return [without_escapes(QUOTES.sub("", word)) for word in fields]


def without_escapes(word: str) -> str:
    """A word with the escapes of C for one byte resolved."""

    def character(match: "re.Match[str]") -> str:
        digits, octal, other = match.groups()
        return other or chr(int(digits, 16) if digits else int(octal, 8))

    return re.sub(r"\\(?:x([0-9A-Fa-f]{2})|([0-7]{3})|(.))", character, word)


def names_path(word: str, path: str) -> bool:
    """Whether a path or pattern names a kernel file, or its name in another cpufreq folder."""
    if word == path or (GLOB.search(word) and fnmatch.fnmatchcase(path, word)):
        return True
    return "/cpufreq/" in path and word.endswith("/" + path.rpartition("/")[2])
