"""What is mounted at a path: source, type and the options of the mount itself."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Text
from nodevet.remote.fstab import mount_unit
from nodevet.resource.core import (
    Action,
    Form,
    Kind,
    Resource,
    RestoreError,
    RunCommand,
    State,
    path_problem,
)

PATH = re.compile(r"(/[A-Za-z0-9_.+@:-]{1,200}){1,16}")
SECONDS = 60  # for one mount: a server may not answer
LIMITED = ("timeout", "-k", "5", str(SECONDS))
FLAGS: Mapping[str, str] = {"ro": "rw", "nosuid": "suid", "nodev": "dev", "noexec": "exec"}
"""Options of a mount, not of its file system, and the opposites, which mountinfo does not list."""
FOLDERS: Mapping[str, str] = {"nodiratime": "diratime"}
TIMES = ("noatime", "relatime", "strictatime")
"""One of these; mountinfo does not list the last."""


class MountState(Form, frozen=True, kw_only=True):
    type: Text
    source: Text
    root: Text  # what of the file system
    options: Annotated[tuple[Text, ...], bounds.MOUNT_OPTIONS]  # of the mount


class MountKind(Kind):
    form = MountState
    is_setting = True

    def name_problem(self, name: str) -> str:
        is_plain = PATH.fullmatch(name) and not path_problem(name)
        return "" if is_plain else "is not a plain path of a mount"

    def names(self, resource: Resource) -> tuple[str, ...]:
        """Its path, and the unit that mounts it."""
        return (resource.name, mount_unit(resource.name))

    def describe(self, state: State) -> str:
        value = state.mapping
        return f"{value.get('type')} of {value.get('source')} ({','.join(_options(state))})"

    def command_holds(self, words: Sequence[str], states: Sequence[State]) -> bool | None:
        """Whether something is mounted, or has the options that `remount` set."""
        for state in states:
            name = state.resource.name
            if state.resource.kind != "mount" or state.why:
                continue
            if tuple(words) == mount(name).words:
                return state.exists
            if "remount" in _verb(words) and words[-1] == name:
                return state.exists and tuple(words) == remount(name, _options(state), ()).words
        return None

    def names_all(self, words: Sequence[str]) -> bool:
        return _verb(words) != ""

    def restore_rank(self, before: State) -> int:
        return 4

    def restore(
        self, before: State, siblings: Sequence[State], actions: Sequence[Action]
    ) -> Sequence[Action]:
        """Unmount what was not mounted before; otherwise set the earlier options again."""
        if not before.exists:
            return [unmount(before.resource.name)]
        if not before.mapping:
            raise RestoreError(f"{before.resource.label}: its earlier state was not read")
        return [remount(before.resource.name, _options(before), ())]


def _options(state: State) -> tuple[str, ...]:
    return tuple(map(str, state.mapping.get("options") or ()))


def _verb(words: Sequence[str]) -> str:
    """`mount`, `umount` or the options of a remount, of a command below; else empty."""
    limit, command = tuple(words[: len(LIMITED)]), words[len(LIMITED) :]
    if limit != LIMITED or len(command) < 3:
        return ""
    return command[2] if command[1] == "-o" else command[0]


def _limited(*words: str) -> RunCommand:
    """A command with a time limit: no server that hangs may hold the session."""
    return RunCommand(words=(*LIMITED, *words), seconds=SECONDS + 20)


def mount(path: str) -> RunCommand:
    """Mount what /etc/fstab says."""
    return _limited("mount", "--", path)


def unmount(path: str) -> RunCommand:
    """Never by force, and not later: it fails if something uses the mount."""
    return _limited("umount", "--", path)


def remount(path: str, options: Sequence[str], changes: Sequence[str]) -> RunCommand:
    """Set the options of a mount, and leave its file system alone: `bind`. `options`: as mountinfo
    lists them; `changes` replace some of these. All are named, so /etc/fstab adds none."""
    words = []
    for flag, opposite in (*FLAGS.items(), *FOLDERS.items()):
        last = [word for word in changes if word in (flag, opposite)]
        words.append(last[-1] if last else flag if flag in options else opposite)
    times = [word for word in (*options, *changes) if word in TIMES]
    words.append(times[-1] if times else "strictatime")
    return _limited("mount", "-o", ",".join(("remount", "bind", *words)), "--", path)


def is_flag(option: str) -> bool:
    """Whether `remount` can set this option."""
    pairs = (*FLAGS.items(), *FOLDERS.items())
    return option in TIMES or any(option in pair for pair in pairs)


KIND = MountKind()
