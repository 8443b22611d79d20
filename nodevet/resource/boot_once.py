"""GRUB's menu of one boot: what a fix adds to the kernel's command line, before it is the default.

Its name is that of nodevet's file of the fix: kernel-cmdline. It exists while that file has such a
line. GRUB forgets the choice before it boots, so any later boot takes the default entry.
"""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from nodevet.resource.boot_parameter import MENUS, SECONDS, SPLIT, WORD, split, update, wish
from nodevet.resource.core import Action, ActionError, Kind, Resource, RunCommand, State

if TYPE_CHECKING:
    from pyinfra.api.command import StringCommand

NAME = re.compile(r"[a-z][a-z-]{0,40}")
PROGRAM, ENTRY = "grub-reboot", "nodevet-once"
ONCE = (
    MENUS
    + """\
[ -x "$(command -v grub-reboot)" ] || fail 'grub-reboot is missing'
case "$(chosen)" in
    '' | nodevet-once) ;;
    *) fail "GRUB already boots another entry once: $(chosen)" ;;
esac
make menu ''
entries "$menu" >"$made/old"
cmp -s "$made/old" "$made/menu.entries" || fail 'update-grub would change the default entries too'
grep -q "'nodevet-once'" "$made/menu" || fail 'the new menu has no entry that boots once'
make once 1
words once "$@"
replace once "$once"
replace menu "$menu"
grub-reboot nodevet-once
sync -- "$env" "${env%/*}"
[ "$(chosen)" = nodevet-once ] || fail 'grub-reboot set nothing'
"""
)
"""The default menu keeps its command lines, and gets an entry that reads the other one. That one is
complete before the entry exists, and the entry before it is chosen."""


class BootOnce(RunCommand, frozen=True, kw_only=True, omit_defaults=True, tag="grub-once"):
    """Let GRUB boot once with the words before `--`, and without those after it.

    nodevet's own script runs `update-grub` and `grub-reboot`, and changes nothing unless every
    entry of the default menu stays as it is and every entry of the other one is so."""

    @property
    def _wish(self) -> str:
        return wish(*(split(self.words, tuple(self.words[:2])) or (self.words[2:], ())))

    @property
    def label(self) -> str:
        return f"update-grub and {PROGRAM} {ENTRY} {self._wish}".strip()

    @property
    def command_text(self) -> str:
        comment = f"refused unless its entries are {self._wish}, and the default ones as before"
        return f"update-grub; {PROGRAM} {ENTRY}  # {comment}"

    def command(self, *, seconds: float) -> "StringCommand":
        command = tuple(self.words[:2])
        given = split(self.words, command) if is_own(command) else None
        if given is None or not all(map(WORD.fullmatch, (*given[0], *given[1]))):
            raise ActionError(f"{list(self.words)!r} are not parameters for one boot by GRUB")
        run = RunCommand(words=("sh", "-c", ONCE, PROGRAM, *self.words[2:]))
        return run.command(seconds=seconds)


def is_own(command: Sequence[str]) -> bool:
    """Whether these are the first words of `boot_once`: the program and a name."""
    return len(command) == 2 and command[0] == PROGRAM and bool(NAME.fullmatch(command[1]))


def boot_once(name: str, present: Iterable[str] = (), absent: Iterable[str] = ()) -> BootOnce:
    """Boot once with the words `present` and none of `absent`. `name`: of nodevet's file."""
    return BootOnce(words=(PROGRAM, name, *present, SPLIT, *absent), seconds=SECONDS)


class BootOnceKind(Kind):
    form = Literal["chosen", "made"]
    actions = (BootOnce,)

    def name_problem(self, name: str) -> str:
        return "" if NAME.fullmatch(name) else "is not the name of a file of nodevet"

    def is_same(self, before: State, current: State) -> bool:
        """GRUB forgets the choice when it boots."""
        return before.exists == current.exists

    def describe(self, state: State) -> str:
        return "chosen for the next boot" if state.value == "chosen" else "made"

    def command_holds(self, words: Sequence[str], states: Sequence[State]) -> bool | None:
        """Whether GRUB boots it next."""
        if not is_own(words[:2]):
            return None
        resource = Resource(kind=KIND_NAME, name=words[1])
        state = next((state for state in states if state.resource == resource), None)
        if state is None or state.why:
            return None
        return state.exists and state.value == "chosen"

    def names_all(self, words: Sequence[str]) -> bool:
        return is_own(words[:2])

    def restore_rank(self, before: State) -> int:
        return 3  # after the settings, which are files

    def restore(
        self, before: State, siblings: Sequence[State], actions: Sequence[Action]
    ) -> Sequence[Action]:
        """The menus as the restored settings say."""
        return [update()]


KIND_NAME = "boot_once"
KIND = BootOnceKind()
