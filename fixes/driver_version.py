"""Install the expected version of the NVIDIA driver from the node's repositories.

**Now** nodevet runs one transaction of apt, dnf or zypper. It changes every installed package that
has the driver's version, also the fabric manager's, or none of them. The new version is the highest
that the baseline allows and that the node's repositories have for each package. If the transaction
would also remove, install or upgrade other packages, it stops before it changes anything. After the
transaction, nodevet holds the packages: `apt-mark hold`, `dnf versionlock add` or `zypper addlock`.

With dnf, nodevet enables the stream of NVIDIA's module that has the packages: the one of the same
kind as the active stream (550-open, 570-open), or else the only one. The transaction is `dnf
history replay`; a dnf without that command fails before it changes anything. If dnf has no plugin
versionlock, the plan says that nothing holds the packages.

**At every boot** nothing: the packages stay installed, and their hold prevents upgrades.

**Risk** reboot. The old module stays loaded until then, and the new library refuses to talk to it:
nothing that uses a GPU starts. The installation builds DKMS modules, which takes minutes. With dnf
and zypper, the step fails if DKMS has not built the module for the running kernel. The transaction
replaces a module that NVIDIA built for one kernel (kmod-nvidia-550.54.14-5.14.0-427.13.1) by the
new version for the same kernel.

**Rollback** installs the earlier versions. It restores the module stream, the holds and, with apt,
the marks for automatically installed packages. It takes another reboot. Afterwards dnf counts
packages that it had removed as installed by the user, and zypper counts all of them so.
If the repositories no longer have the installed version, a rollback could not restore it, and
nodevet plans nothing.

**What it cannot do.** It configures no repository and does not update package lists (`apt-get
update`, `dnf makecache`, `zypper refresh`). It does not change to another branch if the packages
are named after the branch (nvidia-driver-550, nvidia-driver-560). It does not change what NVIDIA's
.run installer installed. It plans nothing if Ubuntu's modules for one kernel
(linux-modules-nvidia-*) are installed: change them with that kernel's packages. It plans nothing if
one entry of dnf or zypper locks or excludes several of the packages, or if rpm keeps several
versions of one (`multiversion(kernel)`, `installonlypkg(...)`), as of SUSE's kernel modules: the
new version would be installed beside the old one. With yum and dnf 5 it plans nothing: it prints
the commands, which a person runs. nodevet must be root on the node to ask dnf and zypper for
versions: it runs them as nobody, with an empty /var/tmp and without a network, on the lists of the
last update, so that they leave nothing on the node.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from packaging.version import Version

from nodevet.checks.driver_version import Params
from nodevet.evidence.across import INSTALL_LIBRARY, half_a_driver
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpus
from nodevet.evidence.host import HostInfo
from nodevet.evidence.modules import Modules
from nodevet.evidence.packages import Package, Packages
from nodevet.fixing import driver_apt, driver_rpm
from nodevet.fixing.driver_packages import SHOWN, Target, brief_list, choose, of_driver, offers_of
from nodevet.fixing.model import EVERY, Fix, FixError, PlannedChange, Risk, join_notes
from nodevet.model import Finding
from nodevet.remote.probe.collectors.packages import NAME, NOT_INSTALLED, VERSION
from nodevet.remote.probe.driver_names import driver_version_in
from nodevet.resource import Actions, Resource
from nodevet.resource.package import rpm

RPM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]{0,200}\.[a-z0-9_]{1,20}")
EXACT = re.compile(r"(?:==)?\s*([0-9]+(?:\.[0-9]+)+)")
NOTE = (
    "DKMS may build modules, which takes minutes; until the reboot the new library refuses the "
    "old module, and nothing that uses a GPU starts"
)


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change for all packages of the driver; see `FIX`."""
    running = running_version(evidence)
    if any(finding.actual != running for finding in failed):
        raise FixError("the finding does not belong to this evidence")
    section = packages_of(evidence, running, params)
    listed, manager = section.packages or (), section.manager or ""
    packages = of_driver(listed, running, params)
    offers = {package.name: offers_of(package, listed, running, manager) for package in packages}
    version = choose(offers, packages, running, params, manager)
    targets = [offers[package.name][version] for package in packages]
    by_name = {package.name: package for package in listed}
    replaced = [by_name[target.name] for target in targets] if manager == "dpkg" else packages
    require_way_back(replaced)
    held = [package.name for package in replaced if package.held]
    actions = actions_of(section, targets, replaced, version)
    files = {action.resource for action in actions if action.resource}
    names = {target.name for target in targets} | {package.name for package in replaced}
    yield PlannedChange(
        expected=version,
        actual=running,
        subjects=tuple(finding.subject.label for finding in failed),
        actions=actions,
        resources=(
            *(Resource(kind="package", name=name) for name in sorted(names)),
            *sorted(files),
        ),
        risk=Risk.REBOOT,
        effective="reboot",
        note=join_notes(
            f"an administrator or an earlier fix holds {brief_list(held)} now" if held else "",
            NOTE,
            driver_rpm.NO_LOCK if section.can_lock is False else "",
        ),
    )


def require_way_back(replaced: Sequence[Package]) -> None:
    """Raise FixError if the repositories no longer have an installed version."""
    unavailable = [
        package.name
        for package in replaced
        if package.version not in (None, *(package.offers or ()))
    ]
    if unavailable:
        raise FixError(
            "it cannot be rolled back: none of the node's repositories has the installed version "
            f"of {brief_list(unavailable)} any more; keep it in one, then plan again"
        )


def actions_of(
    section: Packages, targets: Sequence[Target], replaced: Sequence[Package], version: str
) -> Actions:
    """The actions of the node's package manager. Raises FixError."""
    if section.manager == "dpkg":
        versions = [driver_version_in(package.version) for package in replaced if package.version]
        return driver_apt.actions(
            targets,
            down=any(each and Version(each) > Version(version) for each in versions),
            change_held=any(package.held for package in replaced),
        )
    unread = next((package for package in replaced if package.held is None), None)
    if unread is not None:
        raise FixError(f"{unread.name}: held: {unread.why('held')}; remove it, then plan again")
    if section.can_lock is None:
        raise FixError(f"can_lock: {section.why('can_lock')}")
    manager = cast(rpm.Manager, section.manager)
    return driver_rpm.actions(manager, section, targets, replaced, version)


def running_version(evidence: Evidence) -> str:
    """The version of the library and the loaded module. Raises FixError if they differ."""
    gpu, modules = evidence[Gpus].data, evidence[Modules].data
    version = gpu.driver_version if gpu else None
    loaded = modules.nvidia_version if modules else None
    if half_a_driver(evidence):
        raise FixError(f"{half_a_driver(evidence)}: {INSTALL_LIBRARY}; then plan again")
    if version is None:
        raise FixError(
            f"the driver's library and the loaded module ({loaded or 'of unknown version'}) do "
            "not fit together: reboot first, then plan again"
        )
    if loaded is not None and loaded != version:
        raise FixError(
            f"the driver's library is {version} and the loaded module {loaded}: "
            "reboot first, then plan again"
        )
    return version


def packages_of(evidence: Evidence, running: str, params: Params) -> Packages:
    """The section. Raises FixError if nodevet cannot change its packages, or they are not valid."""
    section = evidence[Packages]
    if section.data is None:
        raise FixError(f"packages: {section.why}")
    if section.data.packages is None:
        raise FixError(f"packages: {section.data.why('packages')}")
    if section.data.manager not in ("dpkg", "dnf", "zypper"):
        names = [package.name for package in section.data.packages]
        host = evidence[HostInfo].data
        by_hand = rpm_commands(section.data.packages, running, params, host.os_id if host else None)
        raise FixError(
            f"the packages are {section.data.manager}'s ({brief_list(names) or 'none of NVIDIA'}), "
            f"and nodevet changes only packages of apt, dnf 4 and zypper; by hand: {by_hand}"
        )
    for package in section.data.packages:
        require_valid(package, section.data.manager)
    return section.data


def require_valid(package: Package, manager: str) -> None:
    """Raise FixError if a package is not fully installed, or its name or version is not valid."""
    is_dpkg = manager == "dpkg"
    if package.version is None and package.errors.get("version") != NOT_INSTALLED:
        repair = (
            "`dpkg --configure -a` or `apt-get -f install`" if is_dpkg else "remove all but one"
        )
        raise FixError(f"{package.name}: {package.why('version')}; {repair} first, then plan again")
    name, version = (
        (NAME.match, VERSION.match) if is_dpkg else (RPM_NAME.fullmatch, rpm.VERSION.fullmatch)
    )
    versions = (*([package.version] if package.version else []), *(package.offers or ()))
    if not name(package.name) or not all(map(version, versions)):
        raise FixError(
            f"{package.name[:60]!r} is not a valid package of {'apt' if is_dpkg else manager}"
        )


def rpm_commands(listed: Sequence[Package], running: str, params: Params, os_id: str | None) -> str:
    """The commands for a person on a node with rpm, for its packages of the running version."""
    names = [
        package.name.rpartition(".")[0]
        for package in listed
        if RPM_NAME.fullmatch(package.name) and driver_version_in(package.version or "") == running
    ][:SHOWN] or ["NAME"]
    version = EXACT.fullmatch(params.version.strip())
    wanted, words = version[1] if version else "VERSION", " ".join(names)
    if os_id and os_id.startswith(("sle", "opensuse")):
        pairs = " ".join(f"{name}={wanted}" for name in names)
        return f"`zypper install --oldpackage {pairs}`, `zypper addlock {words}`, then reboot"
    branch = wanted.partition(".")[0] if version else "BRANCH"
    stream = f"{branch}-{'open' if any('open' in name for name in names) else 'dkms'}"
    pairs = " ".join(f"{name}-{wanted}" for name in names)
    return (
        f"`dnf module switch-to nvidia-driver:{stream} --allowerasing` if `dnf module list "
        f"nvidia-driver` has streams; `dnf install {pairs}`, `dnf versionlock add {words}`, then "
        "reboot"
    )


def asks(params: Params) -> Mapping[str, tuple[str, ...]]:
    """Asks for the packages of the driver if its version is not the expected one."""
    return {"packages": (params.version,)}


FIX = Fix(plan=plan, risk=Risk.REBOOT, after=(EVERY,), asks=asks)
"""The new library refuses the old module: nothing on a GPU works until a reboot."""
