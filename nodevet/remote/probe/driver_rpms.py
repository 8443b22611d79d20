"""The NVIDIA driver's packages in rpm, and their versions in the repositories of dnf or zypper.

dnf and zypper write logs, caches and locks even for a query. They run as nobody, with a /var/tmp of
their own and without a network: they read what the last update left in the caches, and the kernel
lets them write nothing that remains.
"""

import fnmatch
import os
import re

from nodevet.remote.probe.driver_names import is_of_driver
from nodevet.remote.probe.files import (
    Reading,
    SectionError,
    TransientError,
    attempt,
    quote,
    read,
    text_lines,
)
from nodevet.remote.probe.holds import (
    CONFIG,
    DNF5,
    dnf4_entries,
    dnf4_lock,
    holds,
    is_true,
    main_section,
    with_epoch,
)
from nodevet.remote.probe.holds import PLUGIN as VERSIONLOCK
from nodevet.remote.probe.package_manager import BUSY, is_busy
from nodevet.remote.probe.patterns import Pattern
from nodevet.remote.probe.zypper_locks import LOCKS, NAME, locked_names, locks
from nodevet.remote.program import find_program, output_of, run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, Sequence

SECONDS = 60  # for dnf or zypper: large repositories take a while
OUTPUT = 8 << 20  # bytes
MOST = 300  # packages
OFFERS = 200  # versions of one package
ARTIFACTS = 4096  # packages of a module stream
DNF4 = "/usr/bin/dnf-3"
ZYPPER = "/usr/bin/zypper"
PRODUCTS = "/etc/products.d"  # SUSE's
MODULE = "nvidia-driver"
MODULE_FILE = "/etc/dnf/modules.d/nvidia-driver.module"
ROW = "%{NAME}.%{ARCH}\\t%{EVR}\\n"
OFFER_ROW = "%{name}.%{arch}|%{evr}"
RPM_NAME = Pattern(r"[A-Za-z0-9][A-Za-z0-9+._-]{0,200}\.[a-z0-9_]{1,20}\Z")
EVR = Pattern(r"(?:[0-9]{1,9}:)?[0-9A-Za-z][0-9A-Za-z._+~^]{0,100}-[0-9A-Za-z._+~^]{1,60}\Z")
SOLVABLE = Pattern(
    r"<solvable [^>]*\bname=\"([^\"]*)\"[^>]*\bedition=\"([^\"]*)\"[^>]*\barch=\"([^\"]*)\"[^>]*"
    r"\brepository=\"([^\"]*)\""
)
NO_MANAGER = "nodevet asks dnf 4 and zypper for packages, and the node has neither"
NOT_ROOT = "only root can ask {} without leaving files on the node"
SEVERAL = "several versions are installed"
OTHER_LOCK = "the lock {} is not of this package and version alone"
BESIDE = "a new version is installed beside this one, not in its place: change it by hand"
KEPT_BESIDE = ("multiversion(kernel)", "installonlypkg(kernel-module)", "installonlypkg(kernel)")
EXCLUDED = "{} excludes it, or each enabled repository does".format(CONFIG)
ALONE = (
    "mount -t tmpfs -o size=64m nodevet /var/tmp && cd / && "
    'exec setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs "$@"'
)


def without_epoch_0(version: str) -> str:
    """
    >>> without_epoch_0("0:1-1"), without_epoch_0("3:1-1")
    ('1-1', '3:1-1')
    """
    return version[2:] if version.startswith("0:") else version


def manager() -> str:
    """dnf, zypper, or rpm if nodevet can ask neither."""
    if os.path.exists(ZYPPER) and (os.path.isdir(PRODUCTS) or not os.path.exists(DNF4)):
        return "zypper"
    return "dnf" if os.path.exists(DNF4) and not os.path.exists(DNF5) else "rpm"


def read_rpms(running: "str | None") -> "Reading":
    """The fields of the section. Raises SectionError."""
    name = manager()
    records = installed(running)
    section = Reading(manager=name)
    if name == "rpm":
        for record in records.values():
            record.fail_all(("held", "offers"), NO_MANAGER)
        section["packages"] = list(records.values())
        section.fail_all(("can_lock", "streams", "profiles"), NO_MANAGER)
        return section
    for record in records.values():
        record.take("held", dnf_holds if name == "dnf" else zypper_holds, record)
    section["packages"] = list(records.values()) + take_offers(records, running, name)
    for each in kept_beside() & set(records):
        records[each].fail("offers", BESIDE)
    if name == "zypper":
        section.update(can_lock=True, streams=[], profiles="")
        return section
    section.take("can_lock", has_versionlock)
    section.take("streams", streams, {package["name"] for package in section["packages"]})
    section.take("profiles", profiles)
    return section


def installed(running: "str | None") -> "dict[str, Reading]":
    """{name.architecture: package} of the driver. Raises SectionError."""
    text = output_of((find_program("rpm"), "-qa", "--queryformat", ROW), SECONDS, OUTPUT)
    records: "dict[str, Reading]" = {}
    for row in text.split("\n"):
        name, tab, version = row.partition("\t")
        if not tab or not is_of_driver(name.rpartition(".")[0], version, running):
            continue
        record = Reading(name=name[:256], version=without_epoch_0(version[:256]))
        if name in records:
            record.fail("version", SEVERAL)
        record.fail("automatic", "dnf and zypper keep it")
        records[name] = record
    if any(record["version"] is None for record in records.values()) and is_busy("/"):
        raise TransientError(BUSY)
    if len(records) > MOST:
        raise SectionError("more than {} NVIDIA packages are installed".format(MOST))
    return records


def kept_beside() -> "set[str]":
    """name.architecture of packages that zypper and dnf never replace: several versions of them are
    installed. Raises SectionError."""
    words = ("-q", "--queryformat", "%{NAME}.%{ARCH}\\n", "--whatprovides") + KEPT_BESIDE
    _, text, _ = run((find_program("rpm"),) + words, SECONDS, OUTPUT)
    return set(text.split("\n"))


# --- locks ------------------------------------------------------------------------------


def dnf_holds(record: "Reading") -> bool:
    """Whether dnf locks a package at its version. Raises ValueError for a lock or an exclude that
    is not of this package alone: no command for this package removes it."""
    name, _, architecture = record["name"].rpartition(".")
    found = holds("/")
    if all(found.excluded(name, architecture).values()):
        raise ValueError(EXCLUDED)
    entries = [entry for about, _, entry in found.locks if about(name)]
    exact = "{}-{}".format(name, with_epoch(record["version"] or ""))
    for entry in entries:
        if entry not in (exact, exact + ".*", "{}.{}".format(exact, architecture)):
            raise ValueError(OTHER_LOCK.format(quote(entry)))
    return bool(entries)


def has_versionlock() -> bool:
    """Whether dnf's plugin versionlock is there and enabled."""
    plugin, config = main_section("/", VERSIONLOCK), main_section("/", CONFIG) or {}
    if plugin is None or not is_true(config.get("plugins", "1")):
        return False
    return is_true(plugin.get("enabled", "1")) and "locklist" in plugin


def zypper_holds(record: "Reading") -> bool:
    """Whether zypper locks a package. Raises ValueError for a lock that is not of this package
    alone."""
    name = record["name"].rpartition(".")[0]
    text = read("/", LOCKS) if os.path.exists(LOCKS) else ""
    if name in locked_names(text):
        return True
    for lock in locks(text):
        if fnmatch.fnmatchcase(name, lock.get(NAME, "*")):
            raise ValueError(OTHER_LOCK.format(quote(lock.get(NAME, "without a name"))))
    return False


# --- repositories -----------------------------------------------------------------------


def isolated_command(*words: str) -> "tuple[str, ...]":
    """The words that run a program so that nothing remains on the node. Raises SectionError."""
    if os.geteuid() != 0:
        raise SectionError(NOT_ROOT.format(words[0]))
    start = ("--mount", "--net", "--propagation", "private", find_program("sh"), "-c", ALONE, "sh")
    return (find_program("unshare"),) + start + (find_program(words[0]),) + words[1:]


def take_offers(records: "dict[str, Reading]", running: "str | None", name: str) -> "list[Reading]":
    """Set `offers` of each package; returns the packages that replace one of these: modules that
    are built for one kernel have the driver's version in their name, as
    kmod-nvidia-550.54.14-5.14.0-427.el9."""
    globs = [key.rpartition(".")[0] for key in records]
    if running:
        version = re.compile("-{}(?=-|$)".format(re.escape(running)))
        globs += [version.sub("-*", glob) for glob in globs if version.search(glob)]
    try:
        offers = (dnf_offers if name == "dnf" else zypper_offers)(sorted(set(globs)))
    except SectionError as error:
        for record in records.values():
            record.fail("offers", str(error))
        return []
    for key, record in records.items():
        record["offers"] = offers.get(key, [])
    others = [
        Reading(name=key, offers=versions)
        for key, versions in sorted(offers.items())
        if key not in records
    ][:MOST]
    for record in others:
        record.fail_all(("version", "held", "automatic"), "not installed")
    return others


def collected(rows: "Iterator[Sequence[str]]") -> "dict[str, list[str]]":
    """{name.architecture: versions} of rows with both."""
    offers: "dict[str, list[str]]" = {}
    for name, version in rows:
        versions = offers.setdefault(name, []) if RPM_NAME.match(name) else []
        evr = without_epoch_0(version)
        if EVR.match(evr) and evr not in versions and len(versions) < OFFERS:
            versions.append(evr)
    return offers


def dnf_offers(globs: "Sequence[str]") -> "dict[str, list[str]]":
    """{name.architecture: versions}, also of module streams that are not enabled, and of packages
    that dnf.conf excludes, but not what a repository or `dnf versionlock exclude` excludes. Raises
    SectionError."""
    words = ("repoquery", "--disable-modular-filtering", "--qf", OFFER_ROW, "--") + tuple(globs)
    argv = isolated_command("dnf", "-q", "-C", "--noplugins", "--disableexcludes=main", *words)
    text = output_of(argv, SECONDS, OUTPUT)
    rows = (row.split("|") for row in text_lines(text))
    refused = [
        dnf4_lock(entry[1:]) for entry in attempt(dnf4_entries, "/")[0] or () if entry[0] == "!"
    ]
    return collected(
        row
        for row in rows
        if len(row) == 2
        and not any(
            about(row[0].rpartition(".")[0]) and with_epoch(row[1]) in versions
            for about, versions, _ in refused
        )
    )


def zypper_offers(globs: "Sequence[str]") -> "dict[str, list[str]]":
    """{name.architecture: versions}. Raises SectionError."""
    words = ("search", "-s", "-t", "package", "--") + tuple(globs)  # finds parts of names, too
    argv = isolated_command("zypper", "-n", "-x", "--no-refresh", *words)
    code, text, error = run(argv, SECONDS, OUTPUT)
    if code not in (0, 104):  # 104: nothing found
        raise SectionError("zypper ended with {}: {}".format(code, quote(error or text)))
    rows = [row.groups() for row in SOLVABLE.finditer(text)]
    return collected(
        ("{}.{}".format(name, architecture), version)
        for name, version, architecture, repository in rows
        if any(fnmatch.fnmatchcase(name, glob) for glob in globs)
        and not repository.startswith("(")  # (System Packages): only installed
    )


# --- module streams ---------------------------------------------------------------------


def streams(names: "set[str]") -> "list[Reading]":
    """The streams of NVIDIA's module, with those of their packages that the section names. Raises
    SectionError."""
    argv = isolated_command("dnf", "-q", "-C", "--noplugins", "module", "info", MODULE)
    code, text, error = run(argv, SECONDS, OUTPUT)
    if code == 1 and "Unable to resolve argument" in error + text:
        return []
    if code:
        raise SectionError("dnf ended with {}: {}".format(code, quote(error)))
    by_name: "dict[str, Reading]" = {}
    for stream in parse_streams(text, names):  # one for each context
        earlier = by_name.setdefault(stream["name"], stream)
        earlier["active"] = earlier["active"] or stream["active"]
        packages = dict.fromkeys(earlier["packages"] + stream["packages"])
        earlier["packages"] = list(packages)[:ARTIFACTS]
    return list(by_name.values())


def parse_streams(text: str, names: "set[str]") -> "Iterator[Reading]":
    """
    >>> text = "Name : nvidia-driver\\nStream : 550-open [e] [a]\\nArtifacts : a-3:1-1.x86_64\\n"
    >>> list(parse_streams(text + " : b-0:1-1.noarch", {"a.x86_64"}))
    [{'errors': {}, 'name': '550-open', 'active': True, 'packages': ['a.x86_64=3:1-1']}]
    """
    for block in text.split("\n\n"):
        key, values = "", {}  # type: ignore[var-annotated]
        for row in text_lines(block):
            label, _, value = row.partition(": ")
            key = label.strip() or key
            values.setdefault(key, []).append(value.strip())
        if values.get("Name") != [MODULE] or "Stream" not in values:
            continue
        stream, _, marks = values["Stream"][0].partition(" ")
        nevras = map(target_of, values.get("Artifacts", ()))
        packages = [target for target in nevras if target.partition("=")[0] in names]
        yield Reading(name=stream[:100], active="[a]" in marks, packages=packages)


def target_of(nevra: str) -> str:
    """name.architecture=version of name-epoch:version-release.architecture; else nothing.

    >>> target_of("nvidia-driver-3:550.54.14-1.el9.x86_64"), target_of("rubbish")
    ('nvidia-driver.x86_64=3:550.54.14-1.el9', '')
    """
    package, dot, architecture = nevra.rpartition(".")
    words = package.rsplit("-", 2)
    if not dot or len(words) != 3:
        return ""
    version = without_epoch_0("-".join(words[1:]))
    return "{}.{}={}".format(words[0], architecture, version)


def profiles() -> str:
    """The installed profiles of NVIDIA's module, as dnf keeps them: a, b."""
    if not os.path.exists(MODULE_FILE):
        return ""
    rows = [row.partition("=") for row in text_lines(read("/", MODULE_FILE))]
    return next((value.strip() for key, _, value in rows if key.strip() == "profiles"), "")
