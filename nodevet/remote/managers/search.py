"""Who else sets what a fix is about to set, and would undo it then or at the next boot.

Looked for: tmpfiles.d, sysctl.d, sysfs.conf, modprobe.d, modules-load.d; services that are
enabled or running, by themselves, a timer, a path, a socket, a device or another unit (Wants= and
the like), or transient, with their drop-ins and the variables of their commands; cron, run-parts,
rc.local, udev rules and what they run; what Slurm, cloud-init and the dispatchers of the network
run; the scripts that all of these name, and those that these call, three deep; tuned's profile and
its scripts; cpupower and its like. DCGM manages settings if it is configured to, not by running.
Files named nodevet-* are ours.

A unit counts if it is started at boot or runs now, and then all its drop-ins count. Those of one
that is not started change nothing: they have no program that would read them.

Not looked at: what a compiled program does by itself; user managers; at(1); what is started from
elsewhere over SSH. Configuration managers are named for the whole node: see `agents`.
"""

import fnmatch
import os
import re

from nodevet.remote.kinds import kind
from nodevet.remote.managers.hooks import Hooks
from nodevet.remote.managers.node_files import NodeFiles
from nodevet.remote.managers.patterns import names_key, pins
from nodevet.remote.managers.programs import Programs
from nodevet.remote.managers.tuned import TunedProfile
from nodevet.remote.managers.units import UnitFiles
from nodevet.remote.program import ToolError
from nodevet.remote.systemd import show_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

    from nodevet.remote.managers.patterns import Patterns

AFTER = "90-nodevet-"  # a vendor's sysctl.d file that sorts before ours is meant to be overridden
VENDORS = ("/usr/lib/", "/lib/", "/usr/local/lib/")
MOST = 20  # managers named of one resource
QUOTES = re.compile("[\"']")
BINDING = re.compile(r"^\s*(?:CPUAffinity|NUMAPolicy|NUMAMask|AllowedCPUs|AllowedMemoryNodes)\s*=")


def managers(request: "dict[str, Any]") -> "list[list[str]]":
    """For each resource the list of its other managers, each named with its place: file:line.

    A place that could not be read is listed too: it may hold one.
    """
    survey = Survey(request["root"])
    answers: "list[list[str]]" = []
    known: "dict[object, list[str]]" = {}
    for resource in request["resources"]:
        wanted = patterns_of(request["root"], resource)
        if wanted is None:
            answers.append([])
            continue
        if wanted.parts not in known:
            known[wanted.parts] = survey.managers(wanted)
        found = known[wanted.parts]
        found = found + [place for place in survey.tmpfiles(wanted) if place not in found]
        answers.append(found[:MOST])
    unread = ["{}: cannot be read: {}".format(*item) for item in sorted(survey.node.unread.items())]
    return [found + unread for found in answers]


def patterns_of(root: str, resource: "dict[str, str]") -> "Patterns | None":
    """What to look for; None if nothing else can set it."""
    patterns = getattr(kind(resource["kind"]), "patterns", None)
    return patterns(root, resource["name"]) if patterns else None


class Survey(object):
    def __init__(self, root: str) -> None:
        self.root = root
        self.node = NodeFiles(root)
        self.units = UnitFiles(self.node)
        self.programs = Programs(self.node)
        self.hooks = Hooks(self.node, self.units.services, self.lives)
        self.profile = TunedProfile(self.node) if self.lives("tuned.service") else None
        self.run_for_site = self.hooks.rows() + list(self.profile.scripts() if self.profile else ())

    def managers(self, wanted: "Patterns") -> "list[str]":
        found = []
        if wanted.drop_ins:
            return list(self.drop_ins(wanted.drop_ins))
        if wanted.package:
            return list(self.preferences(wanted.package))
        found += self.services(wanted)
        found += self.tuned(wanted)
        found += self.files(wanted)
        found += self.slurm(wanted)
        found += self.sysctl(wanted)
        found += self.modules(wanted)
        words = wanted.words
        if words is not None:
            found += self.in_units(words, wanted.unit, found)
            for file, number, command in self.run_for_site:
                found += self.of_command(words, file, number, command)
            for path in self.node.jobs():
                found += self.mentions(words, path)
            for path in self.node.rules():
                found += self.matches(words, path)
                for _, line in self.node.lines(path):
                    for script in self.programs.of_rule(line):
                        found += self.matches(words, script)
        return list(dict.fromkeys(found))

    def lives(self, unit: str) -> bool:
        """Whether a service is started at boot or runs now, or what triggers it does."""
        if unit not in self.units.services:
            return False
        starters = self.units.starters(unit)
        if any(map(self.units.is_started, starters)):
            return True
        return self.root == "/" and any(map(self.is_active, starters))

    def is_active(self, unit: str) -> bool:
        try:
            return show_all(unit, ("ActiveState",))["ActiveState"] in ("active", "activating")
        except ToolError:
            return True  # it may be

    def services(self, wanted: "Patterns") -> "list[str]":
        return ["unit " + name for name in wanted.services if self.lives(name)]

    def matches(self, pattern: "re.Pattern[str]", path: str) -> "list[str]":
        """Places of a file's lines that match."""
        rows = self.node.lines(path)
        return ["{}:{}".format(path, number) for number, line in rows if says(pattern, line)]

    def mentions(self, words: "re.Pattern[str]", path: str) -> "list[str]":
        """Places in a file, or in the scripts that its lines name."""
        found = self.matches(words, path)
        for _, line in self.node.lines(path):
            for script in self.programs.scripts(line):
                if script != path:
                    found += self.matches(words, script)
        return found

    def of_command(
        self, words: "re.Pattern[str]", file: str, number: int, command: str
    ) -> "list[str]":
        """Places in a command, or in the scripts that it names."""
        found = ["{}:{}".format(file, number)] if says(words, command) else []
        for script in self.programs.scripts(command):
            found += self.matches(words, script)
        return found

    def slurm(self, wanted: "Patterns") -> "list[str]":
        if wanted.slurm is None:
            return []
        rows = self.hooks.slurm_lines()
        return ["{}:{}".format(file, n) for file, n, line in rows if says(wanted.slurm, line)]

    def in_units(
        self, words: "re.Pattern[str]", unit: "str | None", known: "list[str]"
    ) -> "Iterator[str]":
        for name in sorted(self.units.services):
            if name == unit or "unit " + name in known:
                continue
            places = []
            for file, number, command in self.units.commands(name):
                places += self.of_command(words, file, number, command)
            if places and self.lives(name):
                yield "unit {} ({})".format(name, places[0])

    def drop_ins(self, unit: str) -> "Iterator[str]":
        """Other drop-ins that bind a unit to CPUs or memory."""
        for path in self.units.drop_ins(unit):
            for place in self.matches(BINDING, path):
                yield place

    def files(self, wanted: "Patterns") -> "list[str]":
        found = []
        for path, pattern in wanted.files:
            found += self.matches(re.compile(pattern), path)
        return found

    def preferences(self, package: str) -> "Iterator[str]":
        """Where apt's preferences pin a package."""
        top = "/etc/apt/preferences"
        for path in [top] + [top + ".d/" + name for name in self.node.entries(top + ".d")]:
            for number, line in self.node.lines(path):
                if pins(line, package):
                    yield "{}:{}".format(path, number)

    def tmpfiles(self, wanted: "Patterns") -> "list[str]":
        """Lines of tmpfiles.d and sysfs.conf on a kernel file, by its path, a pattern or name."""
        if not wanted.path:
            return []
        found = []
        for path in self.node.drop_in_folder("tmpfiles.d"):
            for number, line in self.node.lines(path):
                words = fields(line)
                if len(words) > 1 and names_path(words[1], wanted.path):
                    found.append("{}:{}".format(path, number))
        for path in ["/etc/sysfs.conf"] + [
            "/etc/sysfs.d/" + name for name in self.node.entries("/etc/sysfs.d", ".conf")
        ]:
            for number, line in self.node.lines(path):
                if names_path("/sys/" + line.partition("=")[0].strip(), wanted.path):
                    found.append("{}:{}".format(path, number))
        return found

    def sysctl(self, wanted: "Patterns") -> "list[str]":
        if not wanted.key:
            return []
        found = []
        for path in self.node.drop_in_folder("sysctl.d") + ["/etc/sysctl.conf"]:
            if path.startswith(VENDORS) and os.path.basename(path) < AFTER:
                continue
            for number, line in self.node.lines(path):
                name, equals, _ = line.partition("=")
                if equals and names_key(name.strip(), wanted.key):
                    found.append("{}:{}".format(path, number))
        return found

    def modules(self, wanted: "Patterns") -> "list[str]":
        if not wanted.module:
            return []
        if wanted.loaded:
            pattern = re.compile(r"^\s*{}\s*$".format(wanted.module))
            paths = ["/etc/modules"] + self.node.drop_in_folder("modules-load.d")
        else:
            pattern = re.compile(r"^\s*(?:blacklist|install)\s+{}(?:\s|$)".format(wanted.module))
            paths = self.node.drop_in_folder("modprobe.d")
        return [place for path in paths for place in self.matches(pattern, path)]

    def tuned(self, wanted: "Patterns") -> "list[str]":
        """tuned, where its profile sets it or cannot be read."""
        if wanted.tuned is None or self.profile is None:
            return []
        missing, files = self.profile.missing, self.profile.files
        if missing:
            return ["unit tuned.service (profile {}: not found)".format(ascii(missing))]
        if not files:
            return ["unit tuned.service (no active profile)"]
        places = [place for path in files for place in self.matches(wanted.tuned, path)]
        return ["unit tuned.service ({})".format(place) for place in places]


def says(pattern: "re.Pattern[str]", line: str) -> bool:
    """Whether a line matches, as it is or without its quotes: nvidia-smi "-pl" 500."""
    return bool(pattern.search(line) or pattern.search(QUOTES.sub("", line)))


def fields(line: str) -> "list[str]":
    """The fields of a line of tmpfiles.d(5), which may be quoted, with the escapes of C.

    >>> fields('w "/sys/a b" - - - - "1"')
    ['w', '/sys/a b', '-', '-', '-', '-', '1']
    """
    words = re.findall(r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\\.|[^\s"'\\])+""", line)
    return [unescaped(QUOTES.sub("", word)) for word in words]


def unescaped(word: str) -> str:
    """Without the escapes of C that stand for one byte."""
    return re.sub(
        r"\\(?:x([0-9A-Fa-f]{2})|([0-7]{3})|(.))",
        lambda it: it.group(3) or chr(int(it.group(1) or it.group(2), 16 if it.group(1) else 8)),
        word,
    )


def names_path(word: str, path: str) -> bool:
    """Whether a path or pattern is of this kernel file, or of its name in another folder."""
    if fnmatch.fnmatchcase(path, word):
        return True
    return "/cpufreq/" in path and word.endswith("/" + path.rpartition("/")[2])
