"""Install the expected version of the NVIDIA driver from the node's repositories.

**Now** one `apt-get install NAME=VERSION ...` of every installed package that has the driver's
version, the fabric manager's too: all of them, or none. The version is the highest that the
baseline allows and the node's repositories have for each of them; then `apt-mark hold`. If apt
would also remove, install or upgrade other packages, it is stopped before it changes anything.

**At every boot** nothing is needed: the packages stay installed, held against upgrades.

**Risk** reboot. The old module stays loaded until then, and the new library refuses to talk to
it: nothing that uses a GPU starts. A DKMS module is built during the installation, which takes
minutes.

**Rollback** installs the earlier versions, and restores whether they were held and whether they
were marked as automatically installed; it takes another reboot. If the repositories no longer have
the installed version, it could not be restored, and nothing is planned.

**What it cannot do.** It configures no repository and does not update package lists
(`apt-get update`). It does not change to another branch if the packages are named after the
branch (nvidia-driver-550, nvidia-driver-560), nor change what NVIDIA's .run installer
installed. Modules that were built for one kernel (linux-modules-nvidia-*) follow that kernel's
packages. Packages of dnf and zypper are left alone.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from packaging.version import Version

from nodevet.checks.driver_version import Params, specifiers
from nodevet.evidence.across import INSTALL_LIBRARY, half_a_driver
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpus
from nodevet.evidence.modules import Modules
from nodevet.evidence.packages import Package, Packages
from nodevet.fixing.model import EVERY, Fix, FixError, PlannedChange, Risk
from nodevet.model import Finding, Verdict
from nodevet.remote.probe.collectors.packages import NAME, NOT_INSTALLED, VERSION, driver_version_in
from nodevet.resource import Actions, Resource
from nodevet.resource.package import install, mark

SAID = 8  # versions or names in one sentence

CORE = re.compile(
    r"libcuda1|libnvidia-(ml1|compute-|cfg1)|nvidia-(driver|dkms|kernel|utils|open|alternative)"
)
"""Without one of these there is no driver."""
FOLLOWS = re.compile(r"(cuda-drivers|nvidia)-fabricmanager|libnvidia-nscq|nvidia-imex|libnvsdm")
"""These work with the driver of their own version alone."""
PREBUILT = re.compile(r"linux-(modules|objects|signatures)-nvidia-")
OWN_PACE = re.compile(r"nvidia-kernel-common|nvidia-driver-(local-repo|pinning)")
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
    """A package as it is to be."""

    name: str
    version: str
    automatic: bool


def plan(
    evidence: Evidence, findings: Sequence[Finding], params: Params
) -> Iterator[PlannedChange]:
    """One change of all packages of the driver; see `FIX`."""
    failed = [finding for finding in findings if finding.verdict is Verdict.FAIL]
    if not failed:
        return
    running = running_version(evidence)
    if any(finding.actual != running for finding in failed):
        raise FixError("the finding is not of this evidence")
    listed = packages_of(evidence)
    moved = of_driver(listed, running, params)
    offers = {each.name: offers_of(each, listed, running) for each in moved}
    version = choose(offers, moved, running, params)
    targets = [offers[each.name][version] for each in moved]
    known = {each.name: each for each in listed}
    touched = [known[target.name] for target in targets]
    if gone := [each.name for each in touched if each.version not in (None, *(each.offers or ()))]:
        raise FixError(
            f"it cannot be rolled back: the installed version of {some(gone)} is in none of the "
            "node's repositories any more; keep it in one, then plan again"
        )
    held = [each.name for each in touched if each.held]
    older = [driver_version_in(each.version) for each in touched if each.version]
    told = f"held now, by an administrator or an earlier fix: {some(held)}; " if held else ""
    yield PlannedChange(
        expected=version,
        actual=running,
        subjects=tuple(finding.subject.label for finding in failed),
        actions=actions(
            targets,
            down=any(each and Version(each) > Version(version) for each in older),
            change_held=bool(held),
        ),
        resources=tuple(Resource(kind="package", name=target.name) for target in targets),
        risk=Risk.REBOOT,
        effective="reboot",
        note=told + NOTE,
    )


def running_version(evidence: Evidence) -> str:
    """Of the library and the loaded module. Raises FixError if these differ."""
    gpu, modules = evidence[Gpus].data, evidence[Modules].data
    version = gpu.driver_version if gpu else None
    loaded = modules.nvidia_version if modules else None
    if half_a_driver(evidence):
        raise FixError(f"{half_a_driver(evidence)}: {INSTALL_LIBRARY}; then plan again")
    if version is None:
        raise FixError(
            f"the driver's library and the loaded module ({loaded or 'of no known version'}) do "
            "not fit together: reboot first, then plan again"
        )
    if loaded is not None and loaded != version:
        raise FixError(
            f"the driver's library is {version} and the loaded module {loaded}: "
            "reboot first, then plan again"
        )
    return version


def packages_of(evidence: Evidence) -> tuple[Package, ...]:
    """Every package of the evidence, apt's. Raises FixError."""
    section = evidence[Packages]
    if section.data is None:
        raise FixError(f"packages: {section.why}")
    if section.data.packages is None:
        raise FixError(f"packages: {section.data.why('packages')}")
    if section.data.manager != "dpkg":
        names = [each.name for each in section.data.packages]
        raise FixError(
            f"the packages are {section.data.manager}'s ({some(names) or 'none of NVIDIA'}), and "
            "only those of apt are changed: install the version with dnf and its versionlock"
        )
    for each in section.data.packages:
        if each.version is None and each.errors.get("version") != NOT_INSTALLED:
            raise FixError(
                f"{each.name}: {each.why('version')}; `dpkg --configure -a` or `apt-get -f "
                "install` first, then plan again"
            )
        if not NAME.match(each.name) or not all(
            VERSION.match(text) for text in (each.version or "0", *(each.offers or ()))
        ):
            raise FixError(f"{each.name[:60]!r} is not a package as apt has them")
    return section.data.packages


def of_driver(listed: Sequence[Package], running: str, params: Params) -> tuple[Package, ...]:
    """The installed packages that are to be of one version. Raises FixError."""
    there = [each for each in listed if each.version is not None]
    own = [each for each in there if driver_version_in(each.version or "") == running]
    others = {
        each.name: found
        for each in there
        if CORE.match(each.name)
        and not OWN_PACE.match(each.name)
        and (found := driver_version_in(each.version or "")) not in (None, running)
    }
    if not any(CORE.match(each.name) for each in own):
        raise FixError(unowned(running, set(others.values()), params))
    if others:
        told = some([f"{name} {version}" for name, version in others.items()])
        raise FixError(
            f"the driver that runs is {running}, and installed are also {told}: repair these, "
            "then plan again"
        )
    if built := [each.name for each in there if PREBUILT.match(each.name)]:
        raise FixError(
            f"{some(built)}: modules that were built for one kernel and one driver, and the "
            "version of the package does not say which: they are changed with the kernel's packages"
        )
    follow = [each for each in there if FOLLOWS.match(each.name) and each not in own]
    return tuple(sorted([*own, *follow], key=lambda each: each.name))


def unowned(running: str, others: Collection[str], params: Params) -> str:
    """Why no package is of the driver's version."""
    if not others:
        return (
            f"no package owns the driver {running}: NVIDIA's .run installer put it there; take it "
            "away (nvidia-uninstall) and install packages, which nodevet does not do"
        )
    told = some(sorted(others))
    if all(specifiers(params.version).contains(Version(each), prereleases=True) for each in others):
        return f"the packages are of {told} already: it takes a reboot"
    return (
        f"the driver that runs is {running}, and the packages are of {told}: reboot, or take away "
        "what NVIDIA's .run installer put there (nvidia-uninstall), then plan again"
    )


def offers_of(package: Package, listed: Sequence[Package], running: str) -> dict[str, Target]:
    """What may take a package's place, by the driver's version: of each the highest.

    Raises FixError if the node does not say.
    """
    if package.offers is None or package.automatic is None:
        field = "offers" if package.offers is None else "automatic"
        raise FixError(f"{package.name}: {field}: {package.why(field)}")
    base, _, architecture = package.name.partition(":")
    if not base.endswith(f"-{running}"):
        found: dict[str, Target] = {}
        for version in package.offers:
            key = driver_version_in(version)
            if key is not None:
                found.setdefault(key, Target(package.name, version, package.automatic))
        return found
    stem = base[: -len(running)]
    return {
        key: Target(each.name, version, package.automatic)
        for each in listed
        for version in (each.offers or ())[:1]
        if (key := driver_version_in(version))
        and each.name in (stem + key, f"{stem}{key}:{architecture}")
    }


def choose(
    offers: Mapping[str, Mapping[str, Target]],
    moved: Sequence[Package],
    running: str,
    params: Params,
) -> str:
    """The highest version that is admitted and on offer for all. Raises FixError."""
    admits = specifiers(params.version)
    major = running.partition(".")[0]
    branches = {branch for each in moved for branch in BRANCH.findall(each.name)}
    every = {version for found in offers.values() for version in found}
    right = {version for version in every if admits.contains(Version(version), prereleases=True)}
    if major in branches:
        right = {version for version in right if version.partition(".")[0] == major}
    common = [version for version in right if all(version in found for found in offers.values())]
    if common:
        return max(common, key=Version)
    if right:
        version = max(right, key=Version)
        lacking = [name for name, found in offers.items() if version not in found]
        raise FixError(f"{version} is on offer, but not for {some(lacking)}; {SOURCES}")
    named = next((each.name for each in moved if major in BRANCH.findall(each.name)), "")
    branch = f" as packages of {named}'s branch" if named else ""
    raise FixError(
        f"no version that is admitted ({params.version}) is on offer{branch}; on offer: "
        f"{some(sorted(every, key=Version, reverse=True)) or 'nothing'}; {SOURCES}"
        + (", and does not exchange packages for those of another branch" if named else "")
    )


def some(words: Sequence[str]) -> str:
    more = f" and {len(words) - SAID} more" if len(words) > SAID else ""
    return ", ".join(words[:SAID]) + more


def actions(targets: Sequence[Target], *, down: bool, change_held: bool) -> Actions:
    """One transaction of all, then what keeps them; `down`: some of them to a lower version."""
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
    """A hook of apt that ends it, before anything is changed, where it would change another one.

    It reads what apt is about to do: its configuration, an empty line, and a line for each
    package, its name first (DPkg::Pre-Install-Pkgs of apt.conf(5), version 2).
    """
    known = " ".join(dict.fromkeys(name.partition(":")[0] for name in names))
    return (
        'while read -r line && [ -n "$line" ]; do :; done; '
        f'while read -r name rest; do case " {known} " in *" $name "*) ;; '
        '*) echo "nodevet: $name would change too, and is not in the plan" >&2; exit 1 ;; '
        "esac; done"
    )


def asks(params: Params) -> Mapping[str, tuple[str, ...]]:
    """If the driver is not this, its packages."""
    return {"packages": (params.version,)}


FIX = Fix(plan=plan, risk=Risk.REBOOT, after=(EVERY,), asks=asks)
"""The new library refuses the old module: nothing on a GPU works until a reboot."""
