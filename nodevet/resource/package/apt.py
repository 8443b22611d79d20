"""Actions of apt-get, apt-mark and dpkg."""

import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nodevet.resource.core import RestoreError, RunCommand, State, mapping

if TYPE_CHECKING:
    from pyinfra.api.command import StringCommand

SECONDS = 1800  # for DKMS to build modules for every kernel
LOCK_SECONDS = 300  # while unattended-upgrades and its like work
PAUSE = 5  # seconds between two tries
VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+:~-]*")  # deb-version(7)
QUIET = ("env", "DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_SUSPEND=1")

_MARK = re.compile(r"apt-mark (hold|auto)")

WAIT = f"""\
export LC_ALL=C
tries={LOCK_SECONDS // PAUSE}
while :; do
    said=$("$@" 2>&1) && break
    code=$?
    case $tries,$said in
    0,*) ;;
    *'locked by another process'*) tries=$((tries - 1)); sleep {PAUSE}; continue ;;
    esac
    echo "$said" >&2
    exit $code
done
echo "$said"
"""
"""dpkg and apt-mark end at once if another process holds dpkg's lock; only apt-get waits."""

_UNHOLD = (
    "for word; do shift; name=${word%%=*}; "
    '[ "$(dpkg-query -W -f \'${Version}\' "$name" 2>/dev/null)" != "${word#*=}" ] || '
    'set -- "$@" "$name"; done; [ $# = 0 ] || exec apt-mark unhold "$@"'
)

Expected = list[tuple[str, str, object]]
"""(package, field of its state, value) for each; version None: not installed."""


class WaitForDpkg(RunCommand, frozen=True, kw_only=True, omit_defaults=True, tag="dpkg"):
    """A command of dpkg or apt-mark, tried again while another process holds dpkg's lock."""

    @property
    def command_text(self) -> str:
        return f"{shlex.join(self.words)}  # waits for dpkg's lock"

    def command(self, *, seconds: float) -> "StringCommand":
        run = RunCommand(words=("sh", "-c", WAIT, "dpkg", *self.words))
        return run.command(seconds=seconds)


def install(targets: Sequence[str], *options: str) -> RunCommand:
    """One transaction of apt-get that changes these packages and no other: NAME=VERSION each, or
    NAME- to remove one."""
    names = [target.partition("=")[0].removesuffix("-") for target in targets]
    words = (
        *(*QUIET, "apt-get", "-y", "--no-install-recommends", *options),
        *("-o", "DPkg::Tools::Options::while::Version=2"),
        *("-o", f"DPkg::Pre-Install-Pkgs::={guard_hook(names)}"),
        *("-o", "Dpkg::Options::=--force-confold", "-o", f"DPkg::Lock::Timeout={LOCK_SECONDS}"),
        *("install", *targets),
    )
    return RunCommand(words=words, seconds=SECONDS)


def guard_hook(names: Sequence[str]) -> str:
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


def mark(command: str, names: Sequence[str]) -> tuple[RunCommand, ...]:
    """apt-mark(8): auto, hold; nothing for no names."""
    words = ("apt-mark", command, *names)
    return (WaitForDpkg(words=words, seconds=2 * LOCK_SECONDS),) if names else ()


def unhold(targets: Sequence[str]) -> tuple[RunCommand, ...]:
    """No longer hold those packages that have this version: if apt refused to install it, the step
    holds its own. NAME=VERSION each; nothing for no targets."""
    words = ("sh", "-c", _UNHOLD, "unhold", *targets)
    return (WaitForDpkg(words=words, seconds=2 * LOCK_SECONDS),) if targets else ()


CONFIGURE = WaitForDpkg(
    words=(*QUIET, "dpkg", "--force-confold", "--configure", "-a"), seconds=SECONDS
)
"""After dpkg was killed, apt-get does nothing before this."""


def sets(words: Sequence[str]) -> Expected | None:
    """What a command of apt-get or apt-mark sets; None for another command."""
    if "apt-get" in words and "install" in words:
        halves = (word.partition("=") for word in words[words.index("install") + 1 :])
        return [(name, "version", version) for name, _, version in halves]
    if match := _MARK.fullmatch(" ".join(words[:2])):
        field = {"hold": "held", "auto": "automatic"}[match[1]]
        return [(name, field, True) for name in words[2:]]
    return None


def restore(states: Sequence[State]) -> list[RunCommand]:
    """Install the versions of all states in one transaction, then set the packages' marks.

    The versions come from the node's repositories. Raises RestoreError.
    """
    targets: list[str] = []
    marks: dict[str, list[str]] = {"auto": [], "hold": []}
    unheld: list[str] = []
    for state in states:
        name = state.resource.name
        if not state.exists:
            targets.append(f"{name}-")
            continue
        value = mapping(state)
        version = value.get("version")
        if not isinstance(version, str) or not VERSION.fullmatch(version):
            raise RestoreError(f"{state.resource.label}: {version!r} is not a version")
        targets.append(f"{name}={version}")
        if value.get("held"):
            marks["hold"].append(name)
        else:
            unheld.append(targets[-1])
        if value.get("automatic"):
            marks["auto"].append(name)
    options = ("--allow-downgrades", "--allow-change-held-packages", "--purge")
    marking = [run for command, names in marks.items() for run in mark(command, names)]
    return [CONFIGURE, install(targets, *options), *marking, *unhold(unheld)]
