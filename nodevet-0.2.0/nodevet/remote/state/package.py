"""A package of dpkg or rpm."""

import re

from nodevet.remote.look import absent, present, require_this_machine, unknown
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.probe.collectors.packages import automatic_packages, has_dpkg
from nodevet.remote.probe.driver_rpms import without_epoch_0
from nodevet.remote.probe.files import attempt, read
from nodevet.remote.probe.zypper_locks import LOCKS, locked_names
from nodevet.remote.program import find_program, run

PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.:_~-]{0,200}\Z")
VERSIONLOCKS = ("/etc/dnf/plugins/versionlock.list", "/etc/yum/pluginconf.d/versionlock.list")


def look(root: str, name: str) -> "dict[str, object]":
    """{version, held} in dpkg's or rpm's database; with dpkg also `automatic`: apt-mark(8).

    A name of rpm may have its architecture: nvidia-driver.x86_64. `held`: by dnf or zypper.
    """
    require_this_machine(root)
    if not PACKAGE.match(name):
        raise ValueError("not a valid package name")
    if has_dpkg():
        query, row = find_program("dpkg-query"), "--showformat=${db:Status-Abbrev} ${Version}\\n"
        code, text, _ = run((query, "--show", row, name))
        words = text.split()  # ii 1.2.3, hi 1.2.3, rc 1.2.3, un
        if code == 1 or (words and words[0][1:] in ("n", "c")):
            return absent()  # never installed, or only its configuration is left
        if code != 0 or len(words) != 2 or words[0][1:] != "i":
            return unknown("dpkg-query: not fully installed: {}".format(ascii(text.strip()[:80])))
        value = {
            "version": words[1],
            "held": words[0][0] == "h",
            "automatic": name in automatic_packages(),
        }
        return present(value)
    code, text, _ = run((find_program("rpm"), "-q", "--queryformat", "%{EVR}\\n", "--", name))
    rows = text.split()
    if code != 0:
        return absent() if "is not installed" in text else unknown("rpm failed")
    if len(rows) != 1:
        return unknown("{} versions are installed".format(len(rows)), exists=True)
    return present({"version": without_epoch_0(rows[0]), "held": is_locked(root, name)})


def is_locked(root: str, name: str) -> bool:
    """Whether dnf or zypper locks a package; `name` may have its architecture."""
    names = {name, name.rpartition(".")[0]}
    zypper_names = locked_names(attempt(read, root, LOCKS)[0] or "")
    return bool(names & zypper_names) or any(versionlocked(root, name) for name in names if name)


def versionlocked(root: str, name: str) -> bool:
    """Whether a versionlock list names a package: [epoch:]name-version-release."""
    entry = re.compile(r"(?:[0-9]+:)?{}-[^-]+-[^-]+\Z".format(re.escape(name)))
    for path in VERSIONLOCKS:
        text = attempt(read, root, path)[0] or ""
        if any(entry.match(row.strip()) for row in text.splitlines()):
            return True
    return False


def patterns(root: str, name: str) -> "Patterns":
    """apt's preferences that pin it."""
    return Patterns(package=name.partition(":")[0])
