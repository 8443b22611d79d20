"""A kernel parameter in the entries of GRUB's menu, /boot/grub/grub.cfg of Debian and Ubuntu.

The settings from which `update-grub` writes that file are files of their own.
"""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Text
from nodevet.resource.core import Action, ActionError, Kind, RunCommand, State

if TYPE_CHECKING:
    from pyinfra.api.command import StringCommand

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
SECONDS = 300  # os-prober may look at many disks
UPDATE = """\
set -eu
menu=/boot/grub/grub.cfg next=
fail() { echo "nodevet: $1; $menu is as it was" >&2; exit 1; }
[ -f "$menu" ] && [ ! -L "$menu" ] || fail "$menu is not a regular file"
rm -f -- "$menu".nodevet.??????
made=$(mktemp -d)
trap 'rm -rf -- "$made" ${next:+"$next"}' EXIT
trap 'exit 1' HUP INT TERM
update-grub -o "$made/menu" || fail 'update-grub failed'
awk '/^### BEGIN /{on = $3 ~ "/10_linux"} /menuentry /{recovery = /-recovery-/}
    on && !recovery && $1 ~ /^linux(efi|16)?$/' "$made/menu" >"$made/entries" || :
[ -s "$made/entries" ] || fail 'update-grub wrote no entry that boots Linux'
all=$(grep -c '' "$made/entries")
expected=$all
for word; do
    [ "$word" != -- ] || { expected=0; continue; }
    has=$(awk -v word="$word" '{ for (i = 3; i <= NF; i++) if ($i == word) { n++; break } }
        END { print n + 0 }' "$made/entries")
    [ "$has" = "$expected" ] || fail "$has of $all new entries have $word"
done
next=$(mktemp -- "$menu.nodevet.XXXXXX")
cp -p -- "$menu" "$next"
cat "$made/menu" >"$next"
sync -- "$next"
mv -fT -- "$next" "$menu"
sync -- "${menu%/*}"
"""
"""update-grub truncates the menu before it writes it, and a full disk then leaves half of it. So it
writes another file, and that file replaces the menu if every entry is as the words say: those
before `--` are in each entry, those after it in none."""
HEAD = ("sh", "-c", UPDATE, "update-grub")


class UpdateGrub(RunCommand, frozen=True, kw_only=True, omit_defaults=True, tag="grub"):
    """Write GRUB's menu again, if each of its entries then is as the words behind HEAD say."""

    @property
    def parameters(self) -> tuple[str, ...]:
        return self.words[len(HEAD) :]

    @property
    def label(self) -> str:
        if self.words[: len(HEAD)] != HEAD or "--" not in self.parameters:
            return super().label
        split = self.parameters.index("--")
        given, removed = self.parameters[:split], self.parameters[split + 1 :]
        parts = [f"with {' '.join(given)}"] * bool(given)
        parts += [f"without {' '.join(removed)}"] * bool(removed)
        return " ".join(["update-grub", " and ".join(parts)]).strip()

    def command(self, *, seconds: float) -> "StringCommand":
        if self.words[: len(HEAD)] != HEAD or "--" not in self.parameters:
            raise ActionError("nodevet does not write GRUB's menu by another script than its own")
        return super().command(seconds=seconds)


def update(present: Iterable[str] = (), absent: Iterable[str] = ()) -> UpdateGrub:
    """Write the menu again, if each entry then has the words `present` and none of `absent`."""
    return UpdateGrub(words=(*HEAD, *present, "--", *absent), seconds=SECONDS)


class BootParameterKind(Kind):
    form = Annotated[tuple[Text, ...], bounds.ASKED]
    actions = (UpdateGrub,)
    is_setting = True

    def name_problem(self, name: str) -> str:
        return "" if NAME.fullmatch(name) else "is not the name of a kernel parameter"

    def describe(self, state: State) -> str:
        texts = [str(text) or "absent" for text in state.value or ()]
        return " or ".join(texts)

    def command_holds(self, words: Sequence[str], states: Sequence[State]) -> bool | None:
        """Whether all entries have the words of `update`, or none."""
        own = {state.resource.name: state for state in states if state.resource.kind == KIND_NAME}
        if tuple(words[: len(HEAD)]) != HEAD or not own:
            return None
        arguments = list(words[len(HEAD) :])
        split = arguments.index("--")
        present, absent = arguments[:split], arguments[split + 1 :]
        given = {
            word: _texts(own.get(word.partition("=")[0])) for word in arguments if word != "--"
        }
        if any(texts is None for texts in given.values()):
            return None
        return all(all(word in text for text in given[word] or ()) for word in present) and not any(
            word in text for word in absent for text in given[word] or ()
        )

    def names_all(self, words: Sequence[str]) -> bool:
        return tuple(words[: len(HEAD)]) == HEAD

    def restore_rank(self, before: State) -> int:
        return 3  # after the settings, which are files

    def restore(
        self, before: State, siblings: Sequence[State], actions: Sequence[Action]
    ) -> Sequence[Action]:
        return [update()]


def _texts(state: State | None) -> list[list[str]] | None:
    """The words that the entries have of a parameter; None if they were not read."""
    if state is None or state.why or not state.exists:
        return None
    return [str(text).split() for text in state.value or ()]


KIND_NAME = "boot_parameter"
KIND = BootParameterKind()
