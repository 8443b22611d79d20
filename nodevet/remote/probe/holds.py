"""Which packages dnf keeps as they are: by version locks, or by excluding them altogether.

dnf itself is not run: it writes logs and caches even for a query. Of dnf 4 the list of its plugin
versionlock is read (`dnf versionlock add`), of dnf5 /etc/dnf/versionlock.toml, and of both what
dnf.conf excludes. A lock excludes all versions of a package but those that its entries admit, so
that one without a version, or of another one, holds nothing for certain.
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
NO_DNF = "there is no dnf: what else holds packages is not read"
LOOSE = "dnf's version lock admits other versions than the installed: {}"


class Holds:
    """What holds packages; `locks` are (pattern of the name, versions, entry), see `dnf4_lock`."""

    def __init__(self, excluded: "Sequence[str]", locks: "Sequence[Lock]") -> None:
        self.excluded = excluded
        self.locks = locks

    def held(self, name: str, architecture: str, installed: "Iterable[str]") -> bool:
        """Whether a package is held, of which these versions are installed. Raises ValueError.

        >>> Holds([], [dnf4_lock("a-0:1.0-1.el9.*")]).held("a", "noarch", ["1.0-1.el9"])
        True
        """
        full = (name, "{}.{}".format(name, architecture))
        if any(fnmatch.fnmatchcase(each, glob) for each in full for glob in self.excluded):
            return True
        there = {with_epoch(each) for each in installed}
        concern = [lock for lock in self.locks if lock[0](name)]
        for _, versions, entry in concern:
            if not any(each in versions for each in there):
                raise ValueError(LOOSE.format(entry[:80]))
        return bool(concern)


def with_epoch(version: str) -> str:
    """
    >>> with_epoch("1.0-1"), with_epoch("3:1.0-1")
    ('0:1.0-1', '3:1.0-1')
    """
    return version if ":" in version else "0:" + version


def dnf4_lock(entry: str) -> "Lock":
    """(whether it may be about a name, the versions that it states, itself) of a line of the list.

    >>> about, versions, _ = dnf4_lock("kernel-core-0:5.14.0-427.el9.*")
    >>> about("kernel-core"), about("bash"), "0:5.14.0-427.el9" in versions
    (True, False, True)
    """
    epoch, colon, rest = entry.partition(":")
    spec = rest if colon and epoch.isdigit() else entry  # yum's form: 0:kernel-core-5.14.0-427.el9
    bare = spec.rpartition(".")[0]
    globs = {text.rsplit("-", cut)[0] for text in (spec, bare) for cut in (0, 1, 2) if text}
    versions = set()
    for text in (spec, bare):
        words = text.rsplit("-", 2)
        if len(words) == 3:
            version = "-".join(words[1:])
            versions.add(epoch + ":" + version if spec is rest else with_epoch(version))

    def about(name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, glob) for glob in globs)

    return about, versions, entry


def dnf4_locks(text: str) -> "list[Lock]":
    """The locks of the plugin's list; an entry with ! excludes one version and holds nothing."""
    entries = [row.strip() for row in text.splitlines() if row.strip() and row[0] != "#"]
    return [dnf4_lock(entry) for entry in entries if entry[0] != "!"]


def dnf5_locks(text: str) -> "list[Lock]":
    """The locks of versionlock.toml: entries of a name, and conditions that all hold.

    >>> text = '[[packages]]\\nname = "a*"\\n[[packages.conditions]]\\nkey = "evr"\\n'
    >>> ((about, versions, _),) = dnf5_locks(text + 'comparator = "="\\nvalue = "0:1-1"')
    >>> about("ab"), versions
    (True, {'0:1-1'})
    """
    found: "list[dict[str, Any]]" = []
    for key, value in rows(text):
        if key == ("packages",):
            found.append({"name": "", "conditions": []})
        elif found and key == ("packages", "name"):
            found[-1]["name"] = single(value)
        elif found and key[:2] == ("packages", "conditions") and len(key) == 2:
            found[-1]["conditions"].append({} if value == "" else {"comparator": "not known"})
        elif found and key[:2] == ("packages", "conditions") and found[-1]["conditions"]:
            found[-1]["conditions"][-1][key[2]] = single(value)
    return [lock for entry in found for lock in dnf5_lock(entry["name"], entry["conditions"])]


def dnf5_lock(glob: str, conditions: "list[dict[str, str]]") -> "list[Lock]":
    if conditions and all(each.get("comparator") == "!=" for each in conditions):
        return []  # excludes versions, and holds nothing
    stated = [
        with_epoch(each.get("value", ""))
        for each in conditions
        if (each.get("key"), each.get("comparator")) == ("evr", "=")
    ]
    return [(lambda name: fnmatch.fnmatchcase(name, glob), set(stated), glob)]


def main_of(root: str, path: str) -> "dict[str, str] | None":
    """Section main of an INI file; None if there is no such file. Raises OSError, ValueError."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(read(root, path))
    except FileNotFoundError:
        return None
    except configparser.Error:
        raise ValueError("{}: not an INI file".format(path))
    return dict(parser["main"]) if parser.has_section("main") else {}


def yes(text: str) -> bool:
    return text.strip().lower() in ("1", "yes", "true", "on")


def holds(root: str) -> "Holds":
    """Raises OSError, ValueError."""
    is_dnf5 = os.path.exists(path_under(root, DNF5))
    if not is_dnf5 and not any(os.path.exists(path_under(root, path)) for path in DNF4):
        raise ValueError(NO_DNF)
    config = main_of(root, CONFIG) or {}
    excluded = [glob for key in EXCLUDES for glob in config.get(key, "").replace(",", " ").split()]
    if is_dnf5:
        try:
            return Holds(excluded, dnf5_locks(read(root, LOCKS)))
        except FileNotFoundError:
            return Holds(excluded, [])
    plugin = main_of(root, PLUGIN) if yes(config.get("plugins", "1")) else None
    if plugin is None or not yes(plugin.get("enabled", "1")) or not plugin.get("locklist"):
        return Holds(excluded, [])
    return Holds(excluded, dnf4_locks(read(root, plugin["locklist"].strip())))
