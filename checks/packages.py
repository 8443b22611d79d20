"""The packages in the baseline are installed in the expected versions, held or absent.

**Why it matters.** nvidia-fabricmanager must have the driver's version, NCCL and DCGM need versions
that work with it, and an unattended upgrade of one of them breaks every job of the node. Two nodes
that should be equal differ in a package more often than in anything else.

**Read from** /var/lib/dpkg/status, or on nodes with rpm from `rpm -qa`, /etc/dnf, the .repo files
and, with dnf5, /usr/share/dnf5; only the packages that the baseline names. A name may have `*`:
`nvidia-fabricmanager-*`, and after a colon dpkg's architecture: `libnccl2:amd64`.

**Verdicts.** Versions compare in dpkg's or rpm's own order. If the baseline leaves out a part of a
version, the check does not compare that part: `550.90.07` allows every release and epoch of it,
`550.90.07-1` one release. A package that is not configured counts as not installed. If several
packages have one name (kernels, architectures), each must match. With rpm a package is held if
dnf.conf or each enabled repository excludes it (`excludepkgs`, `includepkgs`, without what
`disable_excludes` turns off), or if dnf's versionlock allows only the installed version. A lock
that allows other versions is unknown, and so are a package that only some enabled repositories
exclude, and `held` without dnf. All packages are unknown while dpkg runs, or after it was
interrupted.

**To fix it** `apt-get install NAME=VERSION` or `dnf install NAME-VERSION`; `apt-mark hold` holds
the package (`dnf versionlock` with rpm), `apt-get purge` removes it. If it is half installed, run
`dpkg --configure -a`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from nodevet.checking.aspects import each_fact
from nodevet.checking.named import each_named, judge_each, reads_of
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.installed import (
    PACKAGE_NAME,
    AskedPackage,
    InstalledPackage,
    InstalledPackages,
)
from nodevet.evidence.versions import begins, order
from nodevet.model import Area, Check, CheckParams, Finding, Severity, Subject, fail, ok, unknown

INSTALLED_STATES = ("installed", "triggers-awaited", "triggers-pending")
ABSENT_STATES = ("not-installed", "config-files")
ANY = "any"

Name = Annotated[str, Meta(pattern=f"^{PACKAGE_NAME}$")]
Version = Annotated[str, Meta(pattern=r"^[0-9A-Za-z][0-9A-Za-z.+:~^_-]{0,120}$")]


class VersionLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The allowed versions, if more than one is right."""

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
    """Packages that must be held from upgrades."""
    absent: tuple[Name, ...] = ()

    def __post_init__(self) -> None:
        both = sorted({*self.installed, *self.held} & {*self.absent})
        if both:
            raise ValueError(f"{', '.join(both)}: listed in absent, and in installed or held")

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
        yield unknown(subject, why=f"unknown package manager: {manager or 'none'}")
        return
    unclear = next((package for package in answer.found if not package.state), None)
    if unclear:
        yield unread(subject, unclear, "state")
        return
    present = [package for package in answer.found if package.state not in ABSENT_STATES]
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
    """Findings about a package that must be installed. `present`: the packages of its name; `held`:
    it must be held."""
    if not present:
        yield fail(subject, expected=expected, actual="not installed", advice=INSTALL)
        return
    facts = [ok(subject, expected=expected, actual=packages_text(present, subject.id))]
    unconfigured = [package for package in present if package.state not in INSTALLED_STATES]
    if unconfigured:
        actual = packages_text(unconfigured, subject.id)
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
    """Findings about wrong versions; none if they are as expected."""
    doubtful = next((package for package in present if not package.version), None)
    if doubtful:
        yield unread(subject, doubtful, "version")
    other = [
        package
        for package in present
        if package.version and not is_allowed(package.version, allowed, manager)
    ]
    if other:
        yield fail(
            subject, expected=expected, actual=packages_text(other, subject.id), advice=UPGRADE
        )


def judge_holds(
    subject: Subject, present: Sequence[InstalledPackage], expected: str
) -> Iterator[Finding]:
    """Findings about packages that are not held; none if all are."""
    doubtful = next((package for package in present if package.held is None), None)
    if doubtful:
        yield unread(subject, doubtful, "held")
    unheld = [package for package in present if package.held is False]
    if unheld:
        actual = f"{packages_text(unheld, subject.id)}, not held"
        yield fail(subject, expected=expected, actual=actual, advice=HOLD)


def is_allowed(version: str, allowed: str | VersionLimits, manager: str) -> bool:
    if isinstance(allowed, str):
        return order(version, allowed, manager) == 0
    return (
        (allowed.prefix is None or begins(version, allowed.prefix))
        and (allowed.minimum is None or order(version, allowed.minimum, manager) >= 0)
        and (allowed.maximum is None or order(version, allowed.maximum, manager) <= 0)
        and (
            not allowed.one_of
            or any(order(version, other, manager) == 0 for other in allowed.one_of)
        )
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
    """Each version once, with an unusual state; with names if the pattern stands for several."""
    parts = []
    for package in packages:
        words = [package.name or "?"] if package.name != pattern else []
        words.append(package.version or "installed")
        words += [f"({package.state})"] if package.state not in INSTALLED_STATES else []
        parts.append(" ".join(words))
    return ", ".join(dict.fromkeys(parts))


INSTALL = "install it (`apt-get install`, `dnf install`), or correct the name"
REMOVE = "remove it: `apt-get purge` or `dnf remove`"
CONFIGURE = "its installation did not finish: `dpkg --configure -a` shows why"
UPGRADE = (
    "install the expected version: `apt-get install NAME=VERSION` or `dnf install NAME-VERSION`"
)
HOLD = "`apt-mark hold NAME`, or `dnf versionlock add NAME`, protects it from unattended upgrades"


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
    unasked="only the site knows which: write packages: {installed: {libnccl2: any}}",
    learn=lambda evidence: None,
)
