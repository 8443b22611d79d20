"""The NVIDIA driver's packages, and the versions of them that the node's repositories have.

A baseline asks with what it wants of the driver, `>=550,<560`: if the running driver is that
already, nothing is read. Of Debian and its kin dpkg-query and apt-cache are asked, of the
others rpm; they use neither the network nor a lock, and apt-cache is kept from writing caches.
"""

import os

from nodevet.remote.probe.files import (
    Absent,
    Reading,
    SectionError,
    TransientError,
    attempt,
    line,
    quote,
    read,
    reason,
)
from nodevet.remote.probe.package_manager import AT_WORK, is_at_work
from nodevet.remote.probe.patterns import Pattern
from nodevet.remote.program import find, printed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

RUNNING = "/sys/module/nvidia/version"
DPKG = "/var/lib/dpkg/status"
RPM = ("/var/lib/rpm", "/usr/lib/sysimage/rpm")
STATES = "/var/lib/apt/extended_states"
SECONDS = 20  # for one program
OUTPUT = 8 << 20  # bytes
MOST = 300  # packages
OFFERS = 200  # versions of one package, the highest
NOT_ASKED = "the probe was not asked for it"
AS_WANTED = "the running driver is as expected, so packages were not read"
NOT_INSTALLED = "not installed"
NO_DNF = "dnf is not queried: it writes logs and caches even for a query"

ROW = "${db:Status-Abbrev}\\t${binary:Package}\\t${Architecture}\\t${Version}\\n"
WITHOUT_CACHES = ("-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=")
NAME = Pattern(r"[a-z0-9][a-z0-9+.-]{0,200}(?::[a-z0-9-]{1,20})?\Z")
VERSION = Pattern(r"[0-9A-Za-z][0-9A-Za-z.+:~^-]{0,120}\Z")
OF_NVIDIA = Pattern(
    r"(?:lib|a?kmod-|dkms-|firmware-|glx-alternative-|xserver-xorg-video-|xorg-x11-drv-"
    r"|linux-(?:modules|objects|signatures)-)?nvidia(?:[0-9-]|\Z)|cuda-drivers(?:-|\Z)"
)
CLAUSE = Pattern(r"(==|!=|>=|<=|>|<|)\s*([0-9]{1,9}(?:\.[0-9]{1,9}){0,4})(\.\*)?\Z")
NUMBERS = Pattern(r"[0-9]{1,9}(?:\.[0-9]{1,9}){0,4}\Z")
CARRIED = Pattern(r"(?:[0-9]+:)?([0-9]{2,4}(?:\.[0-9]+){1,2})(?=[-+~]|\Z)")


def carried(version: str) -> "str | None":
    """The driver's version in a package's, None if it has none.

    >>> carried("1:550.90.07-0ubuntu0.22.04.1"), carried("6.8.0-40.40+1")
    ('550.90.07', None)
    """
    match = CARRIED.match(version)
    return match.group(1) if match and int(match.group(1).split(".")[0]) >= 100 else None


def fits(version: str, specifier: str) -> bool:
    """Whether a version is admitted for certain; what is beyond plain numbers is not.

    >>> fits("550.90.07", ">=550,<560"), fits("550.90.07", "550.*"), fits("550.90.07", "~=550")
    (True, True, False)
    """
    if not NUMBERS.match(version):
        return False
    ours = [int(part) for part in version.split(".")]
    for clause in specifier.split(","):
        match = CLAUSE.match(clause.strip())
        if match is None:
            return False
        sign, text, star = match.groups()
        if star and sign not in ("", "==", "!="):
            return False
        theirs = [int(part) for part in text.split(".")]
        if star:
            mine = (ours + [0] * len(theirs))[: len(theirs)]
        else:
            longest = max(len(ours), len(theirs))
            mine = ours + [0] * (longest - len(ours))
            theirs = theirs + [0] * (longest - len(theirs))
        if not {
            "": mine == theirs,
            "==": mine == theirs,
            "!=": mine != theirs,
            ">=": mine >= theirs,
            "<=": mine <= theirs,
            ">": mine > theirs,
            "<": mine < theirs,
        }[sign]:
            return False
    return True


def parse_installed(text: str) -> "list[list[str]]":
    """(state, name, architecture, version) of each row of dpkg-query. Raises ValueError."""
    rows = [row.split("\t") for row in text.split("\n") if row]
    for row in rows:
        if len(row) != 4:
            raise ValueError("not a row of dpkg-query: " + quote("\t".join(row)))
    return rows


def parse_offers(text: str) -> "dict[str, list[str]]":
    """{name: versions}, the highest first, from `apt-cache madison`. Raises ValueError.

    >>> parse_offers(" a | 1:2-1 | file:/r ./ Packages\\n a | 1:1-1 | http://h x/main Sources")
    {'a': ['1:2-1']}
    """
    found: "dict[str, list[str]]" = {}
    for row in text.splitlines():
        words = [word.strip() for word in row.split(" | ")]
        if len(words) != 3:
            raise ValueError("not a row of apt-cache madison: " + quote(row))
        name, version, source = words
        if source.endswith(" Packages") and NAME.match(name) and VERSION.match(version):
            versions = found.setdefault(name, [])
            if version not in versions and len(versions) < OFFERS:
                versions.append(version)
    return found


def parse_states(text: str) -> "set[str]":
    """Packages that came with others, from apt's extended_states: by name, and name:architecture.

    >>> sorted(parse_states("Package: a\\nArchitecture: amd64\\nAuto-Installed: 1\\n"))
    ['a', 'a:amd64']
    """
    found: "set[str]" = set()
    for block in text.split("\n\n"):
        rows = dict(row.split(": ", 1) for row in block.split("\n") if ": " in row)
        if rows.get("Auto-Installed") == "1" and "Package" in rows:
            found.update((rows["Package"], rows["Package"] + ":" + rows.get("Architecture", "")))
    return found


def automatic() -> "set[str]":
    """Names of the packages that were installed for others only. Raises OSError, ValueError."""
    try:
        return parse_states(read("/", STATES))
    except FileNotFoundError:
        return set()


def package(name: str, state: str, version: str) -> "Reading":
    """What dpkg says of an installed package."""
    record = Reading(name=name)
    if state.strip()[1:] == "i" and VERSION.match(version):
        record["version"] = version
    else:
        record.fail("version", "dpkg: not fully installed: {}".format(quote(state.strip())))
    record["held"] = state[:1] == "h"
    return record


def of_dpkg(running: "str | None") -> "list[Reading]":
    """The driver's packages with what apt has of them. Raises SectionError."""
    query = find("dpkg-query")
    try:
        rows = parse_installed(printed((query, "--show", "--showformat=" + ROW), SECONDS, OUTPUT))
    except ValueError as error:
        raise SectionError(reason(error))
    there = [row for row in rows if row[0][1:2] not in ("n", "c") and NAME.match(row[1])]
    native = [architecture for _, name, architecture, _ in there if name == "dpkg"]
    packages = [
        package(name, state, version)
        for state, name, _, version in there
        if belongs(name, version, running)
    ]
    if len(packages) > MOST:
        raise SectionError("more than {} NVIDIA packages are installed".format(MOST))
    if any("version" in each["errors"] for each in packages) and is_at_work("/"):
        raise TransientError(AT_WORK)
    names, why = attempt(automatic)
    for each in packages:
        if names is None:
            each.fail("automatic", why)
        else:
            each["automatic"] = each["name"] in names
    return packages + offered(packages, running, native[0] if native else "")


def offered(packages: "list[Reading]", running: "str | None", native: str) -> "list[Reading]":
    """Give each package its offers; returns those that take the place of one of these.

    The driver's version is in the name of some: nvidia-firmware-550-550.90.07.
    """
    named = [each["name"] for each in packages]
    stems = [
        name[: -len(running)]
        for name in (name.partition(":")[0] for name in named)
        if running and name.endswith("-" + running)
    ]
    try:
        successors = sorted({name for stem in stems for name in beginning_with(stem)})
        found = madison(named + [name for name in successors if name not in named])
    except (SectionError, ValueError) as error:
        why = str(error) if isinstance(error, SectionError) else reason(error)
        for each in packages:
            each.fail("offers", why)
        return []
    for each in packages:
        name, _, architecture = each["name"].partition(":")
        short = name if architecture in ("", native) else each["name"]
        each["offers"] = found.pop(short, [])
    others = [Reading(name=name, offers=found[name]) for name in successors if name in found]
    for each in others:
        each.fail_all(("version", "held", "automatic"), NOT_INSTALLED)
    return others


def beginning_with(stem: str) -> "list[str]":
    """Names of packages, known to apt, of which a driver's version is all that is left. Raises
    SectionError."""
    names = apt_cache("pkgnames", "--", stem).split()
    found = [name for name in names if name.startswith(stem) and NUMBERS.match(name[len(stem) :])]
    return found[:MOST]


def madison(names: "Sequence[str]") -> "dict[str, list[str]]":
    """What the repositories have of these packages. Raises SectionError, ValueError."""
    return parse_offers(apt_cache("madison", "--", *names)) if names else {}


def apt_cache(*words: str) -> str:
    path = find("apt-cache")
    return printed((path,) + WITHOUT_CACHES + words, SECONDS, OUTPUT)


def of_rpm(running: "str | None") -> "list[Reading]":
    """The driver's packages; what the repositories have is not known. Raises SectionError."""
    rpm = find("rpm")
    text = printed((rpm, "-qa", "--queryformat", "%{NAME}\\t%{EVR}\\n"), SECONDS, OUTPUT)
    found = {}
    for row in text.split("\n"):
        name, tab, version = row.partition("\t")
        if not tab or not belongs(name, version, running):
            continue
        record = Reading(name=name, version=version)
        if name in found:
            record.fail("version", "several versions are installed")
        record.fail_all(("held", "automatic", "offers"), NO_DNF)
        found[name] = record
    if len(found) > MOST:
        raise SectionError("more than {} NVIDIA packages are installed".format(MOST))
    return list(found.values())


def belongs(name: str, version: str, running: "str | None") -> bool:
    """Whether it is a package of NVIDIA's driver, or may be: by its name or its version."""
    return bool(OF_NVIDIA.match(name)) or (running is not None and carried(version) == running)


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    asked = request.get("asks", {}).get("packages", ())
    if root != "/":
        raise Absent("packages are read on a running machine only")
    running = attempt(line, root, RUNNING)[0]
    found = Reading()
    if not asked or (running and all(fits(running, text) for text in asked)):
        found.fail_all(("manager", "packages"), AS_WANTED if asked else NOT_ASKED)
    elif os.path.isfile(DPKG):
        found.update(manager="dpkg", packages=of_dpkg(running))
    elif any(os.path.isdir(folder) for folder in RPM):
        found.update(manager="rpm", packages=of_rpm(running))
    else:
        raise Absent("neither dpkg nor rpm has a database here")
    return found
