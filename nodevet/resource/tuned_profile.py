"""A profile of nodevet's own among those that TuneD has active, /etc/tuned/active_profile.

tuned-adm(8): TuneD merges the active profiles, and a later one wins. Each fix adds a profile and
takes it away again, whatever other fixes have added.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nodevet.base.bounds import Text
from nodevet.resource.core import Action, ActionError, Form, Kind, Resource, RunCommand, State
from nodevet.resource.file import WriteFile

if TYPE_CHECKING:
    from pyinfra.api.command import StringCommand

OWN = "nodevet-"
NAME = re.compile(r"nodevet-[a-z]+(-[a-z]+){0,9}")
PROGRAM, WITH, WITHOUT = ("tuned-adm", "profile"), "with", "without"
SECONDS = 120  # TuneD answers after all of the profiles are set
SCRIPT = """\
set -efu
systemctl -q is-active tuned ||
    { echo 'TuneD does not run: start it, then do this again' >&2; exit 1; }
cd /etc/tuned
names= own=
for name in $(cat active_profile); do
    case $name in nodevet-*) own=1 ;; esac
    [ "$name" = "$2" ] || names="$names $name"
done
if [ "$1" = with ]; then
    names="$names $2"
    [ "$own" ] || rm -f nodevet-auto
    [ "$own" ] || [ "$(cat profile_mode 2>/dev/null)" != auto ] || : >nodevet-auto
fi
case $names in
*' nodevet-'*) ;;
*)
    if [ -e nodevet-auto ]; then
        tuned-adm auto_profile
        rm nodevet-auto
        exit
    fi
    ;;
esac
exec tuned-adm profile $names
"""
"""The file nodevet-auto says that TuneD had chosen its profile itself. It does so again without the
last profile of nodevet. tuned-adm would start a TuneD that someone stopped."""


class ProfileState(Form, frozen=True, kw_only=True):
    profile: Text  # the active ones that are not nodevet's
    mode: Text  # manual; auto: TuneD chose them
    included: bool  # whether this profile is active, too


class ActivateProfile(RunCommand, frozen=True, kw_only=True, omit_defaults=True, tag="tuned"):
    """Let TuneD merge its active profiles with one of nodevet, or without it, and set them."""

    @property
    def label(self) -> str:
        return f"let TuneD merge its profiles {' '.join(self.words[2:])}"

    @property
    def command_text(self) -> str:
        return f"{' '.join(PROGRAM)}  # the active profiles {' '.join(self.words[2:])}"

    def command(self, *, seconds: float) -> "StringCommand":
        if _is_with(self.words) is None or not NAME.fullmatch(self.words[3]):
            raise ActionError(f"{list(self.words)!r} does not activate a profile of nodevet")
        run = RunCommand(words=("sh", "-c", SCRIPT, "tuned", *self.words[2:]))
        return run.command(seconds=seconds)


def activate(name: str, *, included: bool = True) -> ActivateProfile:
    """Let TuneD use a profile of nodevet as its last one, or no longer."""
    return ActivateProfile(words=(*PROGRAM, WITH if included else WITHOUT, name), seconds=SECONDS)


def _is_with(words: Sequence[str]) -> bool | None:
    """Whether the words of `activate` add a profile; None for the words of another command."""
    if len(words) != 4 or tuple(words[:2]) != PROGRAM or words[2] not in (WITH, WITHOUT):
        return None
    return words[2] == WITH


class TunedProfileKind(Kind):
    form = ProfileState
    actions = (ActivateProfile,)

    def name_problem(self, name: str) -> str:
        return "" if NAME.fullmatch(name) else "is not the name of a profile of nodevet"

    def describe(self, state: State) -> str:
        value = state.mapping
        word = WITH if value.get("included") else WITHOUT
        return f"{value.get('profile') or 'none'} {word} {state.resource.name}"

    def command_holds(self, words: Sequence[str], states: Sequence[State]) -> bool | None:
        """Whether the profile is active; not whether TuneD read its file again."""
        expected = _is_with(words)
        state = next((each for each in states if each.resource.kind == KIND_NAME), None)
        if expected is None or state is None or state.why or state.resource.name != words[3]:
            return None
        return None if state.mapping.get("included") is expected else False

    def restore_rank(self, before: State) -> int:
        """Before its file is removed, or after its earlier file is back."""
        return 3 if before.mapping.get("included") else 1

    def restore(
        self, before: State, siblings: Sequence[State], actions: Sequence[Action]
    ) -> Sequence[Action]:
        included = before.mapping.get("included") is True
        return [activate(before.resource.name, included=included)]

    def after_restore(
        self, restore_actions: Sequence[Action], actions: Sequence[Action]
    ) -> Sequence[Action]:
        """TuneD reads the restored file of a profile that stays active."""
        own = [action for action in actions if isinstance(action, ActivateProfile)]
        is_set = any(isinstance(action, ActivateProfile) for action in restore_actions)
        wrote = any(
            isinstance(action, WriteFile)
            and action.content is not None
            and action.path.startswith("/etc/tuned/")
            for action in restore_actions
        )
        return own[:1] if wrote and not is_set else ()

    def depends_on(self, resource: Resource, others: Sequence[Resource]) -> bool:
        """Whoever edits the file of the profile also decides whether it is active."""
        return any(f"/{resource.name}/" in other.name for other in others if other.kind == "file")


KIND_NAME = "tuned_profile"
KIND = TunedProfileKind()
