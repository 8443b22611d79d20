"""A package of the distribution: its version, and whether it is held or automatically installed."""

import re
from collections.abc import Sequence

from msgspec import UNSET, UnsetType

from nodevet.base.bounds import Text
from nodevet.resource.core import (
    Action,
    Form,
    Kind,
    RestoreError,
    RunCommand,
    State,
    mapping,
)

SECONDS = 1800  # for DKMS to build modules for every kernel
LOCK_SECONDS = 300  # while unattended-upgrades and its like work
VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+:~-]*")  # deb-version(7)
QUIET = ("env", "DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_SUSPEND=1")

_MARK = re.compile(r"apt-mark (hold|auto)")


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


class PackageState(Form, frozen=True, kw_only=True):
    version: Text
    held: bool
    automatic: bool | UnsetType = UNSET  # apt's alone


class PackageKind(Kind):
    form = PackageState
    hides_gpus = True

    def command_holds(self, words: Sequence[str], states: Sequence[State]) -> bool | None:
        """Whether packages have the version or mark that apt-get or apt-mark was to set."""
        if "apt-get" in words and "install" in words:
            halves = (word.partition("=") for word in words[words.index("install") + 1 :])
            expected: list[tuple[str, str, object]] = [
                (name, "version", v) for name, _, v in halves
            ]
        elif match := _MARK.fullmatch(" ".join(words[:2])):
            field = {"hold": "held", "auto": "automatic"}[match[1]]
            expected = [(name, field, True) for name in words[2:]]
        else:
            return None
        by_name = {
            state.resource.name: state for state in states if state.resource.kind == "package"
        }
        if any(name not in by_name or by_name[name].why for name, _, _ in expected):
            return None
        return all(by_name[name].mapping.get(field) == value for name, field, value in expected)

    def names_all(self, words: Sequence[str]) -> bool:
        return words[:1] == ("apt-mark",)

    def restore_rank(self, before: State) -> int:
        return -1

    def restore(
        self, before: State, siblings: Sequence[State], actions: Sequence[Action]
    ) -> Sequence[Action]:
        """Install all in one transaction, since they depend on one another; then set their marks.

        This works only if the step used apt-get: the versions come from the node's repositories.
        """
        if not any("apt-get" in state.words for state in actions if isinstance(state, RunCommand)):
            raise RestoreError(
                f"{before.resource.label}: only what apt-get installed can be restored"
            )
        targets: list[str] = []
        marks: dict[str, list[str]] = {"auto": [], "hold": [], "unhold": []}
        for state in sorted(siblings, key=lambda state: state.resource.name):
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


KIND = PackageKind()
