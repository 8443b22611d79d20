"""Actions of apt-get, apt-mark and dpkg."""

import re
from collections.abc import Sequence

from nodevet.resource.core import RestoreError, RunCommand, State, mapping

SECONDS = 1800  # for DKMS to build modules for every kernel
LOCK_SECONDS = 300  # while unattended-upgrades and its like work
VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+:~-]*")  # deb-version(7)
QUIET = ("env", "DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_SUSPEND=1")

_MARK = re.compile(r"apt-mark (hold|auto)")

Expected = list[tuple[str, str, object]]
"""(package, field of its state, value) for each; version None: not installed."""


def install(targets: Sequence[str], *options: str) -> RunCommand:
    """One transaction of apt-get: NAME=VERSION each, or NAME- to remove one."""
    words = (
        *(*QUIET, "apt-get", "-y", "--no-install-recommends", *options),
        *("-o", "Dpkg::Options::=--force-confold", "-o", f"DPkg::Lock::Timeout={LOCK_SECONDS}"),
        *("install", *targets),
    )
    return RunCommand(words=words, seconds=SECONDS)


def mark(command: str, names: Sequence[str]) -> tuple[RunCommand, ...]:
    """apt-mark(8): auto, hold, unhold; nothing for no names."""
    return (RunCommand(words=("apt-mark", command, *names)),) if names else ()


CONFIGURE = RunCommand(
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
    marks: dict[str, list[str]] = {"auto": [], "hold": [], "unhold": []}
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
        marks["hold" if value.get("held") else "unhold"].append(name)
        if value.get("automatic"):
            marks["auto"].append(name)
    options = ("--allow-downgrades", "--allow-change-held-packages", "--purge")
    marking = [run for command, names in marks.items() for run in mark(command, names)]
    return [CONFIGURE, install(targets, *options), *marking]
