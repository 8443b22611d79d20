"""The packages that a baseline names, in dpkg's or rpm's database.

It reads dpkg's status file. rpm's database is not text, so it runs `rpm -qa` once, only for the
names. Neither uses the network or takes a lock. dnf's holds come from its files. A name may have
`*`.
"""

import os
import re

from nodevet.remote.probe.files import (
    Absent,
    Reading,
    TransientError,
    attempt,
    no_note,
    path_under,
    quote,
    read_bytes,
)
from nodevet.remote.probe.holds import holds
from nodevet.remote.probe.package_manager import BUSY, HALFWAY, is_busy, refuse_unfinished
from nodevet.remote.program import find_program, output_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

DPKG = "/var/lib/dpkg/status"
RPM = ("/var/lib/rpm", "/usr/lib/sysimage/rpm", "/usr/share/rpm")
LIMIT = 32 << 20  # bytes of the status file; 3,000 packages have 4 MB
ASKED = True
ALONE = True
SECONDS = 20  # for rpm
OUTPUT = 1 << 20  # bytes
MOST = 64  # packages of one name
NAME = re.compile(r"[A-Za-z0-9*][A-Za-z0-9+._*-]{0,127}(:[a-z0-9-]{1,20})?\Z")
ROW = "%{NAME}\\t%{ARCH}\\t%{EVR}\\n"
NOT_A_NAME = "not a valid package name"
TOO_MANY = "more than {} packages have such a name".format(MOST)


def pattern(name: str) -> "re.Pattern[str]":
    """A regular expression for a name without its architecture. Raises ValueError.

    >>> bool(pattern("libnvidia-*-550").match("libnvidia-compute-550"))
    True
    """
    if not NAME.match(name):
        raise ValueError(NOT_A_NAME)
    parts = re.split(r"\*+", name.partition(":")[0])
    return re.compile("[^\\s]*".join(re.escape(part) for part in parts) + r"\Z")


def names_by_package(patterns: "dict[str, re.Pattern[str]]") -> "Callable[[str], list[str]]":
    """A function from a package to the requested names that match it."""
    exact_names: "dict[str, list[str]]" = {}
    patterns_with_star = []
    for name, regex in patterns.items():
        if "*" in name:
            patterns_with_star.append((name, regex))
        else:
            exact_names.setdefault(name.partition(":")[0], []).append(name)

    def names_for(package: str) -> "list[str]":
        return exact_names.get(package, []) + [
            name for name, regex in patterns_with_star if regex.match(package)
        ]

    return names_for


def parse_status(text: str, patterns: "dict[str, re.Pattern[str]]") -> "dict[str, list[Reading]]":
    """{requested name: packages} of dpkg's status file (deb-control(5)). Raises ValueError.

    >>> text = "Package: a\\nStatus: hold ok installed\\nArchitecture: all\\nVersion: 1:2-3"
    >>> parse_status(text, {"a": pattern("a")})["a"][0]["version"]
    '1:2-3'
    """
    packages: "dict[str, list[Reading]]" = {name: [] for name in patterns}
    names_for = names_by_package(patterns)
    for block in text.split("\n\n"):
        first = block.lstrip("\n").split("\n", 1)[0]
        if not first:
            continue
        key, colon, package = first.partition(": ")
        if key != "Package" or not colon:
            raise ValueError("not a package: " + quote(first))
        requested = names_for(package)
        rows = fields(block) if requested else {}
        for name in requested:
            architecture = name.partition(":")[2]
            if architecture in ("", rows.get("Architecture")):
                packages[name].append(dpkg_record(package, rows))
    return packages


def fields(block: str) -> "dict[str, str]":
    """The fields of a block; the first line of a longer one."""
    rows = [row.partition(": ") for row in block.split("\n") if row[:1] not in ("", " ", "\t")]
    return {key: value for key, _, value in rows}


def dpkg_record(package: str, rows: "dict[str, str]") -> "Reading":
    """The record of a package of dpkg: dpkg(1), `PACKAGE STATES`."""
    record = Reading(name=package)
    for field, key in (("architecture", "Architecture"), ("version", "Version")):
        record.put(field, rows.get(key, "")[:256] or None, "no {} in {}".format(key, DPKG))
    words = rows.get("Status", "").split(" ")
    if len(words) == 3:
        record["state"] = words[2][:32]
        record["held"] = words[0] == "hold"
    else:
        record.fail_all(("state", "held"), "not a valid status: " + quote(" ".join(words)))
    return record


def parse_rpm(text: str, patterns: "dict[str, re.Pattern[str]]") -> "dict[str, list[Reading]]":
    """{requested name: packages} of rpm's rows. Raises ValueError."""
    packages: "dict[str, list[Reading]]" = {name: [] for name in patterns}
    names_for = names_by_package(patterns)
    for row in text.split("\n"):
        if not row:
            continue
        words = row.split("\t")
        if len(words) != 3:
            raise ValueError("not a row of rpm: " + quote(row))
        package, architecture, version = words
        for name in names_for(package):
            record = Reading(
                name=package[:256],
                architecture=architecture[:32],
                version=version[:256],
                state="installed",
            )
            packages[name].append(record)
    return packages


def take_holds(packages: "list[Reading]") -> None:
    """Set `held` of packages, which include all of the same name."""
    dnf_holds, why = attempt(holds, "/")
    versions: "dict[str, list[str]]" = {}
    for package in packages:
        versions.setdefault(package["name"], []).append(package["version"])
    for package in packages:
        if dnf_holds is None:
            package.fail("held", why)
        else:
            name = package["name"]
            package.take("held", dnf_holds.is_held, name, package["architecture"], versions[name])


def rpm_packages(patterns: "dict[str, re.Pattern[str]]") -> "dict[str, list[Reading]]":
    """Raises SectionError, ValueError."""
    if not patterns:
        return {}
    stems = sorted({name.partition(":")[0] for name in patterns})
    argv = (find_program("rpm"), "-qa", "--queryformat", ROW) + tuple(stems)
    packages_by_name = parse_rpm(output_of(argv, SECONDS, OUTPUT), patterns)
    for packages in packages_by_name.values():
        take_holds(packages)
    return packages_by_name


def manager_of(root: str) -> "tuple[str, str]":
    """(dpkg or rpm, dpkg's status file). A machine with rpm may have an empty dpkg status file,
    and vice versa. Raises Absent, OSError, ValueError."""
    try:
        data = read_bytes(root, DPKG, LIMIT + 1)
    except (FileNotFoundError, NotADirectoryError):
        data = b""
    if len(data) > LIMIT:
        raise ValueError("{} has more than {} MiB".format(DPKG, LIMIT >> 20))
    if data.strip():
        return "dpkg", data.decode("utf-8", "backslashreplace")
    if any(os.path.isdir(path_under(root, folder)) for folder in RPM):
        return "rpm", ""
    raise Absent("neither dpkg nor rpm has a database here")


def is_halfway(packages: "list[Reading]") -> bool:
    """Whether a package is changing: half installed in dpkg, or two versions in rpm."""
    states = {package.get("state") for package in packages}
    spellings = {(package["name"], package.get("architecture")) for package in packages}
    return bool(states & set(HALFWAY)) or len(spellings) < len(packages)


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", no_note)
    requested = sorted(set(request.get("asks", {}).get("installed", ())))
    if not requested:
        return Reading(manager="", packages=[])
    patterns, invalid = {}, {}
    for name in requested:
        regex, why = attempt(pattern, name)
        if regex is None:
            invalid[name] = why
        else:
            patterns[name] = regex
    manager, text = manager_of(root)
    note(manager)
    if manager == "rpm" and root != "/":
        raise Absent("rpm's database is read on a running machine only")
    if manager == "dpkg":
        refuse_unfinished(root)
    packages_by_name = parse_status(text, patterns) if manager == "dpkg" else rpm_packages(patterns)
    if any(map(is_halfway, packages_by_name.values())) and is_busy(root):
        raise TransientError(BUSY)
    packages = []
    for name in requested:
        record = Reading(name=name)
        if name in invalid:
            record.fail("found", invalid[name])
        elif len(packages_by_name[name]) > MOST:
            record.fail("found", TOO_MANY)
        else:
            record["found"] = packages_by_name[name]
        packages.append(record)
    return Reading(manager=manager, packages=packages)
