"""The profile that TuneD has active: /etc/tuned/active_profile, which `tuned-adm profile` sets."""

import re
from collections.abc import Sequence

from nodevet.base.bounds import Text
from nodevet.resource.core import (
    Action,
    Form,
    Kind,
    Resource,
    RestoreError,
    RunCommand,
    State,
    mapping,
)
from nodevet.resource.file import WriteFile

ACTIVE = "active"  # the only name
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,100}")
PROGRAM = ("tuned-adm", "profile")
SECONDS = 120  # TuneD answers after all of the profile is set


class ProfileState(Form, frozen=True, kw_only=True):
    profile: Text
    mode: Text  # manual; auto: TuneD chose it


def activate(profile: str) -> RunCommand:
    """Make a profile the active one, and set what it says."""
    return RunCommand(words=(*PROGRAM, profile), seconds=SECONDS)


class TunedProfileKind(Kind):
    form = ProfileState

    def name_problem(self, name: str) -> str:
        return "" if name == ACTIVE else f"is not `{ACTIVE}`"

    def names(self, resource: Resource) -> tuple[str, ...]:
        return (PROGRAM[0],)

    def describe(self, state: State) -> str:
        return str(state.mapping.get("profile"))

    def command_holds(self, words: Sequence[str], states: Sequence[State]) -> bool | None:
        """Whether the profile of `activate` is active; not whether TuneD read its file again."""
        state = next((each for each in states if each.resource.kind == KIND_NAME), None)
        if tuple(words[:2]) != PROGRAM or state is None or state.why:
            return None
        return False if state.mapping.get("profile") != words[2] else None

    def restore_rank(self, before: State) -> int:
        return 3  # after the profiles, which are files

    def restore(
        self, before: State, siblings: Sequence[State], actions: Sequence[Action]
    ) -> Sequence[Action]:
        value = mapping(before)
        profile = str(value.get("profile"))
        if value.get("mode") == "auto":
            return [RunCommand(words=("tuned-adm", "auto_profile"), seconds=SECONDS)]
        if not NAME.fullmatch(profile):
            raise RestoreError(f"{before.resource.label}: {profile!r} is not the name of a profile")
        return [activate(profile)]

    def after_restore(
        self, restore_actions: Sequence[Action], actions: Sequence[Action]
    ) -> Sequence[Action]:
        """TuneD reads the restored file of a profile that stays active."""
        own = [action for action in actions if _is_activation(action)]
        is_set = any(_is_activation(action) for action in restore_actions)
        wrote = any(
            isinstance(action, WriteFile)
            and action.content is not None
            and action.path.startswith("/etc/tuned/")
            for action in restore_actions
        )
        return own[:1] if wrote and not is_set else ()


def _is_activation(action: Action) -> bool:
    return isinstance(action, RunCommand) and action.words[0] == PROGRAM[0]


KIND_NAME = "tuned_profile"
KIND = TunedProfileKind()
