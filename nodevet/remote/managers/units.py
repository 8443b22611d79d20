"""Units of systemd as they are on the disk: which file counts, what starts it, what it runs."""

import os
import re

from nodevet.remote.probe.files import path_under
from nodevet.remote.systemd import TRANSIENT, UNIT_PATH

EXEC = re.compile(r"\s*(Exec[A-Za-z]*)\s*=\s*[-@:+!|]*(.*)")
TRIGGERS = {"timer": "Unit", "path": "Unit", "socket": "Service"}  # kind: what names the service
SYSTEMD_WANTS = re.compile(r"SYSTEMD_WANTS\}\s*\+?=\s*e?\"([^\"]*)\"")


class UnitFiles(object):
    """Those of one node; masked ones are left out."""

    def __init__(self, node):
        self.node = node
        self.services = self.chosen("service")
        self.others = {kind: self.chosen(kind) for kind in TRIGGERS}
        self.started = self._started()
        self.triggers = self._triggers()

    def chosen(self, kind):
        """name -> path of every unit of a kind, the one that systemd takes."""
        found = {}
        for folder in UNIT_PATH:
            for name in self.node.entries(folder, "." + kind):
                found.setdefault(name, folder + "/" + name)
        return {name: path for name, path in found.items() if not self.is_masked(path)}

    def is_masked(self, path):
        return os.path.realpath(path_under(self.node.root, path)) == "/dev/null"

    def files(self, name, path):
        """The file of a unit and its drop-ins, in the order in which systemd reads them."""
        return [path] + self.drop_ins(name)

    def drop_ins(self, name):
        """Paths of a unit's drop-ins: by their names, of equal names the first."""
        found = {}
        for owner in drop_in_owners(name):
            for top in UNIT_PATH:
                folder = "{}/{}.d".format(top, owner)
                for entry in self.node.entries(folder, ".conf"):
                    found.setdefault(entry, folder + "/" + entry)
        return [found[entry] for entry in sorted(found) if not self.is_masked(found[entry])]

    def commands(self, name):
        """(file, line number, command) of all that a service runs; one that is empty takes away
        those before it."""
        rows = {}
        for file in self.files(name, self.services[name]):
            for number, line in self.node.lines(file):
                command = EXEC.match(line)
                if command is None:
                    continue
                key, text = command.groups()
                rows.setdefault(key, [])
                if text.strip():
                    rows[key].append((file, number, text))
                else:
                    rows[key] = []
        return [row for key in sorted(rows) for row in rows[key]]

    def starters(self, name):
        """Whatever starts a service, itself first: the unit and what triggers it."""
        return [name] + sorted(self.triggers.get(name, ()))

    def is_started(self, name):
        """Whether a unit is started at boot or by a device; in a recorded tree, also whether it is
        a transient one, which would not be there if it were not loaded."""
        transient = self.node.root != "/" and self.path(name).startswith(TRANSIENT)
        return transient or name in self.started

    def path(self, name):
        kind = name.rpartition(".")[2]
        found = self.services if kind == "service" else self.others.get(kind, {})
        return found.get(name, "")

    def _started(self):
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

    def _triggers(self):
        """service -> the timers, paths and sockets that start it, started or not."""
        found = {}
        names = {name for paths in self.others.values() for name in paths}
        for name in names | {one for one in self.started if one.rpartition(".")[2] in TRIGGERS}:
            for service in self._starts(name):
                found.setdefault(service, set()).add(name)
                found.setdefault(template(service), set()).add(name)
        return found

    def _starts(self, name):
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
        prefix, _, instance = stem.partition("@")
        for mark, value in (("%i", instance), ("%I", instance), ("%p", prefix), ("%N", stem)):
            named = [word.replace(mark, value) for word in named]
        return named or [stem + ".service"]


def template(name):
    """The template of an instance: a@1.service -> a@.service; another name as it is."""
    return re.sub(r"@.*\.", "@.", name)


def drop_in_owners(name):
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
