"""A package of dpkg or rpm."""

import re

from nodevet.remote.look import absent, present, require_this_machine, unknown
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.probe.collectors.packages import automatic_packages, has_dpkg
from nodevet.remote.probe.driver_rpms import manager, without_epoch_0
from nodevet.remote.probe.files import attempt, read
from nodevet.remote.probe.holds import dnf4_entries
from nodevet.remote.probe.zypper_locks import LOCKS, locked_names
from nodevet.remote.program import find_program, run

PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.:_~-]{0,200}\Z")


def look(root: str, name: str) -> "dict[str, object]":
    """{version, held} in dpkg's or rpm's database; with dpkg also `automatic`: apt-mark(8).

    A name of rpm may have its architecture: nvidia-driver.x86_64. `held`: by dnf or zypper. After
    a transaction that was killed, `version` is `1.2-1 (iU)` with dpkg, and `1.2-1, 1.3-1` with rpm.
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
        if code != 0 or len(words) != 2:
            return unknown("dpkg-query: {}".format(ascii(text.strip()[:80])))
        status = words[0]
        value = {
            "version": words[1] if status[1:] == "i" else "{} ({})".format(words[1], status),
            "held": words[0][0] == "h",
            "automatic": name in automatic_packages(),
        }
        return present(value)
    code, text, _ = run((find_program("rpm"), "-q", "--queryformat", "%{EVR}\\n", "--", name))
    rows = text.split()
    if code != 0:
        return absent() if "is not installed" in text else unknown("rpm failed")
    versions = ", ".join(sorted(map(without_epoch_0, rows)))
    return present({"version": versions, "held": is_locked(root, name)})


def is_locked(root: str, name: str) -> bool:
    """Whether zypper locks a package, or dnf where nodevet uses dnf; `name` may have its
    architecture."""
    names = {name, name.rpartition(".")[0]}
    if manager() == "zypper":
        return bool(names & locked_names(attempt(read, root, LOCKS)[0] or ""))
    return any(versionlocked(root, name) for name in names if name)


def versionlocked(root: str, name: str) -> bool:
    """Whether dnf's versionlock list names a package: [epoch:]name-version-release. Raises OSError,
    ValueError."""
    entry = re.compile(r"(?:[0-9]+:)?{}-[^-]+-[^-]+\Z".format(re.escape(name)))
    return any(map(entry.match, dnf4_entries(root)))


def patterns(root: str, name: str) -> "Patterns":
    """apt's preferences that pin it."""
    return Patterns(package=name.partition(":")[0])
