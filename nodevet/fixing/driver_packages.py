"""The packages of the NVIDIA driver: which ones must have one version, and which version all of
them can have."""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cmp_to_key
from typing import NamedTuple

from packaging.version import Version

from nodevet.checks.driver_version import Params, specifiers
from nodevet.evidence.packages import Package
from nodevet.evidence.versions import order
from nodevet.fixing.model import FixError
from nodevet.remote.probe.driver_names import driver_version_in

SHOWN = 8  # versions or names in one sentence

CORE = re.compile(
    r"libcuda1|libnvidia-(ml1|compute-|cfg1)|a?kmod-nvidia|xorg-x11-drv-nvidia"
    r"|nvidia-(driver|dkms|kernel|utils|open|alternative|kmod|compute)"
)
"""A driver needs at least one of these."""
FOLLOWS = re.compile(r"(cuda-drivers|nvidia)-fabric-?manager|libnvidia-nscq|nvidia-imex|libnvsdm")
"""These work only with the driver of their own version."""
PREBUILT = re.compile(r"linux-(modules|objects|signatures)-nvidia-")
OWN_PACE = re.compile(r"nvidia-kernel-common|nvidia-driver-(local-repo|pinning)")
BRANCH = re.compile(r"-([0-9]{3})(?=[-:]|\.[a-z]|\Z)")
SOURCES = "configure the repository that has it, or fetch its list with {}: nodevet does neither"
FETCH = {"dpkg": "`apt-get update`", "dnf": "`dnf makecache`", "zypper": "`zypper refresh`"}


class Target(NamedTuple):
    """A package, and the version of it to install."""

    name: str
    version: str
    automatic: bool


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
        raise FixError(no_package_reason(running, set(other_versions.values()), params))
    if other_versions:
        text = brief_list([f"{name} {version}" for name, version in other_versions.items()])
        raise FixError(
            f"the running driver is {running}, and {text} are also installed: repair these, then "
            "plan again"
        )
    if prebuilt := [name for name in versions if PREBUILT.match(name)]:
        raise FixError(
            f"{brief_list(prebuilt)}: these modules were built for one kernel and one driver, and "
            "the version of the package does not say which: change them with the kernel's packages"
        )
    followers = [
        package for package in installed if FOLLOWS.match(package.name) and package not in matching
    ]
    return tuple(sorted([*matching, *followers], key=lambda package: package.name))


def no_package_reason(running: str, versions: Collection[str], params: Params) -> str:
    """Why no package has the driver's version."""
    if not versions:
        return (
            f"no package owns the driver {running}: NVIDIA's .run installer installed it; remove "
            "it (nvidia-uninstall) and install packages, which nodevet does not do"
        )
    text = brief_list(sorted(versions))
    if all(
        specifiers(params.version).contains(Version(version), prereleases=True)
        for version in versions
    ):
        return f"the packages already have version {text}: reboot"
    return (
        f"the running driver is {running}, and the packages have version {text}: reboot, or "
        "remove what NVIDIA's .run installer installed (nvidia-uninstall), then plan again"
    )


def offers_of(
    package: Package, listed: Sequence[Package], running: str, manager: str
) -> dict[str, Target]:
    """The highest package that the repositories offer for each version of the driver, in place of
    `package`.

    Raises FixError if the offers were not read.
    """
    if package.offers is None:
        raise FixError(f"{package.name}: offers: {package.why('offers')}")
    if package.automatic is None and manager == "dpkg":
        raise FixError(f"{package.name}: automatic: {package.why('automatic')}")
    base, _, architecture = package.name.partition(":")
    own_version = re.compile(rf"-{re.escape(running)}(?=-|\Z)")
    targets: dict[str, Target] = {}
    for candidate in listed if own_version.search(base) else (package,):
        for version in highest_first(candidate, manager):
            key = driver_version_in(version) or ""
            name = own_version.sub(f"-{key}", base)
            if key and candidate.name in (name, f"{name}:{architecture}"):
                target = Target(candidate.name, version, bool(package.automatic))
                targets.setdefault(key, target)
    return targets


def highest_first(package: Package, manager: str) -> Sequence[str]:
    """The versions that the repositories offer; apt sorts them itself."""

    def compare(one: str, other: str) -> int:
        return order(one, other, manager)

    offers = package.offers or ()
    return offers if manager == "dpkg" else sorted(offers, key=cmp_to_key(compare), reverse=True)


def choose(
    offers: Mapping[str, Mapping[str, Target]],
    packages: Sequence[Package],
    running: str,
    params: Params,
    manager: str,
) -> str:
    """The highest version that the baseline allows and that the repositories offer for every
    package. Raises FixError."""
    admits, sources = specifiers(params.version), SOURCES.format(FETCH[manager])
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
        raise FixError(
            f"the repositories offer {version}, but not for {brief_list(lacking)}; {sources}"
        )
    branch_example = next(
        (package.name for package in packages if major in BRANCH.findall(package.name)), ""
    )
    branch = f" as packages of {branch_example}'s branch" if branch_example else ""
    raise FixError(
        f"the repositories offer no version that the baseline allows ({params.version}){branch}; "
        f"they offer {brief_list(sorted(versions, key=Version, reverse=True)) or 'nothing'}; "
        f"{sources}"
        + (", and does not exchange packages for those of another branch" if branch_example else "")
    )


def brief_list(words: Sequence[str]) -> str:
    rest = f" and {len(words) - SHOWN} more" if len(words) > SHOWN else ""
    return ", ".join(words[:SHOWN]) + rest
