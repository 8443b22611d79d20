"""Actions of dnf and zypper: they change exactly the named packages of rpm, or nothing.

A package is `NAME.ARCHITECTURE=EVR`, as `nvidia-driver.x86_64=3:570.86.15-1.el9`; EVR is rpm's
[epoch:]version-release.
"""

import re
import shlex
from collections.abc import Sequence
from typing import Literal

from nodevet.resource.core import RestoreError, RunCommand, State, mapping
from nodevet.resource.package.apt import LOCK_SECONDS, SECONDS, Expected

Manager = Literal["dnf", "zypper"]

VERSION = re.compile(r"(?:[0-9]+:)?[0-9A-Za-z][0-9A-Za-z._+~^]*-[0-9A-Za-z][0-9A-Za-z._+~^]*")

_DNF = (
    "a=Upgrade; list=; for word; do case $word in remove) a=Removed; continue;; esac; "
    'name=${word%%=*}; reason=user; rpm -q --quiet "$name" && reason=dependency; '
    'list="$list${list:+, }{\\"action\\": \\"$a\\", '
    '\\"nevra\\": \\"${name%.*}-${word#*=}.${name##*.}\\", '
    '\\"reason\\": \\"$reason\\", \\"repo_id\\": \\"\\"}"; done; '
    'echo "{\\"version\\": \\"0.0\\", \\"rpms\\": [$list]}" | '
    'dnf -y -q "--setopt=*.module_hotfixes=1" --setopt=install_weak_deps=0 --setopt=strict=1 '
    "history replay --ignore-installed /dev/stdin"
)
"""`dnf history replay` refuses a transaction that would change another package. dnf raises the
reason of an installed package to `dependency`, and never lowers it. With module_hotfixes, the
version may be of a module stream that is not enabled."""

_OPTIONS = (
    "--no-recommends --oldpackage --auto-agree-with-licenses --download-in-advance --no-confirm"
)
_ZYPPER = (
    f'set -f; export LC_ALL=C ZYPP_LOCK_TIMEOUT={LOCK_SECONDS}; sign=; known=" "; '
    "for word; do shift; case $word in remove) sign=!; continue;; esac; "
    'known="$known${word%%=*} "; set -- "$@" "$sign$word"; done; '
    f'all=$(zypper -n -x --no-refresh install --dry-run {_OPTIONS} "$@") || '
    '{ echo "$all" | tail -n 20 >&2; exit 1; }; '
    'case $all in *">Nothing to do.<"*) exit 0;; esac; '
    'names=$(echo "$all" | sed -n '
    '\'s/^<solvable .* name="\\([^"]*\\)".* arch="\\([^"]*\\)".*/\\1.\\2/p\'); '
    'for name in $names; do case $known in *" $name "*) ;; '
    '*) echo "nodevet: $name would change too, and is not in the plan" >&2; exit 1;; esac; done; '
    'case $all in *"packages-to-change=\\"$(echo "$names" | wc -w)\\""*) ;; '
    '*) echo "nodevet: cannot read what zypper would change" >&2; exit 1;; esac; '
    f'zypper -n --no-refresh install {_OPTIONS} "$@"; code=$?; '
    "case $code in 102|103) exit 0;; esac; exit $code"
)
"""zypper first says in XML what it would change. 102 and 103: installed, and something needs a
reboot or a restart (zypper(8), EXIT CODES)."""

_SINGLE = (
    'for word; do name=${word%%=*}; [ "$(rpm -q "$name" | wc -l)" -lt 2 ] || '
    "rpm -e --justdb --nodeps --noscripts --notriggers "
    '"${name%.*}-${word#*=}.${name##*.}" || exit 1; done'
)
"""After a killed transaction, rpm has both versions of a package, and the files of the new one:
forget the old one, which is then installed again."""

_SCRIPTS = {"dnf": _DNF, "zypper": _ZYPPER}
_WAIT = ("env", f"ZYPP_LOCK_TIMEOUT={LOCK_SECONDS}")  # zypper(8); dnf waits by itself
_LOCK = {
    "dnf": ("dnf", "-q", "-C", "versionlock", "add", "--raw"),
    "zypper": (*_WAIT, "zypper", "-n", "addlock"),
}
_UNLOCK = {
    "dnf": ("dnf", "-q", "-C", "versionlock", "delete"),
    "zypper": (*_WAIT, "zypper", "-n", "removelock"),
}
_LOCK_INSTALLED = (
    'left=$#; while [ "$left" -gt 0 ]; do if rpm -q --quiet "$1"; then set -- "$@" "$2"; fi; '
    'shift 2; left=$((left - 2)); done; [ $# = 0 ] || exec {} "$@"'
)
"""Its words are pairs: a package as rpm has it, and its lock."""


def replace(manager: Manager, targets: Sequence[str], removed: Sequence[str] = ()) -> RunCommand:
    """One transaction that installs `targets` and removes `removed`, which have another name."""
    words = ("sh", "-c", _SCRIPTS[manager], manager, *targets)
    return RunCommand(words=(*words, "remove", *removed) if removed else words, seconds=SECONDS)


def lock(manager: Manager, targets: Sequence[str]) -> tuple[RunCommand, ...]:
    """Lock each package at its version (dnf), or as it is (zypper); nothing for no targets."""
    return _commands(_LOCK[manager], [_lock_of(manager, target) for target in targets])


def lock_installed(manager: Manager, targets: Sequence[str]) -> RunCommand:
    """Lock as `lock` does those packages that are installed in this version."""
    pairs = [(_nevra(target), _lock_of(manager, target)) for target in targets]
    words = (word for pair in pairs for word in pair)
    script = _LOCK_INSTALLED.format(shlex.join(_LOCK[manager]))
    return RunCommand(words=("sh", "-c", script, "lock", *words), seconds=2 * LOCK_SECONDS)


def unlock(manager: Manager, targets: Sequence[str]) -> tuple[RunCommand, ...]:
    """Remove the locks of these packages, with dnf only those of their versions; nothing for no
    targets. `dnf versionlock delete NAME` would also remove what an administrator excluded."""
    if manager == "zypper":
        return _commands(_UNLOCK[manager], [_name(target) for target in targets])
    ends = [(_entry(target), target.partition("=")[0].rpartition(".")[2]) for target in targets]
    entries = [f"{entry}{end}" for entry, arch in ends for end in ("", ".*", f".{arch}")]
    return _commands(_UNLOCK[manager], entries)


def is_lock(words: Sequence[str]) -> bool:
    """Whether a command only locks or unlocks packages."""
    return any(
        tuple(words[: len(start)]) == start for start in (*_LOCK.values(), *_UNLOCK.values())
    )


def manager_of(words: Sequence[str]) -> Manager | None:
    """The manager of a command that `replace` returned; None for another command."""
    managers: tuple[Manager, ...] = ("dnf", "zypper")
    starts = {manager: ("sh", "-c", _SCRIPTS[manager], manager) for manager in managers}
    return next((each for each in managers if tuple(words[:4]) == starts[each]), None)


def sets(words: Sequence[str]) -> Expected | None:
    """What a transaction or a lock sets; None for another command. A lock names no architecture."""
    if manager_of(words):
        targets = [target.partition("=") for target in words[4:]]
        end = next((at for at, half in enumerate(targets) if half[0] == "remove"), len(targets))
        return [
            *((name, "version", version) for name, _, version in targets[:end]),
            *((name, "version", None) for name, _, _ in targets[end + 1 :]),
        ]
    for manager, start in _LOCK.items():
        if tuple(words[: len(start)]) == start:
            names = words[len(start) :]
            return [
                (name.rsplit("-", 2)[0] if manager == "dnf" else name, "held", True)
                for name in names
            ]
    return None


def restore(states: Sequence[State], actions: Sequence[RunCommand]) -> list[RunCommand]:
    """Install the versions of all states in one transaction, and restore their locks if the step
    changed locks; leave the step's other packages alone. `actions`: the step's. If the transaction
    is refused, the step's versions are locked again.

    The versions come from the node's repositories. A package that the step removed then counts as
    installed by the user. Raises RestoreError.
    """
    step = next(action.words for action in actions if manager_of(action.words))
    manager = manager_of(step)
    assert manager is not None  # noqa: S101 - for mypy: `next` found it
    names = {state.resource.name for state in states}
    installed = {name: version for name, _, version in sets(step) or () if name in names}
    before = {state.resource.name: _version(state) for state in states if state.exists}
    targets = [f"{name}={version}" for name, version in before.items()]
    new = {name: f"{name}={version}" for name, version in installed.items() if version}
    gone = [target for name, target in new.items() if name not in before]
    held = [
        f"{state.resource.name}={before[state.resource.name]}"
        for state in states
        if state.mapping.get("held")
    ]
    locked = [*held, *(target for target in new.values() if target not in targets)]
    has_locks = any(is_lock(action.words) for action in actions)
    return [
        RunCommand(words=("sh", "-c", _SINGLE, "rpm", *targets), seconds=SECONDS),
        *(unlock(manager, [*targets, *new.values()]) if has_locks else ()),
        replace(manager, targets, gone),
        *([lock_installed(manager, locked)] if has_locks else ()),
    ]


def _version(state: State) -> str:
    version = mapping(state).get("version")
    if not isinstance(version, str) or not VERSION.fullmatch(version):
        raise RestoreError(f"{state.resource.label}: {version!r} is not a version")
    return version


def _commands(start: tuple[str, ...], words: Sequence[str]) -> tuple[RunCommand, ...]:
    seconds = 2 * LOCK_SECONDS if start[0] == "env" else None
    return (RunCommand(words=(*start, *dict.fromkeys(words)), seconds=seconds),) if words else ()


def _name(target: str) -> str:
    """The name of a package without its architecture."""
    return target.partition("=")[0].rpartition(".")[0]


def _nevra(target: str) -> str:
    """A package as rpm has it: nvidia-driver-3:570.86.15-1.el9.x86_64."""
    name, _, architecture = target.partition("=")[0].rpartition(".")
    return f"{name}-{target.partition('=')[2]}.{architecture}"


def _lock_of(manager: Manager, target: str) -> str:
    return f"{_entry(target)}.*" if manager == "dnf" else _name(target)


def _entry(target: str) -> str:
    """A package at its version, as dnf's plugin versionlock names it, without an architecture."""
    version = target.partition("=")[2]
    return f"{_name(target)}-{version if ':' in version else f'0:{version}'}"
