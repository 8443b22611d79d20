"""Where settings of a node are written down: files, line by line. Never runs any of them."""

import os
import re
import shlex

from nodevet.probe.files import names, path_under, read_bytes, reason

LIMIT = 1 << 18  # bytes of a file; the rest of a longer one is not read
SCRIPTS = 8  # named in one line
ETC = ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")  # first wins
GENERATED = ["/run/systemd/generator" + end for end in ("", ".early", ".late")]
OURS = re.compile(r"(?:[0-9]+-)?nodevet-")
EXEC = re.compile(r"\s*Exec[A-Za-z]*\s*=\s*[-@:+!|]*(.*)")
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
SINGLE = ("/etc/crontab", "/etc/rc.local", "/etc/rc.d/rc.local", "/etc/rc.d/boot.local")


class Node(object):
    """The files of one node, each read once. `unread`: those that could not be, with why."""

    def __init__(self, root):
        self.root = root
        self.unread = {}
        self.known = {}

    def lines(self, path):
        """(number, line) of those that say something; those that go on are put together."""
        if path not in self.known:
            self.known[path] = list(self._lines(path))
        return self.known[path]

    def _lines(self, path):
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

    def text(self, path):
        try:
            return read_bytes(self.root, path, LIMIT).decode("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return ""
        except OSError as error:
            self.unread[path] = reason(error)
            return ""

    def entries(self, path, end=""):
        """The names in a folder, ours left out; none where there is no folder."""
        try:
            found = names(self.root, path)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except (OSError, ValueError) as error:
            self.unread[path] = reason(error)
            return []
        return [name for name in found if name.endswith(end) and not OURS.match(name)]

    def drop_in_folder(self, kind):
        """Paths of /etc/<kind>, /run/<kind>, ...; of equal names the first, as systemd has it."""
        chosen = {}
        for top in ETC:
            for name in self.entries(top + "/" + kind, ".conf"):
                chosen.setdefault(name, top + "/" + kind + "/" + name)
        return [chosen[name] for name in sorted(chosen)]

    def units(self):
        """name -> path of every service, the one that systemd takes; masked ones left out."""
        chosen = {}
        for folder in [top + "/systemd/system" for top in ETC] + GENERATED:
            for name in self.entries(folder, ".service"):
                chosen.setdefault(name, folder + "/" + name)
        return {name: path for name, path in chosen.items() if not self.is_masked(path)}

    def is_masked(self, path):
        return os.path.realpath(path_under(self.root, path)) == "/dev/null"

    def unit_files(self, name, path):
        """The file of a unit and its drop-ins."""
        yield path
        for drop_in in self.drop_ins(name):
            yield drop_in

    def drop_ins(self, name):
        """Paths of a unit's drop-ins, in every folder where systemd looks for them."""
        for top in ETC:
            for owner in drop_in_owners(name):
                folder = "{}/systemd/system/{}.d".format(top, owner)
                for entry in self.entries(folder, ".conf"):
                    yield folder + "/" + entry

    def enabled(self):
        """Names of the units that another one starts: links in *.wants and *.requires."""
        found = set()
        for top in [top + "/systemd/system" for top in ETC] + GENERATED:
            for folder in self.entries(top):
                if folder.endswith((".wants", ".requires")):
                    for name in self.entries(top + "/" + folder):
                        found.update((name, re.sub(r"@.*\.", "@.", name)))
        for name in list(found):
            stem, _, kind = name.rpartition(".")
            if kind in ("timer", "path", "socket"):
                found.add(stem + ".service")
        return found

    def jobs(self):
        """Paths of what cron and rc.local run."""
        for path in SINGLE:
            yield path
        for folder in CRON:
            for name in self.entries(folder):
                yield folder + "/" + name

    def rules(self):
        """Paths of udev's rules."""
        chosen = {}
        for top in ETC:
            for name in self.entries(top + "/udev/rules.d", ".rules"):
                chosen.setdefault(name, top + "/udev/rules.d/" + name)
        return chosen.values()

    def scripts(self, line):
        """Paths of the scripts that a line names."""
        try:
            words = shlex.split(line)
        except ValueError:
            words = line.split()
        inner = [part for word in words for part in re.split(r"[\s;|&()]+", word)]
        paths = [word for word in inner if word.startswith("/")]
        return [path for path in paths[:SCRIPTS] if self.is_script(path)]

    def is_script(self, path):
        try:
            return read_bytes(self.root, path, 2) == b"#!"
        except (OSError, ValueError):
            return False


def drop_in_owners(name):
    """Whose drop-ins a unit has: its own, its template's, a prefix's, its type's (systemd.unit(5)).

    >>> drop_in_owners("a-b@c.service")
    ['a-b@c.service', 'a-b@.service', 'a-.service', 'service']
    """
    stem, _, kind = name.rpartition(".")
    prefix, template, _ = stem.partition("@")
    owners = [name] + (["{}@.{}".format(prefix, kind)] if template else [])
    while "-" in prefix.rstrip("-"):
        prefix = prefix.rstrip("-")
        prefix = prefix[: prefix.rindex("-") + 1]
        owners.append("{}.{}".format(prefix, kind))
    return owners + [kind]
