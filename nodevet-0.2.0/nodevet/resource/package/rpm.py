"""Actions of dnf and zypper: they change exactly the named packages of rpm, or nothing.

A package is `NAME.ARCHITECTURE=EVR`, as `nvidia-driver.x86_64=3:570.86.15-1.el9`; EVR is rpm's
[epoch:]version-release.
"""

import re
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
_LOCK = {
    "dnf": ("dnf", "-q", "-C", "versionlock", "add", "--raw"),
    "zypper": ("zypper", "-n", "addlock"),
}
_UNLOCK = {
    "dnf": ("dnf", "-q", "-C", "versionlock", "delete"),
    "zypper": ("zypper", "-n", "removelock"),
}


def replace(manager: Manager, targets: Sequence[str], removed: Sequence[str] = ()) -> RunCommand:
    """One transaction that installs `targets` and removes `removed`, which have another name."""
    words = ("sh", "-c", _SCRIPTS[manager], manager, *targets)
    return RunCommand(words=(*words, "remove", *removed) if removed else words, seconds=SECONDS)


def lock(manager: Manager, targets: Sequence[str]) -> tuple[RunCommand, ...]:
    """Lock each package at its version (dnf), or as it is (zypper); nothing for no targets."""
    entries = [
        f"{_name(target)}-{_with_epoch(target.partition('=')[2])}.*"
        if manager == "dnf"
        else _name(target)
        for target in targets
    ]
    return _of(_LOCK[manager], entries)


def unlock(manager: Manager, targets: Sequence[str]) -> tuple[RunCommand, ...]:
    """Remove the locks of these packages, whatever their version; nothing for no targets."""
    return _of(_UNLOCK[manager], [_name(target) for target in targets])


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
    changed locks. `actions`: the step's.

    The versions come from the node's repositories. A package that the step removed then counts as
    installed by the user. Raises RestoreError.
    """
    step = next(action.words for action in actions if manager_of(action.words))
    manager = manager_of(step)
    assert manager is not None  # noqa: S101 - for mypy: `next` found it
    installed = {name: version for name, _, version in sets(step) or ()}
    before = {state.resource.name: _version(state) for state in states if state.exists}
    targets = [f"{name}={version}" for name, version in before.items()]
    gone = [f"{name}={version}" for name, version in installed.items() if name not in before]
    held = [
        f"{state.resource.name}={before[state.resource.name]}"
        for state in states
        if state.mapping.get("held")
    ]
    has_locks = any(is_lock(action.words) for action in actions)
    return [
        RunCommand(words=("sh", "-c", _SINGLE, "rpm", *targets), seconds=SECONDS),
        *(unlock(manager, [*targets, *gone]) if has_locks else ()),
        replace(manager, targets, gone),
        *(lock(manager, held) if has_locks else ()),
    ]


def _version(state: State) -> str:
    version = mapping(state).get("version")
    if not isinstance(version, str) or not VERSION.fullmatch(version):
        raise RestoreError(f"{state.resource.label}: {version!r} is not a version")
    return version


def _of(start: tuple[str, ...], words: Sequence[str]) -> tuple[RunCommand, ...]:
    return (RunCommand(words=(*start, *dict.fromkeys(words))),) if words else ()


def _name(target: str) -> str:
    """The name of a package without its architecture."""
    return target.partition("=")[0].rpartition(".")[0]


def _with_epoch(version: str) -> str:
    return version if ":" in version else f"0:{version}"
