"""The packages that a baseline names, as dpkg or rpm have them.

dpkg's own status file is read, without running it; rpm's database is not text, so that `rpm -qa` is
run, once and only for what is asked. Neither uses the network or takes a lock. What dnf holds is
read from its files. A name may hold `*`.
"""

import os
import re

from nodevet.remote.probe.files import (
    Absent,
    Reading,
    TransientError,
    attempt,
    path_under,
    quote,
    read_bytes,
    silent,
)
from nodevet.remote.probe.holds import holds
from nodevet.remote.probe.package_manager import AT_WORK, HALFWAY, is_at_work, refuse_unfinished
from nodevet.remote.program import find, printed

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
MOST = 64  # packages that one name stands for
NAME = re.compile(r"[A-Za-z0-9*][A-Za-z0-9+._*-]{0,127}(:[a-z0-9-]{1,20})?\Z")
ROW = "%{NAME}\\t%{ARCH}\\t%{EVR}\\n"
NOT_A_NAME = "not a valid package name"
TOO_MANY = "more than {} packages have such a name".format(MOST)


def pattern(name: str) -> "re.Pattern[str]":
    """What matches the packages of this name, the architecture aside. Raises ValueError.

    >>> bool(pattern("libnvidia-*-550").match("libnvidia-compute-550"))
    True
    """
    if not NAME.match(name):
        raise ValueError(NOT_A_NAME)
    parts = re.split(r"\*+", name.partition(":")[0])
    return re.compile("[^\\s]*".join(re.escape(part) for part in parts) + r"\Z")


def asking(patterns: "dict[str, re.Pattern[str]]") -> "Callable[[str], list[str]]":
    """A function from a package to the names that ask for it, whatever the architecture."""
    exact: "dict[str, list[str]]" = {}
    loose = []
    for name, wanted in patterns.items():
        if "*" in name:
            loose.append((name, wanted))
        else:
            exact.setdefault(name.partition(":")[0], []).append(name)

    def names_for(package: str) -> "list[str]":
        return exact.get(package, []) + [name for name, wanted in loose if wanted.match(package)]

    return names_for


def parse_status(text: str, patterns: "dict[str, re.Pattern[str]]") -> "dict[str, list[Reading]]":
    """{name asked for: packages} of dpkg's status file (deb-control(5)). Raises ValueError.

    >>> text = "Package: a\\nStatus: hold ok installed\\nArchitecture: all\\nVersion: 1:2-3"
    >>> parse_status(text, {"a": pattern("a")})["a"][0]["version"]
    '1:2-3'
    """
    found: "dict[str, list[Reading]]" = {name: [] for name in patterns}
    names_for = asking(patterns)
    for block in text.split("\n\n"):
        first = block.lstrip("\n").split("\n", 1)[0]
        if not first:
            continue
        key, colon, package = first.partition(": ")
        if key != "Package" or not colon:
            raise ValueError("not a package: " + quote(first))
        asked = names_for(package)
        rows = fields(block) if asked else {}
        for name in asked:
            architecture = name.partition(":")[2]
            if architecture in ("", rows.get("Architecture")):
                found[name].append(of_block(package, rows))
    return found


def fields(block: str) -> "dict[str, str]":
    """The fields of a block; of one that goes on over several lines the first."""
    rows = [row.partition(": ") for row in block.split("\n") if row[:1] not in ("", " ", "\t")]
    return {key: value for key, _, value in rows}


def of_block(package: str, rows: "dict[str, str]") -> "Reading":
    """A package as dpkg's status file has it; see dpkg(1), `PACKAGE STATES`."""
    record = Reading(name=package)
    for field, key in (("architecture", "Architecture"), ("version", "Version")):
        if rows.get(key):
            record[field] = rows[key][:256]
        else:
            record.fail(field, "no {} in {}".format(key, DPKG))
    words = rows.get("Status", "").split(" ")
    if len(words) == 3:
        record["state"] = words[2][:32]
        record["held"] = words[0] == "hold"
    else:
        record.fail_all(("state", "held"), "not a valid status: " + quote(" ".join(words)))
    return record


def parse_rpm(text: str, patterns: "dict[str, re.Pattern[str]]") -> "dict[str, list[Reading]]":
    """The same of rpm's rows. Raises ValueError."""
    found: "dict[str, list[Reading]]" = {name: [] for name in patterns}
    names_for = asking(patterns)
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
            found[name].append(record)
    return found


def take_holds(packages: "list[Reading]") -> None:
    """Whether dnf holds each of these, which are all of their names."""
    held, why = attempt(holds, "/")
    versions: "dict[str, list[str]]" = {}
    for each in packages:
        versions.setdefault(each["name"], []).append(each["version"])
    for each in packages:
        if held is None:
            each.fail("held", why)
        else:
            name = each["name"]
            each.take("held", held.held, name, each["architecture"], versions[name])


def of_rpm(patterns: "dict[str, re.Pattern[str]]") -> "dict[str, list[Reading]]":
    """Raises SectionError, ValueError."""
    if not patterns:
        return {}
    stems = sorted({name.partition(":")[0] for name in patterns})
    words = (find("rpm"), "-qa", "--queryformat", ROW) + tuple(stems)
    found = parse_rpm(printed(words, SECONDS, OUTPUT), patterns)
    for packages in found.values():
        take_holds(packages)
    return found


def manager_of(root: str) -> "tuple[str, str]":
    """(dpkg or rpm, the status file's text). A machine of RPMs may have an empty one of dpkg's,
    and one of dpkg's an empty database of rpm. Raises Absent, OSError, ValueError."""
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
    """Whether a package is on its way to another version: dpkg works on it, or rpm has both."""
    states = {each.get("state") for each in packages}
    places = {(each["name"], each.get("architecture")) for each in packages}
    return bool(states & set(HALFWAY)) or len(places) < len(packages)


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", silent)
    asked = sorted(set(request.get("asks", {}).get("installed", ())))
    if not asked:
        return Reading(manager="", packages=[])
    patterns, wrong = {}, {}
    for name in asked:
        found, why = attempt(pattern, name)
        if found is None:
            wrong[name] = why
        else:
            patterns[name] = found
    manager, text = manager_of(root)
    note(manager)
    if manager == "rpm" and root != "/":
        raise Absent("rpm's database is read on a running machine only")
    if manager == "dpkg":
        refuse_unfinished(root)
    listed = parse_status(text, patterns) if manager == "dpkg" else of_rpm(patterns)
    if any(map(is_halfway, listed.values())) and is_at_work(root):
        raise TransientError(AT_WORK)
    packages = []
    for name in asked:
        record = Reading(name=name)
        if name in wrong:
            record.fail("found", wrong[name])
        elif len(listed[name]) > MOST:
            record.fail("found", TOO_MANY)
        else:
            record["found"] = listed[name]
        packages.append(record)
    return Reading(manager=manager, packages=packages)
