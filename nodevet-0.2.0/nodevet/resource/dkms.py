"""A module of DKMS for one kernel: added, built or installed. Its name is NAME/VERSION/KERNEL."""

import re
from collections.abc import Sequence
from typing import Literal

from nodevet.resource.core import Action, Kind, Resource, RestoreError, RunCommand, State

WORD = r"[A-Za-z0-9_+][A-Za-z0-9._+~-]{0,99}"
NAME = re.compile(rf"{WORD}/{WORD}/{WORD}")
SECONDS = 1800  # the driver's modules take minutes to build
UNDO = {"added": "unbuild", "built": "uninstall"}
"""The action of dkms(8) that leads back to a state from a later one."""


class DkmsKind(Kind):
    form = Literal["added", "built", "installed"]
    is_setting = True

    def name_problem(self, name: str) -> str:
        return "" if NAME.fullmatch(name) else "is not NAME/VERSION/KERNEL"

    def names(self, resource: Resource) -> tuple[str, ...]:
        """The kernel, as commands name it."""
        return (resource.name.rpartition("/")[2],)

    def command_holds(self, words: Sequence[str], states: Sequence[State]) -> bool | None:
        for state in states:
            named = state.resource.kind == "dkms" and not state.why
            if named and tuple(words) == install(state.resource.name).words:
                return bool(state.value == "installed")
        return None

    def names_all(self, words: Sequence[str]) -> bool:
        return words[:1] == ("dkms",)

    def restore_rank(self, before: State) -> int:
        return 4

    def restore(
        self, before: State, siblings: Sequence[State], actions: Sequence[Action]
    ) -> Sequence[Action]:
        verb = UNDO.get(str(before.value))
        if verb is None:
            raise RestoreError(f"{before.resource.label}: it cannot be made {before.value} again")
        return [_command(verb, before.resource.name)]


def install(name: str) -> RunCommand:
    """Build a module, if it is not built, and install it."""
    return _command("install", name)


def _command(verb: str, name: str) -> RunCommand:
    module, version, kernel = name.split("/")
    words = ("dkms", verb, "-m", module, "-v", version, "-k", kernel)
    return RunCommand(words=words, seconds=SECONDS)


KIND = DkmsKind()
