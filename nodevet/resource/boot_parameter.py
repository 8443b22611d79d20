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
WORD = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}(=[A-Za-z0-9_.,:+/@%~-]{1,200})?")
"""A parameter without characters that have a meaning of their own for a shell or GRUB."""
SECONDS = 300  # os-prober may look at many disks
MENUS = """\
set -eu
menu=/boot/grub/grub.cfg once=/boot/grub/nodevet-once.cfg env=/boot/grub/grubenv next=
fail() { echo "nodevet: $1; $menu is as it was" >&2; exit 1; }
[ -f "$menu" ] && [ ! -L "$menu" ] || fail "$menu is not a regular file"
rm -f -- "$menu".nodevet.?????? "$once".nodevet.??????
made=$(mktemp -d)
trap 'rm -rf -- "$made" ${next:+"$next"}' EXIT
trap 'exit 1' HUP INT TERM
entries() {
    awk '/^### BEGIN /{on = $3 == "/etc/grub.d/10_linux"} /menuentry /{recovery = /-recovery-/}
        on && !recovery && $1 ~ /^linux(efi|16)?$/' "$1"
}
make() {
    NODEVET_ONCE=$2 update-grub -o "$made/$1" || fail 'update-grub failed'
    [ -s "$made/$1" ] || fail 'update-grub wrote no menu'
    entries "$made/$1" >"$made/$1.entries"
    [ -s "$made/$1.entries" ] || fail 'update-grub wrote no entry that boots Linux'
}
rest() {
    awk '/^### BEGIN /{on = $3 ~ /_nodevet-/} /menuentry /{recovery = /-recovery-/}
        on && !recovery && $1 ~ /^linux(efi|16)?$/ {$1 = $1; print; n++}
        END {exit !n}' "$1" || entries "$1" | awk '{$1 = $1; print}'
    awk '/^### BEGIN /{on = $3 !~ /_nodevet-|_linux(_zfs|_xen)?$|_os-prober$/} on && NF' "$1"
}
words() {
    new=$made/$1.entries
    shift
    all=$(grep -c '' "$new")
    expected=$all
    for word; do
        [ "$word" != -- ] || { expected=0; continue; }
        has=$(awk -v word="$word" '{ for (i = 3; i <= NF; i++) if ($i == word) { n++; break } }
            END { print n + 0 }' "$new")
        [ "$has" = "$expected" ] || fail "$has of $all new entries have $word"
    done
}
replace() {
    next=$(mktemp -- "$2.nodevet.XXXXXX")
    cp -a -- "$menu" "$next"
    cat "$made/$1" >"$next"
    [ -z "${3-}" ] || touch -r "$3" -- "$next"
    sync -- "$next"
    mv -fT -- "$next" "$2"
    next=
    sync -- "${2%/*}"
}
tries() { grep -qs NODEVET_ONCE /etc/default/grub.d/zz-nodevet-*.cfg; }
chosen() { [ ! -e "$env" ] || grub-editenv "$env" list | sed -n 's/^next_entry=//p'; }
"""
"""update-grub truncates the menu before it writes it, and a full disk then leaves half of it. So it
writes another file, and that file replaces the menu if every entry is as the words say, those
before `--` in each entry and those after it in none."""
UPDATE = (
    MENUS
    + """\
entry=/etc/grub.d/98_nodevet-once-
drop() {
    ! tries && [ -e "$once" ] || return 0
    case "$(chosen)" in '' | nodevet-once) grub-editenv "$env" unset next_entry ;; esac
    rm -f -- "$once"
    sync -- "${once%/*}"
}
forget() {
    ! tries && grep -q "^### BEGIN $entry" "$menu" || return 0
    awk -v entry="$entry" '{is_own = index($3, entry) == 1 && /^### (BEGIN|END) /}
        is_own && $2 == "BEGIN" {skip = 1; blank = 0}
        !skip && /^$/ {blank++; next}
        !skip {for (; blank; blank--) print ""; print}
        is_own && $2 == "END" {skip = 0}' "$menu" >"$made/menu"
    replace menu "$menu" "$menu"
}
make menu ''
[ "$1" = -- ] || grep -q "'nodevet-earlier-" "$made/menu" || fail 'the new menu has no way back'
words menu "$@"
rest "$menu" >"$made/old"
rest "$made/menu" >"$made/new"
cmp -s "$made/old" "$made/new" || {
    drop
    forget
    fail 'update-grub would also change what nodevet did not set; if that is wanted, run it first'
}
! tries || make once 1
replace menu "$menu"
! tries || replace once "$once"
drop
"""
)
"""The menu replaces the old one if it keeps entries without the words, and if nothing else is new:
a setting that someone changed meanwhile does not come into force. What remains of a menu that
boots once goes with the last file that asks for one."""
PROGRAM, SPLIT = "update-grub", "--"


class UpdateGrub(RunCommand, frozen=True, kw_only=True, omit_defaults=True, tag="grub"):
    """Write GRUB's menu again, with the words before `--` and without those after it.

    nodevet's own script runs `update-grub`, and keeps the old menu unless every new entry is so."""

    @property
    def _wish(self) -> str:
        return wish(*(split(self.words) or (self.words[1:], ())))

    @property
    def label(self) -> str:
        return f"{PROGRAM} {self._wish}".strip()

    @property
    def command_text(self) -> str:
        comment = f"  # refused unless every entry is {self._wish}" if self._wish else ""
        return f"{PROGRAM}{comment}"

    def command(self, *, seconds: float) -> "StringCommand":
        given = split(self.words)
        if given is None or not all(map(WORD.fullmatch, (*given[0], *given[1]))):
            raise ActionError(f"{list(self.words)!r} are not parameters for GRUB's menu")
        run = RunCommand(words=("sh", "-c", UPDATE, *self.words))
        return run.command(seconds=seconds)


def split(
    words: Sequence[str], command: tuple[str, ...] = (PROGRAM,)
) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The parameters that each entry must have, and those that none may have; None for the words of
    another command than `command`."""
    length = len(command)
    if tuple(words[:length]) != command or SPLIT not in words:
        return None
    at = list(words).index(SPLIT)
    return tuple(words[length:at]), tuple(words[at + 1 :])


def wish(present: Sequence[str], absent: Sequence[str]) -> str:
    """`with a b and without c`."""
    parts = [f"with {' '.join(present)}"] * bool(present)
    return " and ".join([*parts, *[f"without {' '.join(absent)}"] * bool(absent)])


def update(present: Iterable[str] = (), absent: Iterable[str] = ()) -> UpdateGrub:
    """Write the menu again, if each entry then has the words `present` and none of `absent`."""
    return UpdateGrub(words=(PROGRAM, *present, SPLIT, *absent), seconds=SECONDS)


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
        given = split(words)
        if given is None or not own:
            return None
        present, absent = given
        texts = {word: _texts(own.get(word.partition("=")[0])) for word in (*present, *absent)}
        if any(text is None for text in texts.values()):
            return None
        return all(all(word in text for text in texts[word] or ()) for word in present) and not any(
            word in text for word in absent for text in texts[word] or ()
        )

    def names_all(self, words: Sequence[str]) -> bool:
        return split(words) is not None

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
