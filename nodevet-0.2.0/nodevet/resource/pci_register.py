"""A register of a PCI function: the bits that fixes set. The device forgets them at a reset."""

import re
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from nodevet.remote.pci_names import MASKS, REGISTER
from nodevet.resource.core import Action, Kind, Resource, RestoreError, RunCommand, State

WORD = re.compile(r"([A-Z_]+\+[0-9]+\.w)=([0-9a-f]{4}):([0-9a-f]{4})")


class PciRegisterKind(Kind):
    form = Annotated[int, Meta(ge=0, le=0xFFFF)]
    is_setting = True

    def name_problem(self, name: str) -> str:
        return "" if REGISTER.match(name) else "is not a register that nodevet can set"

    def names(self, resource: Resource) -> tuple[str, ...]:
        return (resource.name.rpartition(":")[0],)

    def describe(self, state: State) -> str:
        return f"{state.value:#06x}" if isinstance(state.value, int) else super().describe(state)

    def command_holds(self, words: Sequence[str], states: Sequence[State]) -> bool | None:
        match = WORD.fullmatch(words[-1]) if self.names_all(words) else None
        name = f"{words[2]}:{match[1]}" if match else ""
        state = next((state for state in states if state.resource == register(name)), None)
        if match is None or state is None or state.why:
            return None
        value, mask = int(match[2], 16), int(match[3], 16)
        return isinstance(state.value, int) and state.value & mask == value

    def names_all(self, words: Sequence[str]) -> bool:
        return words[:2] == ("setpci", "-s") and len(words) == 4

    def restore(
        self, before: State, siblings: Sequence[State], actions: Sequence[Action]
    ) -> Sequence[Action]:
        label = before.resource.label
        if not before.exists:
            raise RestoreError(f"{label}: there is no such function")
        if not isinstance(before.value, int):
            raise RestoreError(f"{label}: {before.value!r} is not a number")
        address, _, name = before.resource.name.rpartition(":")
        return [set_bits(address, name, before.value, MASKS[name])]


def register(name: str) -> Resource:
    """`0000:17:00.0:CAP_EXP+8.w` as a resource."""
    return Resource(kind="pci_register", name=name)


def set_bits(address: str, name: str, value: int, mask: int) -> RunCommand:
    """The command that sets the bits of `mask` in a register to those of `value`."""
    return RunCommand(words=("setpci", "-s", address, f"{name}={value:04x}:{mask:04x}"))


KIND = PciRegisterKind()
