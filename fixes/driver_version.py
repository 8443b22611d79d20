"""Install the expected version of the NVIDIA driver from the node's repositories.

**Now** one `apt-get install NAME=VERSION ...` of every installed package that has the driver's
version, also the fabric manager's: it changes all of them, or none. The version is the highest that
the baseline allows and that the node's repositories have for each package; then `apt-mark hold`. If
apt would also remove, install or upgrade other packages, it stops before it changes anything.

**At every boot** nothing is needed: the packages stay installed, and are held against upgrades.

**Risk** reboot. The old module stays loaded until then, and the new library refuses to talk to it:
nothing that uses a GPU starts. The installation builds DKMS modules, which takes minutes.

**Rollback** installs the earlier versions, and restores whether the packages were held and whether
they were marked as automatically installed; it takes another reboot. If the repositories no longer
have the installed version, a rollback could not restore it, and nodevet plans nothing.

**What it cannot do.** It configures no repository and does not update package lists (`apt-get
update`). It does not change to another branch if the packages are named after the branch
(nvidia-driver-550, nvidia-driver-560). It does not change what NVIDIA's .run installer installed.
Modules that were built for one kernel (linux-modules-nvidia-*) follow that kernel's packages.
With dnf and zypper it plans nothing: it prints the commands for the node's packages, which a person
runs.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from packaging.version import Version

from nodevet.checks.driver_version import Params, specifiers
from nodevet.evidence.across import INSTALL_LIBRARY, half_a_driver
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpus
from nodevet.evidence.host import HostInfo
from nodevet.evidence.modules import Modules
from nodevet.evidence.packages import Package, Packages
from nodevet.fixing.model import EVERY, Fix, FixError, PlannedChange, Risk
from nodevet.model import Finding
from nodevet.remote.probe.collectors.packages import NAME, NOT_INSTALLED, VERSION, driver_version_in
from nodevet.resource import Actions, Resource
from nodevet.resource.package import install, mark

SAID = 8  # versions or names in one sentence

CORE = re.compile(
    r"libcuda1|libnvidia-(ml1|compute-|cfg1)|nvidia-(driver|dkms|kernel|utils|open|alternative)"
)
"""A driver needs at least one of these."""
FOLLOWS = re.compile(r"(cuda-drivers|nvidia)-fabricmanager|libnvidia-nscq|nvidia-imex|libnvsdm")
"""These work only with the driver of their own version."""
PREBUILT = re.compile(r"linux-(modules|objects|signatures)-nvidia-")
OWN_PACE = re.compile(r"nvidia-kernel-common|nvidia-driver-(local-repo|pinning)")
RPM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]{0,99}")
EXACT = re.compile(r"(?:==)?\s*([0-9]+(?:\.[0-9]+)+)")
BRANCH = re.compile(r"-([0-9]{3})(?=[-:]|\Z)")
NOTE = (
    "DKMS may build modules, which takes minutes; until the reboot the new library refuses the "
    "old module, and nothing that uses a GPU starts"
)
SOURCES = (
    "configure the repository that has it, or fetch its list with `apt-get update`: "
    "nodevet does neither"
)


class Target(NamedTuple):
    """A package, and the version of it to install."""

    name: str
    version: str
    automatic: bool


def plan(evidence: Evidence, failed: Sequence[Finding], params: Params) -> Iterator[PlannedChange]:
    """One change for all packages of the driver; see `FIX`."""
    running = running_version(evidence)
    if any(finding.actual != running for finding in failed):
        raise FixError("the finding does not belong to this evidence")
    listed = packages_of(evidence, running, params)
    packages = of_driver(listed, running, params)
    offers = {package.name: offers_of(package, listed, running) for package in packages}
    version = choose(offers, packages, running, params)
    targets = [offers[package.name][version] for package in packages]
    by_name = {package.name: package for package in listed}
    replaced = [by_name[target.name] for target in targets]
    if unavailable := [
        package.name
        for package in replaced
        if package.version not in (None, *(package.offers or ()))
    ]:
        raise FixError(
            "it cannot be rolled back: none of the node's repositories has the installed version "
            f"of {some(unavailable)} any more; keep it in one, then plan again"
        )
    held = [package.name for package in replaced if package.held]
    versions = [driver_version_in(package.version) for package in replaced if package.version]
    held_note = f"an administrator or an earlier fix holds {some(held)} now;  " if held else ""
    yield PlannedChange(
        expected=version,
        actual=running,
        subjects=tuple(finding.subject.label for finding in failed),
        actions=actions(
            targets,
            down=any(package and Version(package) > Version(version) for package in versions),
            change_held=bool(held),
        ),
        resources=tuple(Resource(kind="package", name=target.name) for target in targets),
        risk=Risk.REBOOT,
        effective="reboot",
        note=held_note + NOTE,
    )


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


def packages_of(evidence: Evidence, running: str, params: Params) -> tuple[Package, ...]:
    """Every package of the evidence. Raises FixError if they are not apt's, or not valid."""
    section = evidence[Packages]
    if section.data is None:
        raise FixError(f"packages: {section.why}")
    if section.data.packages is None:
        raise FixError(f"packages: {section.data.why('packages')}")
    if section.data.manager != "dpkg":
        names = [package.name for package in section.data.packages]
        host = evidence[HostInfo].data
        by_hand = rpm_commands(section.data.packages, running, params, host.os_id if host else None)
        raise FixError(
            f"the packages are {section.data.manager}'s ({some(names) or 'none of NVIDIA'}), and "
            f"nodevet changes only packages of apt; by hand: {by_hand}"
        )
    for package in section.data.packages:
        if package.version is None and package.errors.get("version") != NOT_INSTALLED:
            raise FixError(
                f"{package.name}: {package.why('version')}; `dpkg --configure -a` or `apt-get -f "
                "install` first, then plan again"
            )
        if not NAME.match(package.name) or not all(
            VERSION.match(text) for text in (package.version or "0", *(package.offers or ()))
        ):
            raise FixError(f"{package.name[:60]!r} is not a valid package of apt")
    return section.data.packages


def rpm_commands(listed: Sequence[Package], running: str, params: Params, os_id: str | None) -> str:
    """The commands for a person on a node with rpm, for its packages of the running version."""
    names = [
        package.name
        for package in listed
        if RPM_NAME.fullmatch(package.name) and driver_version_in(package.version or "") == running
    ][:SAID] or ["NAME"]
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


def of_driver(listed: Sequence[Package], running: str, params: Params) -> tuple[Package, ...]:
    """The installed packages that must have one version. Raises FixError."""
    installed = [package for package in listed if package.version is not None]
    versions = {
        package.name: driver_version_in(package.version or "") or "" for package in installed
    }
    matching = [package for package in installed if versions[package.name] == running]
    other_versions = {
        name: version
        for name, version in versions.items()
        if CORE.match(name) and not OWN_PACE.match(name) and version not in ("", running)
    }
    if not any(CORE.match(package.name) for package in matching):
        raise FixError(unowned(running, set(other_versions.values()), params))
    if other_versions:
        text = some([f"{name} {version}" for name, version in other_versions.items()])
        raise FixError(
            f"the running driver is {running}, and {text} are also installed: repair these, then "
            "plan again"
        )
    if prebuilt := [name for name in versions if PREBUILT.match(name)]:
        raise FixError(
            f"{some(prebuilt)}: these modules were built for one kernel and one driver, and the "
            "version of the package does not say which: change them with the kernel's packages"
        )
    followers = [
        package for package in installed if FOLLOWS.match(package.name) and package not in matching
    ]
    return tuple(sorted([*matching, *followers], key=lambda package: package.name))


def unowned(running: str, versions: Collection[str], params: Params) -> str:
    """Why no package has the driver's version."""
    if not versions:
        return (
            f"no package owns the driver {running}: NVIDIA's .run installer installed it; remove "
            "it (nvidia-uninstall) and install packages, which nodevet does not do"
        )
    text = some(sorted(versions))
    if all(
        specifiers(params.version).contains(Version(version), prereleases=True)
        for version in versions
    ):
        return f"the packages already have version {text}: reboot"
    return (
        f"the running driver is {running}, and the packages have version {text}: reboot, or "
        "remove what NVIDIA's .run installer installed (nvidia-uninstall), then plan again"
    )


def offers_of(package: Package, listed: Sequence[Package], running: str) -> dict[str, Target]:
    """The highest package that the repositories offer for each version of the driver, in place of
    `package`.

    Raises FixError if the offers were not read.
    """
    if package.offers is None or package.automatic is None:
        field = "offers" if package.offers is None else "automatic"
        raise FixError(f"{package.name}: {field}: {package.why(field)}")
    base, _, architecture = package.name.partition(":")
    if not base.endswith(f"-{running}"):
        targets: dict[str, Target] = {}
        for version in package.offers:
            key = driver_version_in(version)
            if key is not None:
                targets.setdefault(key, Target(package.name, version, package.automatic))
        return targets
    stem = base[: -len(running)]
    return {
        key: Target(candidate.name, version, package.automatic)
        for candidate in listed
        for version in (candidate.offers or ())[:1]
        if (key := driver_version_in(version))
        and candidate.name in (stem + key, f"{stem}{key}:{architecture}")
    }


def choose(
    offers: Mapping[str, Mapping[str, Target]],
    packages: Sequence[Package],
    running: str,
    params: Params,
) -> str:
    """The highest version that the baseline allows and that the repositories offer for every
    package. Raises FixError."""
    admits = specifiers(params.version)
    major = running.partition(".")[0]
    branches = {branch for package in packages for branch in BRANCH.findall(package.name)}
    versions = {version for targets in offers.values() for version in targets}
    admitted = {
        version for version in versions if admits.contains(Version(version), prereleases=True)
    }
    if major in branches:
        admitted = {version for version in admitted if version.partition(".")[0] == major}
    common = [
        version for version in admitted if all(version in targets for targets in offers.values())
    ]
    if common:
        return max(common, key=Version)
    if admitted:
        version = max(admitted, key=Version)
        lacking = [name for name, targets in offers.items() if version not in targets]
        raise FixError(f"the repositories offer {version}, but not for {some(lacking)}; {SOURCES}")
    branch_example = next(
        (package.name for package in packages if major in BRANCH.findall(package.name)), ""
    )
    branch = f" as packages of {branch_example}'s branch" if branch_example else ""
    raise FixError(
        f"the repositories offer no version that the baseline allows ({params.version}){branch}; "
        f"they offer {some(sorted(versions, key=Version, reverse=True)) or 'nothing'}; {SOURCES}"
        + (", and does not exchange packages for those of another branch" if branch_example else "")
    )


def some(words: Sequence[str]) -> str:
    rest = f" and {len(words) - SAID} more" if len(words) > SAID else ""
    return ", ".join(words[:SAID]) + rest


def actions(targets: Sequence[Target], *, down: bool, change_held: bool) -> Actions:
    """One transaction for all packages, then their marks. `down`: whether some packages get a lower
    version."""
    names = [target.name for target in targets]
    options = (
        "--no-remove",
        *(["--allow-downgrades"] if down else []),
        *(["--allow-change-held-packages"] if change_held else []),
        *("-o", "DPkg::Tools::Options::while::Version=2"),
        *("-o", f"DPkg::Pre-Install-Pkgs::={only(names)}"),
    )
    return (
        install([f"{target.name}={target.version}" for target in targets], *options),
        *mark("auto", [target.name for target in targets if target.automatic]),
        *mark("hold", names),
    )


def only(names: Sequence[str]) -> str:
    """A hook that stops apt before it changes anything, if it would change any other package.

    Its input says what apt is about to do: apt's configuration, an empty line, and a line for each
    package that begins with its name (DPkg::Pre-Install-Pkgs of apt.conf(5), version 2).
    """
    known_names = " ".join(dict.fromkeys(name.partition(":")[0] for name in names))
    return (
        'while read -r line && [ -n "$line" ]; do :; done; '
        f'while read -r name rest; do case " {known_names} " in *" $name "*) ;; '
        '*) echo "nodevet: $name would change too, and is not in the plan" >&2; exit 1 ;; '
        "esac; done"
    )


def asks(params: Params) -> Mapping[str, tuple[str, ...]]:
    """Asks for the packages of the driver if its version is not the expected one."""
    return {"packages": (params.version,)}


FIX = Fix(plan=plan, risk=Risk.REBOOT, after=(EVERY,), asks=asks)
"""The new library refuses the old module: nothing on a GPU works until a reboot."""
