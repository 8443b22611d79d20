"""Swap on a device or in a file, or `all`: whether it is active."""

import re
from collections.abc import Sequence
from typing import Annotated

from msgspec import UNSET, UnsetType

from nodevet.base import bounds
from nodevet.base.bounds import Text
from nodevet.resource.core import Action, Form, Integer, Kind, RunCommand, State, mapping, switch

_DISCARD = re.compile(r"[\s,](discard(?:=(?:once|pages))?)(?=[\s,]|$)")  # fstab(5)


class SwapState(Form, frozen=True, kw_only=True):
    active: bool
    fstab: Annotated[tuple[Text, ...], bounds.MODULES]  # its lines there
    priority: Integer | UnsetType | None = UNSET


class SwapKind(Kind):
    form = SwapState

    def restore_rank(self, before: State) -> int:
        return 4

    def names_all(self, words: Sequence[str]) -> bool:
        return words[:1] in (("swapon",), ("swapoff",))

    def restore(
        self, before: State, siblings: Sequence[State], actions: Sequence[Action]
    ) -> Sequence[Action]:
        """/etc/fstab is restored as a file. A priority below zero is the kernel's choice."""
        value, name = mapping(before), before.resource.name
        active = switch(before, value.get("active"))
        if name == "all":
            return [RunCommand(words=("swapon" if active else "swapoff", "-a"))]
        if not active:
            return [off(name)]
        options: tuple[str, ...] = ()
        priority = value.get("priority")
        if isinstance(priority, int) and priority >= 0:
            options += ("-p", str(priority))
        lines = value.get("fstab") or ()
        if discard := _DISCARD.search(str(lines[0])) if lines else None:
            options += (f"--{discard[1]}",)
        return [RunCommand(words=("swapon", *options, "--", name))]


def off(name: str, *, seconds: int | None = None) -> RunCommand:
    return RunCommand(words=("swapoff", "--", name), seconds=seconds)


KIND = SwapKind()
