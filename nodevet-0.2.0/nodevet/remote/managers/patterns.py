"""What another manager of a resource would have written, and where. Pure."""

import fnmatch
import re


class Patterns(object):
    """What to search for. Resources with equal `parts` share one search, except for `path`, which
    is searched in tmpfiles.d each time.

    words     a regular expression of a line of a script, a unit, a cron table, a udev rule
    services  services that manage it if they are enabled or running
    files     (path, regular expression of a line)
    tuned     a regular expression of a line of a tuned profile
    slurm     a regular expression of a line of slurm.conf
    path      a kernel file, as tmpfiles.d names it
    key       a sysctl, with dots
    module    a regular expression of a module's name; `loaded`: whether it is loaded
    unit      a unit in `words` whose own file does not count
    drop_ins  a unit whose other drop-ins may bind it to CPUs or memory
    package   a package that apt's preferences may pin
    """

    def __init__(
        self,
        words: "str | None" = None,
        services: "tuple[str, ...]" = (),
        files: "tuple[tuple[str, str], ...]" = (),
        tuned: "str | None" = None,
        slurm: "str | None" = None,
        path: "str | None" = None,
        key: "str | None" = None,
        module: "str | None" = None,
        loaded: bool = False,
        unit: "str | None" = None,
        drop_ins: "str | None" = None,
        package: "str | None" = None,
    ) -> None:
        self.words = re.compile(words) if words else None
        self.services = services
        self.files = files
        self.tuned = re.compile(tuned) if tuned else None
        self.slurm = re.compile(slurm) if slurm else None
        self.path = path
        self.key = key
        self.module = module
        self.loaded = loaded
        self.unit = unit
        self.drop_ins = drop_ins
        self.package = package
        self.parts = (words, services, files, tuned, slurm, key, module, loaded, drop_ins, package)


def pins(line: str, package: str) -> bool:
    """Whether a line of apt's preferences names a package; `*` does not count.

    >>> [pins("Package: " + word, "nvidia-utils") for word in ("nvidia-*", "/nvidia/", "*", "cuda")]
    [True, True, False, False]
    """
    key, colon, value = line.partition(":")
    if not colon or key.strip().lower() != "package":
        return False
    return any(names_package(word, package) for word in value.split())


def names_package(word: str, package: str) -> bool:
    """Whether a word of apt_preferences(5), a name, glob or /regex/, names a package."""
    if len(word) > 2 and word[0] == word[-1] == "/":
        try:
            return re.search(word[1:-1], package) is not None
        except re.error:
            return True  # it may
    word = word.partition(":")[0]
    return word != "*" and fnmatch.fnmatchcase(package, word)


def names_key(word: str, key: str) -> bool:
    """Whether a name or pattern in sysctl.d names a key."""
    return fnmatch.fnmatchcase(key, word.lstrip("-").replace("/", "."))
