"""A package of dpkg or rpm."""

import os
import re

from nodevet.remote.look import absent, of_this_machine, seen, unseen
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.probe.collectors.packages import automatic
from nodevet.remote.probe.files import attempt, read
from nodevet.remote.program import find, run

PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.:_~-]{0,200}\Z")
VERSIONLOCKS = ("/etc/dnf/plugins/versionlock.list", "/etc/yum/pluginconf.d/versionlock.list")


def look(root: str, name: str) -> "dict[str, object]":
    """{version, held}, of dpkg's or of rpm's database; `automatic` in apt's: apt-mark(8)."""
    of_this_machine(root)
    if not PACKAGE.match(name):
        raise ValueError("not a valid package name")
    if os.path.isfile("/var/lib/dpkg/status"):
        query, row = find("dpkg-query"), "--showformat=${db:Status-Abbrev} ${Version}\\n"
        code, text, _ = run((query, "--show", row, name))
        words = text.split()  # ii 1.2.3, hi 1.2.3, rc 1.2.3, un
        if code == 1 or (words and words[0][1:] in ("n", "c")):
            return absent()  # never installed, or only its configuration is left
        if code != 0 or len(words) != 2 or words[0][1:] != "i":
            return unseen("dpkg-query: not fully installed: {}".format(ascii(text.strip()[:80])))
        value = {"version": words[1], "held": words[0][0] == "h", "automatic": name in automatic()}
        return seen(value)
    code, text, _ = run((find("rpm"), "-q", "--queryformat", "%{EVR}\\n", "--", name))
    rows = text.split()
    if code != 0:
        return absent() if "is not installed" in text else unseen("rpm failed")
    if len(rows) != 1:
        return unseen("{} versions are installed".format(len(rows)), exists=True)
    return seen({"version": rows[0], "held": versionlocked(root, name)})


def versionlocked(root: str, name: str) -> bool:
    """Whether a versionlock list names a package: [epoch:]name-version-release."""
    entry = re.compile(r"(?:[0-9]+:)?{}-[^-]+-[^-]+\Z".format(re.escape(name)))
    for path in VERSIONLOCKS:
        text = attempt(read, root, path)[0] or ""
        if any(entry.match(row.strip()) for row in text.splitlines()):
            return True
    return False


def patterns(root: str, name: str) -> "Patterns":
    """Who pins it."""
    return Patterns(package=name.partition(":")[0])
