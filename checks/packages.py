"""The named packages are installed in the expected versions, held or absent.

**Why it matters.** nvidia-fabricmanager must be of the driver's version, NCCL and DCGM of one that
works with it, and an unattended upgrade that replaces one of them breaks every job of the node.
Two nodes that should be alike differ in a package more often than in anything else.

**Read from** /var/lib/dpkg/status, or `rpm -qa` and /etc/dnf where rpm keeps the packages; only
what the baseline names. A name may hold `*`: `nvidia-fabricmanager-*`, and after a colon dpkg's
architecture: `libnccl2:amd64`.

**Verdicts.** Versions are in dpkg's or rpm's own order. A part of a version that the baseline
leaves out is not compared: `550.90.07` admits every release of it under every epoch, `550.90.07-1`
one release. A package that is not configured is not installed. If several packages have one name
(kernels, architectures), each must fit. With rpm a package is held if dnf.conf excludes it, or
dnf's versionlock admits the installed version alone; a lock that admits others is unknown, as is
`held` without dnf. Everything is unknown while dpkg is at work, or was interrupted.

**To fix it** `apt-get install NAME=VERSION` or `dnf install NAME-VERSION`; `apt-mark hold` keeps it
(`dnf versionlock` with rpm), `apt-get purge` removes it. One that is half installed: `dpkg
--configure -a`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from nodevet.checking.aspects import each_fact
from nodevet.checking.named import each_named, judge_each, reads_of
from nodevet.checking.versions import begins, order
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.installed import (
    PACKAGE_NAME,
    AskedPackage,
    InstalledPackage,
    InstalledPackages,
)
from nodevet.model import Area, Check, CheckParams, Finding, Severity, Subject, fail, ok, unknown

THERE = ("installed", "triggers-awaited", "triggers-pending")
GONE = ("not-installed", "config-files")
ANY = "any"

Name = Annotated[str, Meta(pattern=f"^{PACKAGE_NAME}$")]
Version = Annotated[str, Meta(pattern=r"^[0-9A-Za-z][0-9A-Za-z.+:~^_-]{0,120}$")]


class VersionLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a version may be, if more than one is right."""

    prefix: Version | None = None
    minimum: Version | None = None
    maximum: Version | None = None
    one_of: tuple[Version, ...] = ()

    def __post_init__(self) -> None:
        if not (self.prefix or self.minimum or self.maximum or self.one_of):
            raise ValueError("give prefix, minimum, maximum or one_of")


class Params(CheckParams):
    """`packages: {installed: {libnccl2: 2.21.5-1+cuda12.4, dkms: any}, absent: [snapd]}` or
    `packages: {installed: {docker-ce: {minimum: "5:26"}}, held: [nvidia-driver-550]}`"""

    installed: Mapping[Name, Version | VersionLimits] = {}
    """A version, or `any`, by name."""
    held: tuple[Name, ...] = ()
    """Kept from upgrades."""
    absent: tuple[Name, ...] = ()

    def __post_init__(self) -> None:
        both = sorted({*self.installed, *self.held} & {*self.absent})
        if both:
            raise ValueError(f"{', '.join(both)}: in absent, and in installed or held")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.installed, *self.held, *self.absent)))


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[InstalledPackages]
    manager = (section.data.manager if section.data else None) or ""
    named = each_named(section, params.names, label="packages", listed="packages", kind="package")
    yield from judge_each(named, lambda entry: judge_name(*entry, manager, params))


def judge_name(
    subject: Subject, answer: AskedPackage, manager: str, params: Params
) -> Iterator[Finding]:
    if answer.found is None:
        yield unread(subject, answer, "found")
        return
    if manager not in ("dpkg", "rpm"):
        yield unknown(subject, why=f"the package manager is not known: {manager or 'none'}")
        return
    unclear = next((package for package in answer.found if not package.state), None)
    if unclear:
        yield unread(subject, unclear, "state")
        return
    present = [package for package in answer.found if package.state not in GONE]
    if answer.name in params.absent:
        actual = packages_text(present, subject.id) if present else "not installed"
        yield (fail if present else ok)(
            subject, expected="not installed", actual=actual, advice=REMOVE if present else ""
        )
        return
    version, held = params.installed.get(answer.name, ANY), answer.name in params.held
    words = ["installed" if version == ANY else version_text(version), *(["held"] if held else [])]
    yield from judge_installed(
        subject, present, version, manager, held=held, expected=", ".join(words)
    )


def judge_installed(
    subject: Subject,
    present: Sequence[InstalledPackage],
    version: str | VersionLimits,
    manager: str,
    *,
    held: bool,
    expected: str,
) -> Iterator[Finding]:
    """A package that must be installed. `present`: those of its name; `held`: it must be held."""
    if not present:
        yield fail(subject, expected=expected, actual="not installed", advice=INSTALL)
        return
    facts = [ok(subject, expected=expected, actual=packages_text(present, subject.id))]
    half = [package for package in present if package.state not in THERE]
    if half:
        actual = packages_text(half, subject.id)
        facts.append(fail(subject, expected=expected, actual=actual, advice=CONFIGURE))
    elif version != ANY:
        facts += judge_versions(subject, present, version, manager, expected)
    if held:
        facts += judge_holds(subject, present, expected)
    yield from each_fact(facts)


def judge_versions(
    subject: Subject,
    present: Sequence[InstalledPackage],
    allowed: str | VersionLimits,
    manager: str,
    expected: str,
) -> Iterator[Finding]:
    """What is wrong with the versions; nothing if they are as expected."""
    doubtful = next((package for package in present if not package.version), None)
    if doubtful:
        yield unread(subject, doubtful, "version")
    other = [
        package
        for package in present
        if package.version and not fits(package.version, allowed, manager)
    ]
    if other:
        yield fail(
            subject, expected=expected, actual=packages_text(other, subject.id), advice=UPGRADE
        )


def judge_holds(
    subject: Subject, present: Sequence[InstalledPackage], expected: str
) -> Iterator[Finding]:
    """Which packages are not held; nothing if all are."""
    doubtful = next((package for package in present if package.held is None), None)
    if doubtful:
        yield unread(subject, doubtful, "held")
    loose = [package for package in present if package.held is False]
    if loose:
        actual = f"{packages_text(loose, subject.id)}, not held"
        yield fail(subject, expected=expected, actual=actual, advice=HOLD)


def fits(version: str, allowed: str | VersionLimits, manager: str) -> bool:
    if isinstance(allowed, str):
        return order(version, allowed, manager) == 0
    return (
        (allowed.prefix is None or begins(version, allowed.prefix))
        and (allowed.minimum is None or order(version, allowed.minimum, manager) >= 0)
        and (allowed.maximum is None or order(version, allowed.maximum, manager) <= 0)
        and (not allowed.one_of or any(order(version, one, manager) == 0 for one in allowed.one_of))
    )


def version_text(allowed: str | VersionLimits) -> str:
    if isinstance(allowed, str):
        return allowed
    words = (
        f"{allowed.prefix}*" if allowed.prefix else "",
        f"at least {allowed.minimum}" if allowed.minimum else "",
        f"at most {allowed.maximum}" if allowed.maximum else "",
        " or ".join(allowed.one_of),
    )
    return ", ".join(filter(None, words))


def packages_text(packages: Sequence[InstalledPackage], pattern: str) -> str:
    """Each version once, with what is unusual of it; names if a pattern stands for them."""
    parts = []
    for package in packages:
        words = [package.name or "?"] if package.name != pattern else []
        words.append(package.version or "installed")
        words += [f"({package.state})"] if package.state not in THERE else []
        parts.append(" ".join(words))
    return ", ".join(dict.fromkeys(parts))


INSTALL = "install it (`apt-get install`, `dnf install`), or correct the name"
REMOVE = "remove it: `apt-get purge` or `dnf remove`"
CONFIGURE = "its installation did not end: `dpkg --configure -a` says why"
UPGRADE = (
    "install the expected version: `apt-get install NAME=VERSION` or `dnf install NAME-VERSION`"
)
HOLD = "`apt-mark hold NAME`, or `dnf versionlock add NAME`, keeps unattended upgrades from it"


CHECK = Check(
    params=Params,
    area=Area.SOFTWARE,
    reads=(
        "installed.manager",
        *reads_of("installed.packages[].found[]", "held", "state", "version"),
        "installed.packages[].name",
    ),
    judge=judge,
    severity=Severity.WARNING,
    asks=lambda params: {"installed": params.names},
    unasked="only a site knows which: packages: {installed: {libnccl2: any}}",
    learn=lambda evidence: None,
)
