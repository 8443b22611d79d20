"""Actions of dnf and zypper for new versions of the driver's packages, and dnf's module stream."""

import re
from collections.abc import Sequence

from nodevet.evidence.packages import ModuleStream, Package, Packages
from nodevet.fixing.driver_packages import Target, brief_list
from nodevet.fixing.model import FixError
from nodevet.resource import Actions, RunCommand
from nodevet.resource.file import WriteFile
from nodevet.resource.package.rpm import Manager, lock, replace, unlock

MODULE = "nvidia-driver"
MODULE_FILE = f"/etc/dnf/modules.d/{MODULE}.module"
BUILT = (
    'dkms status | grep -F ", $(uname -r), " | grep -Eq "^nvidia[a-z-]*(/|, )$1, .*: installed" || '
    '{ echo "nodevet: DKMS has not built nvidia $1 for the kernel $(uname -r)" >&2; exit 1; }'
)
"""rpm succeeds even if DKMS fails. Two forms of `dkms status`: `nvidia/570.86.15, KERNEL, ...:
installed`, and before DKMS 3 with a comma after the name."""
NO_LOCK = "nothing will hold the packages: dnf's plugin versionlock is not installed or not enabled"


def actions(
    manager: Manager,
    section: Packages,
    targets: Sequence[Target],
    replaced: Sequence[Package],
    version: str,
) -> Actions:
    """One transaction for all packages, then their locks. `replaced`: the installed packages.

    Raises FixError if dnf sees the packages in no module stream, or in several.
    """
    words = [f"{target.name}={target.version}" for target in targets]
    names = {target.name for target in targets}
    removed = [
        f"{package.name}={package.version}" for package in replaced if package.name not in names
    ]
    held = [f"{package.name}={package.version}" for package in replaced if package.held]
    return (
        *enable(section, words),
        *(unlock(manager, held) if section.can_lock else ()),
        replace(manager, words, removed),
        *([require_built_module(version)] if any("dkms" in name for name in names) else ()),
        *(lock(manager, words) if section.can_lock else ()),
    )


def require_built_module(version: str) -> RunCommand:
    """Succeeds if DKMS has built this version's module for the running kernel."""
    return RunCommand(words=("sh", "-c", BUILT, "dkms", version))


def enable(section: Packages, words: Sequence[str]) -> tuple[WriteFile, ...]:
    """Enable the module stream that has these packages; nothing if dnf sees them already."""
    stream = stream_of(section, words)
    if stream is None:
        return ()
    if section.profiles is None:
        raise FixError(f"profiles: {section.why('profiles')}")
    rows = (f"name={MODULE}", f"stream={stream.name}", f"profiles={section.profiles}")
    content = "\n".join((f"[{MODULE}]", *rows, "state=enabled", ""))
    return (WriteFile(path=MODULE_FILE, content=content),)


def stream_of(section: Packages, words: Sequence[str]) -> ModuleStream | None:
    """The stream to enable: of the kind of the active one (550-open, 570-open), or the only one
    that has the packages. None: the active one has them, or none has any. Raises FixError."""
    if section.streams is None:
        raise FixError(f"streams: {section.why('streams')}")
    modular = {
        word for word in words if any(word in packages(stream) for stream in section.streams)
    }
    fitting = [stream for stream in section.streams if modular <= packages(stream)]
    if not modular or any(stream.active for stream in fitting):
        return None
    branch = next(iter(modular)).partition("=")[2].rpartition(":")[2].partition(".")[0]
    active = [stream.name for stream in section.streams if stream.active]
    same_kind = {re.sub(r"^[0-9]+", branch, name) for name in active}
    chosen = [stream for stream in fitting if stream.name in same_kind] or fitting
    if len(chosen) == 1 and re.fullmatch(r"[A-Za-z0-9._+-]+", chosen[0].name):
        return chosen[0]
    names = brief_list([stream.name for stream in fitting])
    raise FixError(
        f"the packages are in {f'several streams ({names})' if names else 'no single stream'} of "
        f"dnf's module {MODULE}: `dnf module switch-to {MODULE}:STREAM`, then plan again"
    )


def packages(stream: ModuleStream) -> set[str]:
    return set(stream.packages or ())
