"""The named packages are installed in the expected versions, held or absent.

**Why it matters.** nvidia-fabricmanager must be of the driver's version, NCCL and DCGM of one that
works with it, and an unattended upgrade that replaces one of them breaks every job of the node.
Two nodes that should be alike differ in a package more often than in anything else.

**Read from** /var/lib/dpkg/status, or `rpm -qa` and /etc/dnf where rpm keeps the packages; only
what the baseline names. A name may hold `*`: `nvidia-fabricmanager-*`, and after a colon dpkg's
architecture: `libnccl2:amd64`.

**Verdicts.** Versions are in dpkg's or rpm's own order. What is left out of a version is not
compared: `550.90.07` admits every release of it under every epoch, `550.90.07-1` one release. A
package that is not configured is not installed. Of several packages of one name, kernels or
architectures, each must fit. With rpm a package is held if dnf.conf excludes it, or dnf's
versionlock admits the installed version alone; a lock that admits others is unknown, as is `held`
without dnf. Everything is unknown while dpkg is at work, or was interrupted.

**To fix it** `apt-get install NAME=VERSION` or `dnf install NAME-VERSION`; `apt-mark hold` keeps it
(`dnf versionlock` with rpm), `apt-get purge` removes it. One that is half installed: `dpkg
--configure -a`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from nodevet.checking.aspects import each_fact
from nodevet.checking.named import each_named
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
    found = {each.name: each for each in (section.data and section.data.packages) or ()}
    manager = (section.data.manager if section.data else None) or ""
    names = params.names
    for each in each_named(section, names, label="packages", listed="packages", kind="package"):
        if isinstance(each, Finding):
            yield each
        else:
            subject, name = each
            yield from judge_name(subject, found[name], manager, params)


def judge_name(
    subject: Subject, asked: AskedPackage, manager: str, params: Params
) -> Iterator[Finding]:
    if asked.found is None:
        yield unread(subject, asked, "found")
        return
    if manager not in ("dpkg", "rpm"):
        yield unknown(subject, why=f"the package manager is not known: {manager or 'none'}")
        return
    unclear = next((each for each in asked.found if not each.state), None)
    if unclear:
        yield unread(subject, unclear, "state")
        return
    there = [each for each in asked.found if each.state not in GONE]
    if asked.name in params.absent:
        actual = listed(there, subject.id) if there else "not installed"
        yield (fail if there else ok)(
            subject, expected="not installed", actual=actual, advice=REMOVE if there else ""
        )
        return
    wanted, held = params.installed.get(asked.name, ANY), asked.name in params.held
    words = ["installed" if wanted == ANY else told(wanted), *(["held"] if held else [])]
    yield from judge_installed(
        subject, there, wanted, manager, held=held, expected=", ".join(words)
    )


def judge_installed(
    subject: Subject,
    there: Sequence[InstalledPackage],
    wanted: str | VersionLimits,
    manager: str,
    *,
    held: bool,
    expected: str,
) -> Iterator[Finding]:
    """A package that must be installed. `there`: what is, of its name; `held`: it must be held."""
    if not there:
        yield fail(subject, expected=expected, actual="not installed", advice=INSTALL)
        return
    facts = [ok(subject, expected=expected, actual=listed(there, subject.id))]
    half = [each for each in there if each.state not in THERE]
    if half:
        actual = listed(half, subject.id)
        facts.append(fail(subject, expected=expected, actual=actual, advice=CONFIGURE))
    elif wanted != ANY:
        facts += judge_versions(subject, there, wanted, manager, expected)
    if held:
        facts += judge_holds(subject, there, expected)
    yield from each_fact(facts)


def judge_versions(
    subject: Subject,
    there: Sequence[InstalledPackage],
    wanted: str | VersionLimits,
    manager: str,
    expected: str,
) -> Iterator[Finding]:
    """What is wrong with the versions; nothing if they are as expected."""
    doubtful = next((each for each in there if not each.version), None)
    if doubtful:
        yield unread(subject, doubtful, "version")
    other = [each for each in there if each.version and not fits(each.version, wanted, manager)]
    if other:
        yield fail(subject, expected=expected, actual=listed(other, subject.id), advice=UPGRADE)


def judge_holds(
    subject: Subject, there: Sequence[InstalledPackage], expected: str
) -> Iterator[Finding]:
    """Which packages are not held; nothing if all are."""
    doubtful = next((each for each in there if each.held is None), None)
    if doubtful:
        yield unread(subject, doubtful, "held")
    loose = [each for each in there if each.held is False]
    if loose:
        actual = f"{listed(loose, subject.id)}, not held"
        yield fail(subject, expected=expected, actual=actual, advice=HOLD)


def fits(version: str, wanted: str | VersionLimits, manager: str) -> bool:
    if isinstance(wanted, str):
        return order(version, wanted, manager) == 0
    return (
        (wanted.prefix is None or begins(version, wanted.prefix))
        and (wanted.minimum is None or order(version, wanted.minimum, manager) >= 0)
        and (wanted.maximum is None or order(version, wanted.maximum, manager) <= 0)
        and (not wanted.one_of or any(order(version, each, manager) == 0 for each in wanted.one_of))
    )


def told(wanted: str | VersionLimits) -> str:
    if isinstance(wanted, str):
        return wanted
    words = (
        f"{wanted.prefix}*" if wanted.prefix else "",
        f"at least {wanted.minimum}" if wanted.minimum else "",
        f"at most {wanted.maximum}" if wanted.maximum else "",
        " or ".join(wanted.one_of),
    )
    return ", ".join(filter(None, words))


def listed(packages: Sequence[InstalledPackage], asked: str) -> str:
    """Each version once, with what is unusual of it; names if a pattern stands for them."""
    parts = []
    for each in packages:
        words = [each.name or "?"] if each.name != asked else []
        words.append(each.version or "installed")
        words += [f"({each.state})"] if each.state not in THERE else []
        parts.append(" ".join(words))
    return ", ".join(dict.fromkeys(parts))


INSTALL = "install it (`apt-get install`, `dnf install`), or correct the name"
REMOVE = "remove it: `apt-get purge` or `dnf remove`"
CONFIGURE = "its installation did not end: `dpkg --configure -a` says why"
UPGRADE = (
    "install the expected version: `apt-get install NAME=VERSION` or `dnf install NAME-VERSION`"
)
HOLD = "`apt-mark hold NAME`, or `dnf versionlock add NAME`, keeps unattended upgrades from it"


def asks(params: Params) -> Mapping[str, tuple[str, ...]]:
    return {"installed": params.names}


CHECK = Check(
    params=Params,
    area=Area.SOFTWARE,
    reads=(
        "installed.manager",
        "installed.packages[].found[].held",
        "installed.packages[].found[].state",
        "installed.packages[].found[].version",
        "installed.packages[].name",
    ),
    judge=judge,
    severity=Severity.WARNING,
    asks=asks,
    unasked="only a site knows which: packages: {installed: {libnccl2: any}}",
    learn=lambda evidence: None,
)
