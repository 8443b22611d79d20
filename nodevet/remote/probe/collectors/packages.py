"""The NVIDIA driver's packages, and their versions in the node's repositories.

The request has the baseline's specifier of the driver, `>=550,<560`; if the running driver fits,
nothing is read. Debian's family uses dpkg-query and apt-cache, others rpm, dnf and zypper. They use
neither the network nor a lock, and may not write caches.
"""

import os

from nodevet.remote.probe.driver_names import is_of_driver
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
    text_lines,
)
from nodevet.remote.probe.package_manager import BUSY, is_busy
from nodevet.remote.probe.patterns import Pattern
from nodevet.remote.program import find_program, output_of

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
AS_EXPECTED = "the running driver is as expected, so packages were not read"
NOT_INSTALLED = "not installed"

FIELDS = ("manager", "packages", "can_lock", "streams", "profiles")
ROW = "${db:Status-Abbrev}\\t${binary:Package}\\t${Architecture}\\t${Version}\\n"
WITHOUT_CACHES = ("-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=")
NAME = Pattern(r"[a-z0-9][a-z0-9+.-]{0,200}(?::[a-z0-9-]{1,20})?\Z")
VERSION = Pattern(r"[0-9A-Za-z][0-9A-Za-z.+:~^-]{0,120}\Z")
CLAUSE = Pattern(r"(==|!=|>=|<=|>|<|)\s*([0-9]{1,9}(?:\.[0-9]{1,9}){0,4})(\.\*)?\Z")
NUMBERS = Pattern(r"[0-9]{1,9}(?:\.[0-9]{1,9}){0,4}\Z")


def is_admitted(version: str, specifier: str) -> bool:
    """Whether a specifier certainly admits a version; False beyond plain numbers.

    >>> [is_admitted("550.90.07", text) for text in (">=550,<560", "550.*", "~=550")]
    [True, True, False]
    """
    if not NUMBERS.match(version):
        return False
    version_numbers = [int(part) for part in version.split(".")]
    for clause in specifier.split(","):
        match = CLAUSE.match(clause.strip())
        if match is None:
            return False
        sign, text, star = match.groups()
        if star and sign not in ("", "==", "!="):
            return False
        limit = [int(part) for part in text.split(".")]
        if star:
            compared = (version_numbers + [0] * len(limit))[: len(limit)]
        else:
            longest = max(len(version_numbers), len(limit))
            compared = version_numbers + [0] * (longest - len(version_numbers))
            limit = limit + [0] * (longest - len(limit))
        if not {
            "": compared == limit,
            "==": compared == limit,
            "!=": compared != limit,
            ">=": compared >= limit,
            "<=": compared <= limit,
            ">": compared > limit,
            "<": compared < limit,
        }[sign]:
            return False
    return True


def has_dpkg() -> bool:
    """Whether packages are dpkg's; a machine with rpm may have an empty status file of dpkg."""
    return os.path.isfile(DPKG) and os.path.getsize(DPKG) > 0


def parse_installed(text: str) -> "list[list[str]]":
    """(state, name, architecture, version) of each row of dpkg-query. Raises ValueError."""
    rows = [row.split("\t") for row in text.split("\n") if row]
    for row in rows:
        if len(row) != 4:
            raise ValueError("not a row of dpkg-query: " + quote("\t".join(row)))
    return rows


def parse_offers(text: str) -> "dict[str, list[str]]":
    """{name: versions, highest first} of `apt-cache madison`. Raises ValueError.

    >>> parse_offers(" a | 1:2-1 | file:/r ./ Packages\\n a | 1:1-1 | http://h x/main Sources")
    {'a': ['1:2-1']}
    """
    offers: "dict[str, list[str]]" = {}
    for row in text_lines(text):
        words = [word.strip() for word in row.split(" | ")]
        if len(words) != 3:
            raise ValueError("not a row of apt-cache madison: " + quote(row))
        name, version, source = words
        if source.endswith(" Packages") and NAME.match(name) and VERSION.match(version):
            versions = offers.setdefault(name, [])
            if version not in versions and len(versions) < OFFERS:
                versions.append(version)
    return offers


def parse_states(text: str) -> "set[str]":
    """Automatic packages in apt's extended_states: by name, and by name:architecture.

    >>> sorted(parse_states("Package: a\\nArchitecture: amd64\\nAuto-Installed: 1\\n"))
    ['a', 'a:amd64']
    """
    packages: "set[str]" = set()
    for block in text.split("\n\n"):
        rows = dict(row.split(": ", 1) for row in block.split("\n") if ": " in row)
        if rows.get("Auto-Installed") == "1" and "Package" in rows:
            packages.update((rows["Package"], rows["Package"] + ":" + rows.get("Architecture", "")))
    return packages


def automatic_packages() -> "set[str]":
    """Names of the automatic packages: apt-mark(8). Raises OSError, ValueError."""
    try:
        return parse_states(read("/", STATES))
    except FileNotFoundError:
        return set()


def package(name: str, state: str, version: str) -> "Reading":
    """The record of a package in dpkg."""
    record = Reading(name=name)
    if state.strip()[1:] == "i" and VERSION.match(version):
        record["version"] = version
    else:
        record.fail("version", "dpkg: not fully installed: {}".format(quote(state.strip())))
    record["held"] = state[:1] == "h"
    return record


def dpkg_packages(running: "str | None") -> "list[Reading]":
    """The driver's packages with apt's offers. Raises SectionError."""
    dpkg_query = find_program("dpkg-query")
    try:
        rows = parse_installed(
            output_of((dpkg_query, "--show", "--showformat=" + ROW), SECONDS, OUTPUT)
        )
    except ValueError as error:
        raise SectionError(reason(error))
    installed = [row for row in rows if row[0][1:2] not in ("n", "c") and NAME.match(row[1])]
    architectures = [architecture for _, name, architecture, _ in installed if name == "dpkg"]
    packages = [
        package(name, state, version)
        for state, name, _, version in installed
        if is_of_driver(name, version, running)
    ]
    if len(packages) > MOST:
        raise SectionError("more than {} NVIDIA packages are installed".format(MOST))
    if any("version" in record["errors"] for record in packages) and is_busy("/"):
        raise TransientError(BUSY)
    names, why = attempt(automatic_packages)
    for record in packages:
        if names is None:
            record.fail("automatic", why)
        else:
            record["automatic"] = record["name"] in names
    return packages + take_offers(packages, running, architectures[0] if architectures else "")


def take_offers(packages: "list[Reading]", running: "str | None", native: str) -> "list[Reading]":
    """Set `offers` of each package; returns packages that replace one of these: some have the
    driver's version in their name, nvidia-firmware-550-550.90.07."""
    package_names = [record["name"] for record in packages]
    stems = [
        name[: -len(running)]
        for name in (name.partition(":")[0] for name in package_names)
        if running and name.endswith("-" + running)
    ]
    try:
        successors = sorted({name for stem in stems for name in names_with_stem(stem)})
        offers = madison(package_names + [name for name in successors if name not in package_names])
    except (SectionError, ValueError) as error:
        why = str(error) if isinstance(error, SectionError) else reason(error)
        for record in packages:
            record.fail("offers", why)
        return []
    for record in packages:
        name, _, architecture = record["name"].partition(":")
        apt_name = name if architecture in ("", native) else record["name"]
        record["offers"] = offers.pop(apt_name, [])
    others = [Reading(name=name, offers=offers[name]) for name in successors if name in offers]
    for record in others:
        record.fail_all(("version", "held", "automatic"), NOT_INSTALLED)
    return others


def names_with_stem(stem: str) -> "list[str]":
    """apt's package names that are `stem` and a driver's version. Raises SectionError."""
    names = apt_cache("pkgnames", "--", stem).split()
    matching = [
        name for name in names if name.startswith(stem) and NUMBERS.match(name[len(stem) :])
    ]
    return matching[:MOST]


def madison(names: "Sequence[str]") -> "dict[str, list[str]]":
    """{name: versions in the repositories}. Raises SectionError, ValueError."""
    return parse_offers(apt_cache("madison", "--", *names)) if names else {}


def apt_cache(*words: str) -> str:
    path = find_program("apt-cache")
    return output_of((path,) + WITHOUT_CACHES + words, SECONDS, OUTPUT)


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    specifiers = request.get("asks", {}).get("packages", ())
    if root != "/":
        raise Absent("packages are read on a running machine only")
    running = attempt(line, root, RUNNING)[0]
    section = Reading()
    if not specifiers or (running and all(is_admitted(running, text) for text in specifiers)):
        section.fail_all(FIELDS, AS_EXPECTED if specifiers else NOT_ASKED)
    elif has_dpkg():
        section.update(manager="dpkg", packages=dpkg_packages(running))
        section.update(can_lock=True, streams=[], profiles="")
    elif not any(os.path.isdir(folder) for folder in RPM):
        raise Absent("neither dpkg nor rpm has a database here")
    else:
        from nodevet.remote.probe.driver_rpms import read_rpms

        section.update(read_rpms(running))
    return section
