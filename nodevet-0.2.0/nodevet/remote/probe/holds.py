"""The packages that dnf holds: by version locks, or by excluding them.

nodevet does not run dnf, which writes logs and caches even for a query. It reads dnf 4's list of
the plugin versionlock (`dnf versionlock add`), dnf5's /etc/dnf/versionlock.toml, and the excludes
of dnf.conf. A lock excludes all versions of a package that its entries do not admit. So an entry
without a version, or of another version, may hold nothing.
"""

import configparser
import fnmatch
import os

from nodevet.remote.probe.files import path_under, read
from nodevet.remote.probe.toml_rows import rows, single

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterable, Sequence, Set, Tuple

    Lock = Tuple[Callable[[str], bool], Set[str], str]

DNF5 = "/usr/bin/dnf5"
DNF4 = ("/usr/bin/dnf-3", "/usr/bin/dnf")
CONFIG = "/etc/dnf/dnf.conf"
PLUGIN = "/etc/dnf/plugins/versionlock.conf"
LOCKS = "/etc/dnf/versionlock.toml"
EXCLUDES = ("exclude", "excludepkgs")
NO_DNF = "there is no dnf: nodevet reads no other holds"
OTHER_VERSIONS = "dnf's version lock admits other versions than the installed: {}"


class Holds:
    """dnf's excludes, and its locks: see `dnf4_lock`."""

    def __init__(self, excluded: "Sequence[str]", locks: "Sequence[Lock]") -> None:
        self.excluded = excluded
        self.locks = locks

    def held(self, name: str, architecture: str, installed: "Iterable[str]") -> bool:
        """Whether dnf holds a package with these installed versions. Raises ValueError.

        >>> Holds([], [dnf4_lock("a-0:1.0-1.el9.*")]).held("a", "noarch", ["1.0-1.el9"])
        True
        """
        spellings = (name, "{}.{}".format(name, architecture))
        if any(
            fnmatch.fnmatchcase(spelling, glob) for spelling in spellings for glob in self.excluded
        ):
            return True
        installed_versions = {with_epoch(spelling) for spelling in installed}
        locks = [lock for lock in self.locks if lock[0](name)]
        for _, versions, entry in locks:
            if not any(spelling in versions for spelling in installed_versions):
                raise ValueError(OTHER_VERSIONS.format(entry[:80]))
        return bool(locks)


def with_epoch(version: str) -> str:
    """
    >>> with_epoch("1.0-1"), with_epoch("3:1.0-1")
    ('0:1.0-1', '3:1.0-1')
    """
    return version if ":" in version else "0:" + version


def dnf4_lock(entry: str) -> "Lock":
    """(function: may the entry match a name?, its versions, entry) of a line of the list.

    >>> about, versions, _ = dnf4_lock("kernel-core-0:5.14.0-427.el9.*")
    >>> about("kernel-core"), about("bash"), "0:5.14.0-427.el9" in versions
    (True, False, True)
    """
    epoch, colon, after_epoch = entry.partition(":")
    spec = (
        after_epoch if colon and epoch.isdigit() else entry
    )  # yum's: 0:kernel-core-5.14.0-427.el9
    without_arch = spec.rpartition(".")[0]
    globs = {
        text.rsplit("-", parts)[0] for text in (spec, without_arch) for parts in (0, 1, 2) if text
    }
    versions = set()
    for text in (spec, without_arch):
        words = text.rsplit("-", 2)
        if len(words) == 3:
            version = "-".join(words[1:])
            versions.add(epoch + ":" + version if spec is after_epoch else with_epoch(version))

    def about(name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, glob) for glob in globs)

    return about, versions, entry


def dnf4_locks(text: str) -> "list[Lock]":
    """The locks of the plugin's list; an entry with ! only excludes a version."""
    entries = [row.strip() for row in text.splitlines() if row.strip() and row[0] != "#"]
    return [dnf4_lock(entry) for entry in entries if entry[0] != "!"]


def dnf5_locks(text: str) -> "list[Lock]":
    """The locks of versionlock.toml: entries of a name and its conditions.

    >>> text = '[[packages]]\\nname = "a*"\\n[[packages.conditions]]\\nkey = "evr"\\n'
    >>> ((about, versions, _),) = dnf5_locks(text + 'comparator = "="\\nvalue = "0:1-1"')
    >>> about("ab"), versions
    (True, {'0:1-1'})
    """
    entries: "list[dict[str, Any]]" = []
    for key, value in rows(text):
        if key == ("packages",):
            entries.append({"name": "", "conditions": []})
        elif entries and key == ("packages", "name"):
            entries[-1]["name"] = single(value)
        elif entries and key[:2] == ("packages", "conditions") and len(key) == 2:
            entries[-1]["conditions"].append({} if value == "" else {"comparator": "not known"})
        elif entries and key[:2] == ("packages", "conditions") and entries[-1]["conditions"]:
            entries[-1]["conditions"][-1][key[2]] = single(value)
    return [lock for entry in entries for lock in dnf5_lock(entry["name"], entry["conditions"])]


def dnf5_lock(glob: str, conditions: "list[dict[str, str]]") -> "list[Lock]":
    if conditions and all(condition.get("comparator") == "!=" for condition in conditions):
        return []  # only excludes versions
    versions = [
        with_epoch(condition.get("value", ""))
        for condition in conditions
        if (condition.get("key"), condition.get("comparator")) == ("evr", "=")
    ]
    return [(lambda name: fnmatch.fnmatchcase(name, glob), set(versions), glob)]


def main_section(root: str, path: str) -> "dict[str, str] | None":
    """Section main of an INI file; None without the file. Raises OSError, ValueError."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(read(root, path))
    except FileNotFoundError:
        return None
    except configparser.Error:
        raise ValueError("{}: not an INI file".format(path))
    return dict(parser["main"]) if parser.has_section("main") else {}


def is_true(text: str) -> bool:
    return text.strip().lower() in ("1", "yes", "true", "on")


def holds(root: str) -> "Holds":
    """Raises OSError, ValueError."""
    is_dnf5 = os.path.exists(path_under(root, DNF5))
    if not is_dnf5 and not any(os.path.exists(path_under(root, path)) for path in DNF4):
        raise ValueError(NO_DNF)
    config = main_section(root, CONFIG) or {}
    excluded = [glob for key in EXCLUDES for glob in config.get(key, "").replace(",", " ").split()]
    if is_dnf5:
        try:
            return Holds(excluded, dnf5_locks(read(root, LOCKS)))
        except FileNotFoundError:
            return Holds(excluded, [])
    plugin = main_section(root, PLUGIN) if is_true(config.get("plugins", "1")) else None
    if plugin is None or not is_true(plugin.get("enabled", "1")) or not plugin.get("locklist"):
        return Holds(excluded, [])
    return Holds(excluded, dnf4_locks(read(root, plugin["locklist"].strip())))
