"""A kernel module: whether it is loaded, and what loading it would bring along."""

import re
from collections.abc import Sequence
from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Text
from nodevet.resource.core import (
    Action,
    Form,
    Kind,
    RestoreError,
    RunCommand,
    State,
    Traces,
    mapping,
    switch,
)

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
UNLOAD = 'test ! -d "/sys/module/$1" || exec rmmod -- "$1"'


class ModuleState(Form, frozen=True, kw_only=True):
    loaded: bool
    brings: Annotated[tuple[Text, ...], bounds.MODULES]


class ModuleKind(Kind):
    form = ModuleState

    def names_all(self, words: Sequence[str]) -> bool:
        return words[:1] == ("modprobe",)

    def restore_rank(self, before: State) -> int:
        return 3

    def restore(
        self, before: State, among: Sequence[State], actions: Sequence[Action]
    ) -> Sequence[Action]:
        """All of them: those that were loaded, then the others are unloaded, with what came along.

        `modprobe -r` would also unload what was loaded before and nothing else uses.
        """
        runs: list[RunCommand] = []
        order: dict[str, None] = {}  # in which they were loaded
        for each in among:
            value, label = mapping(each), each.resource.label
            names = [*(value.get("brings") or ()), each.resource.name]
            if wrong := [name for name in names if not NAME.fullmatch(str(name))]:
                raise RestoreError(f"{label}: {wrong[0]!r} is not a valid module name")
            if switch(each, value.get("loaded")):
                runs.append(load(each.resource.name))
            else:
                order.update(dict.fromkeys(name.replace("-", "_") for name in names))
        away = [RunCommand(words=("sh", "-c", UNLOAD, "rmmod", name)) for name in reversed(order)]
        return runs + away

    def is_of_step(self, traces: Traces, now: State) -> bool | None:
        """Of one that a reboot loads or unloads, both are."""
        return True if traces.effective == "reboot" else None


def load(name: str) -> RunCommand:
    return RunCommand(words=("modprobe", "--", name))


KIND = ModuleKind()
