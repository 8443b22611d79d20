"""The packages that dnf holds: by version locks, or by excluding them.

nodevet does not run dnf, which writes logs and caches even for a query. It reads dnf 4's list of
the plugin versionlock (`dnf versionlock add`), dnf5's /etc/dnf/versionlock.toml, and the options
excludepkgs, includepkgs and disable_excludes of dnf.conf and the enabled repositories
(dnf.conf(5)), with dnf5 also those of its drop-in files and of the overrides of its repositories
(dnf5.conf(5), drop-in directories). A lock excludes all versions of a package that its entries do
not admit. So an entry without a version, or of another version, may hold nothing.
"""

import fnmatch
import os

from nodevet.remote.probe.files import attempt, names_or_empty, path_under, read, text_lines
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
INCLUDES = ("includepkgs",)
REPOSITORIES4 = ("/etc/yum.repos.d", "/etc/yum/repos.d", "/etc/distro.repos.d")
REPOSITORIES5 = ("/etc/yum.repos.d", "/etc/distro.repos.d", "/usr/share/dnf5/repos.d")
DROP_INS = ("/usr/share/dnf5/libdnf.conf.d", "/etc/dnf/libdnf5.conf.d")
OVERRIDES = ("/usr/share/dnf5/repos.override.d", "/etc/dnf/repos.override.d")
LOCKS_VERSION = "1.0"  # of versionlock.toml; dnf5 ignores a file of another one, or without one
NO_DNF = "there is no dnf: nodevet reads no other holds"
OTHER_VERSIONS = "dnf's version lock admits other versions than the installed: {}"
PARTLY = "only some repositories exclude it, or only some of its versions: {}"


class DnfOptions:
    """The options of a section of dnf's configuration, or of several for the same."""

    def __init__(self, *sections: "dict[str, str]") -> None:
        self.values: "dict[str, str]" = {}
        self.excludes: "list[str]" = []
        self.includes: "list[str]" = []
        for section in sections:
            self.add(section)

    def add(self, section: "dict[str, str]") -> None:
        self.values.update(section)
        self.excludes = added(self.excludes, section, EXCLUDES)
        self.includes = added(self.includes, section, INCLUDES)

    def words(self, key: str) -> "list[str]":
        return self.values.get(key, "").replace(",", " ").split()


class Holds:
    """dnf's excludes, and its locks: see `dnf4_lock`. `repositories`: the enabled ones, by id; None
    if they cannot be read, and `why`."""

    def __init__(
        self,
        main: "DnfOptions",
        locks: "Sequence[Lock]" = (),
        repositories: "dict[str, DnfOptions] | None" = None,
        why: str = "",
    ) -> None:
        self.main = main
        self.locks = locks
        self.repositories = repositories
        self.why = why

    def is_held(self, name: str, architecture: str, installed: "Iterable[str]") -> bool:
        """Whether dnf holds a package with these installed versions. Raises ValueError.

        >>> holds = Holds(DnfOptions(), [dnf4_lock("a-0:1.0-1.el9.*")])
        >>> holds.is_held("a", "noarch", ["1.0-1.el9"])
        True
        """
        if matching(spellings(name, architecture), self.main.excludes):
            return True
        installed_versions = {with_epoch(version) for version in installed}
        locks = [lock for lock in self.locks if lock[0](name)]
        for _, versions, entry in locks:
            if not any(version in versions for version in installed_versions):
                raise ValueError(OTHER_VERSIONS.format(entry[:80]))
        if locks:
            return True
        excluded = self.excluded(name, architecture)
        partly = [id for id, answer in excluded.items() if answer is not False]
        if partly and not all(excluded.values()):
            raise ValueError(PARTLY.format(", ".join(partly)[:80]))
        return bool(partly)

    def excluded(self, name: str, architecture: str) -> "dict[str, bool | None]":
        """Whether dnf excludes every version of a package, by repository; None: only some. Raises
        ValueError.

        >>> Holds(DnfOptions({"includepkgs": "b*"}), repositories={}).excluded("a", "noarch")
        {'main': True}
        """
        if self.repositories is None:
            raise ValueError(self.why)
        return {
            id: excludes(spellings(name, architecture), self.main, options)
            for id, options in (self.repositories or {"main": DnfOptions()}).items()
        }


def spellings(name: str, architecture: str) -> "tuple[str, str]":
    return name, "{}.{}".format(name, architecture)


def excludes(names: "Sequence[str]", main: "DnfOptions", repository: "DnfOptions") -> "bool | None":
    """Whether dnf excludes every version of a package in a repository; None: only some versions.

    A list of includes excludes all other packages. That of dnf.conf excludes installed ones too, so
    dnf does not upgrade them, whatever the repository includes.
    """
    included = main.includes or repository.includes
    if matching(names, main.excludes + repository.excludes):
        return True
    if not included or matching(names, included):
        return False
    return None if any(may_name_versions(glob, names[0]) for glob in included) else True


def may_name_versions(glob: str, name: str) -> bool:
    """
    >>> [may_name_versions(glob, "a-b") for glob in ("a-b-1.2*", "a-b-1-1.x86_64", "a-*", "c-1")]
    [True, True, False, False]
    """
    return any(map(str.isdigit, glob)) and dnf4_lock(glob)[0](name)


def matching(names: "Iterable[str]", globs: "Sequence[str]") -> bool:
    """Whether a glob matches one of these names."""
    return any(fnmatch.fnmatchcase(name, glob) for glob in globs for name in names)


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

    def is_named(name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, glob) for glob in globs)

    return is_named, versions, entry


def dnf4_entries(root: str) -> "list[str]":
    """The entries of the plugin's list; one with ! only excludes a version. Raises OSError,
    ValueError."""
    plugin = main_section(root, PLUGIN)
    if plugin is None or not is_true(plugin.get("enabled", "1")) or not plugin.get("locklist"):
        return []
    rows = text_lines(read(root, plugin["locklist"].strip()))
    return [row.strip() for row in rows if row.strip() and row[0] != "#"]


def dnf5_locks(text: str) -> "list[Lock]":
    """The locks of versionlock.toml: entries of a name and its conditions.

    >>> text = 'version = "1.0"\\n[[packages]]\\nname = "a*"\\n[[packages.conditions]]\\n'
    >>> text += 'key = "evr"\\ncomparator = "="\\nvalue = "0:1-1"'
    >>> ((about, versions, _),) = dnf5_locks(text)
    >>> about("ab"), versions
    (True, {'0:1-1'})
    """
    entries: "list[dict[str, Any]]" = []
    version = ""
    for key, value in rows(text):
        if key == ("version",):
            version = single(value)
        elif key == ("packages",):
            entries.append({"name": "", "conditions": []})
        elif entries and key == ("packages", "name"):
            entries[-1]["name"] = single(value)
        elif entries and key[:2] == ("packages", "conditions") and len(key) == 2:
            entries[-1]["conditions"].append({} if value == "" else {"comparator": "not known"})
        elif entries and key[:2] == ("packages", "conditions") and entries[-1]["conditions"]:
            entries[-1]["conditions"][-1][key[2]] = single(value)
    if version != LOCKS_VERSION:
        return []
    return [lock for entry in entries for lock in dnf5_lock(entry["name"], entry["conditions"])]


def dnf5_lock(glob: str, conditions: "list[dict[str, str]]") -> "list[Lock]":
    if all(condition.get("comparator") in ("!=", "<>") for condition in conditions):
        return []  # it only excludes versions, or locks nothing without conditions
    versions = [
        with_epoch(condition.get("value", ""))
        for condition in conditions
        if (condition.get("key"), condition.get("comparator")) == ("evr", "=")
    ]
    return [(lambda name: fnmatch.fnmatchcase(name, glob), set(versions), glob)]


def main_section(root: str, path: str) -> "dict[str, str] | None":
    """Section main of an INI file; None without it. Raises OSError, ValueError."""
    return ini_sections(root, path).get("main")


def ini_sections(root: str, path: str) -> "dict[str, dict[str, str]]":
    """The sections of an INI file; none without the file. Raises OSError, ValueError."""
    import configparser  # only nodes with rpm have such a file

    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(read(root, path))
    except FileNotFoundError:
        return {}
    except configparser.Error:
        raise ValueError("{}: not an INI file".format(path))
    return {name: dict(parser[name]) for name in parser.sections()}


def drop_ins(root: str, folders: "Sequence[str]", ending: str) -> "list[str]":
    """The paths of the drop-in files of two folders, in dnf5's order: a file in the second folder
    replaces one of its name in the first one. Raises OSError, ValueError."""
    paths = {
        name: "{}/{}".format(folder, name)
        for folder in folders
        for name in names_or_empty(root, folder)
        if name.endswith(ending)
    }
    return [paths[name] for name in sorted(paths)]


def added(globs: "Sequence[str]", options: "dict[str, str]", keys: "Sequence[str]") -> "list[str]":
    """A list after the options of one more section: their values are added, but an empty value, or
    one that begins with a comma, first removes the earlier ones.

    >>> added(["a"], {"exclude": "b c"}, EXCLUDES), added(["a"], {"excludepkgs": ",b"}, EXCLUDES)
    (['a', 'b', 'c'], ['b'])
    """
    result = list(globs)
    for value in (value.strip() for key, value in options.items() if key in keys):
        result = ([] if not value or value[0] == "," else result) + value.replace(",", " ").split()
    return result


def enabled_repositories(root: str, main: "DnfOptions", is_dnf5: bool) -> "dict[str, DnfOptions]":
    """The enabled repositories, by id. If several have one id, dnf takes the first. Raises OSError,
    ValueError."""
    folders = main.words("reposdir") or (REPOSITORIES5 if is_dnf5 else REPOSITORIES4)
    files = [
        "{}/{}".format(folder, name)
        for folder in folders
        for name in sorted(names_or_empty(root, folder))
        if name.endswith(".repo")
    ]
    repositories: "dict[str, DnfOptions]" = {}
    for path in [CONFIG] + files:
        for id, section in ini_sections(root, path).items():
            if id != "main":
                repositories.setdefault(id, DnfOptions(section))
    for path in drop_ins(root, OVERRIDES, ".repo") if is_dnf5 else ():
        for glob, section in ini_sections(root, path).items():
            for id in fnmatch.filter(repositories, glob):
                repositories[id].add(section)
    return {
        id: options
        for id, options in repositories.items()
        if is_true(options.values.get("enabled", "1"))
    }


def ignore_disabled(
    sections: "dict[str, DnfOptions]", words: "Sequence[str]", is_dnf5: bool
) -> None:
    """Remove the lists that `disable_excludes` turns off: all, those of main, or of repositories,
    with dnf5 by globs."""
    for id, options in sections.items():
        is_glob = is_dnf5 and id != "main" and matching([id], words)
        if is_glob or not {"*" if is_dnf5 else "all", id}.isdisjoint(words):
            options.excludes, options.includes = [], []


def is_true(text: str) -> bool:
    return text.strip().lower() in ("1", "yes", "true", "on")


def runs_dnf5(root: str) -> bool:
    """Whether the command dnf is dnf5. Where both are installed, it links to one of them."""
    command = os.path.basename(os.path.realpath(path_under(root, DNF4[1])))
    return os.path.exists(path_under(root, DNF5)) and command in ("dnf", "dnf5")


def holds(root: str) -> "Holds":
    """Raises OSError, ValueError."""
    is_dnf5 = runs_dnf5(root)
    if not is_dnf5 and not any(os.path.exists(path_under(root, path)) for path in DNF4):
        raise ValueError(NO_DNF)
    paths = (drop_ins(root, DROP_INS, ".conf") if is_dnf5 else []) + [CONFIG]
    main = DnfOptions(*(main_section(root, path) or {} for path in paths))
    repositories, why = attempt(enabled_repositories, root, main, is_dnf5)
    disabled = main.words("disable_excludes")
    ignore_disabled(dict(repositories or {}, main=main), disabled, is_dnf5)
    return Holds(main, locks(root, main, is_dnf5), repositories, why)


def locks(root: str, main: "DnfOptions", is_dnf5: bool) -> "list[Lock]":
    """Raises OSError, ValueError."""
    if is_dnf5:
        try:
            return dnf5_locks(read(root, LOCKS))
        except FileNotFoundError:
            return []
    entries = dnf4_entries(root) if is_true(main.values.get("plugins", "1")) else []
    return [dnf4_lock(entry) for entry in entries if entry[0] != "!"]
